#include "server/core/scheduler.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

namespace lockstep {
namespace {

// Cores are compared with a little slack: 3 x 0.1 is not 0.3.
constexpr double kCpuSlack = 1e-6;

bool IsSilent(const GpuUsage& gpu) {
  return !gpu.utilization && !gpu.memory_access && !gpu.memory_used_bytes &&
         !gpu.power_watts && !gpu.temperature_celsius;
}

struct FreeHost {
  const HostCapacity* host = nullptr;
  double cpus = 0;
  int64_t memory_bytes = 0;
  std::vector<const Gpu*> gpus;
};

FreeHost FreeOf(const HostCapacity& host) {
  FreeHost free;
  free.host = &host;
  free.cpus = host.capacity.cpus - host.allocated.cpus;
  free.memory_bytes = host.capacity.memory_bytes - host.allocated.memory_bytes;
  const auto has = [](const std::vector<int32_t>& indices, int32_t index) {
    return std::find(indices.begin(), indices.end(), index) != indices.end();
  };
  for (const Gpu& gpu : host.gpus) {
    if (!has(host.allocated_gpus, gpu.index) &&
        !has(host.silent_gpus, gpu.index)) {
      free.gpus.push_back(&gpu);
    }
  }
  return free;
}

std::vector<const Gpu*> MatchingGpus(const FreeHost& free,
                                     const std::string& type) {
  std::vector<const Gpu*> matching;
  for (const Gpu* gpu : free.gpus) {
    if (GpuModelMatches(type, gpu->model)) matching.push_back(gpu);
  }
  return matching;
}

bool Fits(const Resources& need, const FreeHost& free) {
  return need.cpus <= free.cpus + kCpuSlack &&
         need.memory_bytes <= free.memory_bytes &&
         static_cast<size_t>(need.gpus) <=
             MatchingGpus(free, need.gpu_type).size();
}

std::vector<int32_t> Take(const Resources& need, FreeHost* free) {
  free->cpus -= need.cpus;
  free->memory_bytes -= need.memory_bytes;
  std::vector<int32_t> taken;
  for (const Gpu* gpu : MatchingGpus(*free, need.gpu_type)) {
    if (taken.size() == static_cast<size_t>(need.gpus)) break;
    taken.push_back(gpu->index);
    std::erase(free->gpus, gpu);
  }
  return taken;
}

struct GangTask {
  size_t order = 0;
  const RoleSpec* role = nullptr;
  TaskPlacement placement;
};

std::vector<GangTask> TasksOf(const JobSpec& spec) {
  std::vector<GangTask> tasks;
  for (const RoleSpec& role : spec.roles) {
    for (int32_t index = 0; index < role.count; ++index) {
      GangTask task;
      task.order = tasks.size();
      task.role = &role;
      task.placement.type = role.type;
      task.placement.index = index;
      tasks.push_back(std::move(task));
    }
  }
  return tasks;
}

// The order in which tasks look for a place: the hardest to place first. What
// is hardest depends on what is short, so several are tried.
enum class HardestBy { kGpus, kCpus, kMemory };

void SortHardestFirst(HardestBy by, std::vector<GangTask*>* tasks) {
  const auto key = [by](const GangTask* task) {
    const Resources& r = task->role->resources;
    // GPUs of any type come after those of one type: they are less choosy.
    const double gpus = r.gpus + (r.gpu_type.empty() ? 0.0 : 0.5);
    const double memory = static_cast<double>(r.memory_bytes);
    switch (by) {
      case HardestBy::kCpus:
        return std::make_tuple(r.cpus, gpus, memory);
      case HardestBy::kMemory:
        return std::make_tuple(memory, gpus, r.cpus);
      default:
        return std::make_tuple(gpus, r.cpus, memory);
    }
  };
  // Stable: the chief before its equals.
  std::stable_sort(
      tasks->begin(), tasks->end(),
      [&](const GangTask* a, const GangTask* b) { return key(a) > key(b); });
}

// Hosts with the most of what the gang needs come first, so that it takes few
// of them; one that needs no GPU leaves hosts with GPUs alone where it can.
std::vector<FreeHost> HostsInOrder(const std::vector<HostCapacity>& hosts,
                                   bool needs_gpus) {
  std::vector<FreeHost> free;
  for (const HostCapacity& host : hosts) {
    if (host.ready) free.push_back(FreeOf(host));
  }
  std::sort(free.begin(), free.end(),
            [needs_gpus](const FreeHost& a, const FreeHost& b) {
              if (needs_gpus && a.gpus.size() != b.gpus.size()) {
                return a.gpus.size() > b.gpus.size();
              }
              if (a.cpus != b.cpus) return a.cpus > b.cpus;
              if (a.gpus.size() != b.gpus.size()) {
                return a.gpus.size() < b.gpus.size();
              }
              return a.host->node < b.host->node;
            });
  return free;
}

// Returns how many tasks found a place; all of them: a placement.
size_t PlaceTasksBy(HardestBy by, std::vector<GangTask>* tasks,
                    const std::vector<HostCapacity>& hosts) {
  std::vector<GangTask*> ordered;
  bool needs_gpus = false;
  for (GangTask& task : *tasks) {
    ordered.push_back(&task);
    needs_gpus = needs_gpus || task.role->resources.gpus > 0;
  }
  std::vector<FreeHost> free = HostsInOrder(hosts, needs_gpus);
  SortHardestFirst(by, &ordered);
  size_t placed = 0;
  for (GangTask* task : ordered) {
    for (FreeHost& host : free) {
      if (!Fits(task->role->resources, host)) continue;
      task->placement.node = host.host->node;
      task->placement.gpus = Take(task->role->resources, &host);
      ++placed;
      break;
    }
  }
  return placed;
}

size_t PlaceTasks(std::vector<GangTask>* tasks,
                  const std::vector<HostCapacity>& hosts) {
  size_t most = 0;
  for (const HardestBy by :
       {HardestBy::kGpus, HardestBy::kCpus, HardestBy::kMemory}) {
    most = std::max(most, PlaceTasksBy(by, tasks, hosts));
    if (most == tasks->size()) break;
  }
  return most;
}

void Occupy(const JobSpec& spec, const std::vector<TaskPlacement>& placement,
            std::vector<HostCapacity>* hosts) {
  for (const TaskPlacement& place : placement) {
    for (HostCapacity& host : *hosts) {
      if (host.node != place.node) continue;
      for (const RoleSpec& role : spec.roles) {
        if (role.type != place.type) continue;
        host.allocated.cpus += role.resources.cpus;
        host.allocated.memory_bytes += role.resources.memory_bytes;
        host.allocated.gpus += role.resources.gpus;
      }
      host.allocated_gpus.insert(host.allocated_gpus.end(), place.gpus.begin(),
                                 place.gpus.end());
    }
  }
}

Resources Sum(const JobSpec& spec) {
  Resources sum;
  for (const RoleSpec& role : spec.roles) {
    sum.cpus += role.resources.cpus * role.count;
    // 65536 tasks of an exbibyte each are too much for 64 bits.
    const double memory =
        static_cast<double>(sum.memory_bytes) +
        static_cast<double>(role.resources.memory_bytes) * role.count;
    sum.memory_bytes =
        memory >= 0x1p62 ? int64_t{1} << 62 : static_cast<int64_t>(memory);
    sum.gpus += role.resources.gpus * role.count;
    if (!role.resources.gpu_type.empty())
      sum.gpu_type = role.resources.gpu_type;
  }
  return sum;
}

Resources FreeSum(const std::vector<HostCapacity>& hosts) {
  Resources sum;
  for (const HostCapacity& host : hosts) {
    if (!host.ready) continue;
    const FreeHost free = FreeOf(host);
    sum.cpus += free.cpus;
    sum.memory_bytes += free.memory_bytes;
    sum.gpus += static_cast<int32_t>(free.gpus.size());
  }
  return sum;
}

double PartOf(const Resources& need, const HostCapacity& host) {
  double part = 1;
  if (need.cpus > 0) part = std::min(part, host.capacity.cpus / need.cpus);
  if (need.memory_bytes > 0) {
    part = std::min(part, static_cast<double>(host.capacity.memory_bytes) /
                              static_cast<double>(need.memory_bytes));
  }
  if (need.gpus > 0) {
    const size_t gpus = MatchingGpus(FreeOf(host), need.gpu_type).size();
    part = std::min(part, static_cast<double>(gpus) / need.gpus);
  }
  return part;
}

// "a worker task needs 8 cpus, more than any node has more than 4 (node b)": of
// the first role that no empty host can take; empty when every role fits
// somewhere.
std::string TooLargeForAnyHost(const JobSpec& spec,
                               const std::vector<HostCapacity>& hosts) {
  for (const RoleSpec& role : spec.roles) {
    const Resources& need = role.resources;
    const bool fits = std::any_of(
        hosts.begin(), hosts.end(),
        [&](const HostCapacity& host) { return Fits(need, FreeOf(host)); });
    if (fits) continue;
    // The host that has the largest part of what is shortest on it.
    const HostCapacity* best = &hosts.front();
    for (const HostCapacity& host : hosts) {
      if (PartOf(need, host) > PartOf(need, *best)) best = &host;
    }
    const size_t best_gpus = MatchingGpus(FreeOf(*best), need.gpu_type).size();
    Resources nearest = need;
    nearest.cpus = std::min(need.cpus, best->capacity.cpus);
    nearest.memory_bytes =
        std::min(need.memory_bytes, best->capacity.memory_bytes);
    nearest.gpus = std::min(need.gpus, static_cast<int32_t>(best_gpus));
    return fmt::format(
        "a {} task needs {}, more than any node has; the nearest that would "
        "fit is {} (node {})",
        Name(role.type), Describe(need), Describe(nearest), best->node);
  }
  return "";
}

std::vector<HostCapacity> Emptied(std::vector<HostCapacity> hosts) {
  for (HostCapacity& host : hosts) {
    host.allocated = {};
    host.allocated_gpus.clear();
    host.silent_gpus.clear();
  }
  return hosts;
}

// "2 of 3 nodes are drained"; empty: none is.
std::string DescribeDrained(const std::vector<HostCapacity>& hosts) {
  const auto drained =
      std::count_if(hosts.begin(), hosts.end(),
                    [](const HostCapacity& host) { return host.drained; });
  if (drained == 0) return "";
  return fmt::format("{} of {} node{} {} drained", drained, hosts.size(),
                     hosts.size() == 1 ? "" : "s", drained == 1 ? "is" : "are");
}

// "needs 2 cpus in 2 tasks; free on ready nodes: 0 cpus; not ready: b; 1 of 3
// nodes is drained".
std::string DescribeShortage(const JobSpec& spec,
                             const std::vector<HostCapacity>& hosts) {
  const Resources need = Sum(spec);
  const Resources free = FreeSum(hosts);
  std::vector<std::string> parts;
  if (need.cpus > 0) parts.push_back(DescribeCpus(free.cpus));
  if (need.memory_bytes > 0) parts.push_back(FormatBytes(free.memory_bytes));
  if (need.gpus > 0) {
    parts.push_back(
        fmt::format("{} GPU{}", free.gpus, free.gpus == 1 ? "" : "s"));
  };
  const size_t tasks = TasksOf(spec).size();
  std::string text = fmt::format(
      "needs {} in {} task{}; free on ready nodes: {}", Describe(need), tasks,
      tasks == 1 ? "" : "s", fmt::join(parts, ", "));
  std::vector<std::string> away;
  for (const HostCapacity& host : hosts) {
    if (!host.ready && !host.drained && away.size() < 5) {
      away.push_back(host.node);
    }
  }
  if (!away.empty()) {
    text += fmt::format("; not ready: {}", fmt::join(away, ", "));
  }
  const std::string drained = DescribeDrained(hosts);
  if (!drained.empty()) text += "; " + drained;
  return text;
}

}  // namespace

std::vector<int32_t> SilentGpus(const NodeReadings& readings) {
  std::vector<int32_t> silent;
  for (const GpuUsage& gpu : readings.gpus) {
    if (IsSilent(gpu)) silent.push_back(gpu.index);
  }
  return silent;
}

std::optional<std::vector<TaskPlacement>> PlaceGang(
    const JobSpec& spec, std::vector<HostCapacity> hosts) {
  std::vector<GangTask> tasks = TasksOf(spec);
  if (PlaceTasks(&tasks, hosts) != tasks.size()) return std::nullopt;
  std::vector<TaskPlacement> placement;
  for (GangTask& task : tasks) placement.push_back(std::move(task.placement));
  return placement;
}

ScheduleResult Schedule(std::vector<QueuedJob> queue,
                        std::vector<HostCapacity> hosts,
                        const SchedulerOptions& options) {
  std::stable_sort(queue.begin(), queue.end(),
                   [](const QueuedJob& a, const QueuedJob& b) {
                     if (a.job->spec.priority != b.job->spec.priority) {
                       return a.job->spec.priority > b.job->spec.priority;
                     }
                     if (a.job->create_time != b.job->create_time) {
                       return a.job->create_time < b.job->create_time;
                     }
                     return a.job->spec.name < b.job->spec.name;
                   });
  ScheduleResult result;
  const bool any_ready =
      std::any_of(hosts.begin(), hosts.end(),
                  [](const HostCapacity& host) { return host.ready; });
  const Job* blocked = nullptr;
  for (const QueuedJob& queued : queue) {
    const JobSpec& spec = queued.job->spec;
    if (!any_ready) {
      const std::string drained = DescribeDrained(hosts);
      result.waiting[spec.name] = {
          Reason::kNoNodes,
          hosts.empty()     ? "no worker daemon is registered"
          : drained.empty() ? "no worker daemon is ready now"
                            : "no worker daemon takes work now; " + drained};
      continue;
    }
    if (queued.backing_off) {
      result.waiting[spec.name] = {Reason::kBackoff, queued.job->cause.message};
      continue;
    }
    if (!queued.job->holds.empty()) {
      result.waiting[spec.name] = {
          Reason::kReleasing,
          fmt::format("its last generation is not gone yet on {}",
                      queued.job->holds.front().node)};
      continue;
    }
    if (blocked != nullptr) {
      result.waiting[spec.name] = {
          Reason::kBehindOthers,
          fmt::format("behind {}, which has waited long enough to go first",
                      blocked->spec.name)};
      continue;
    }
    auto placement = PlaceGang(spec, hosts);
    if (placement) {
      Occupy(spec, *placement, &hosts);
      result.placed.push_back({spec.name, *std::move(placement)});
      continue;
    }
    result.waiting[spec.name] = {Reason::kNoCapacity,
                                 DescribeShortage(spec, hosts)};
    // Waiting for a node to come back must not stop all others.
    if (queued.waited > options.ageing_limit &&
        PlaceGang(spec, Emptied(hosts))) {
      blocked = queued.job;
    }
  }
  return result;
}

Status CheckCanEverFit(const JobSpec& spec, std::vector<HostCapacity> hosts) {
  if (hosts.empty()) return OkStatus();
  hosts = Emptied(std::move(hosts));
  for (HostCapacity& host : hosts) host.ready = true;
  std::string text = TooLargeForAnyHost(spec, hosts);
  if (text.empty()) {
    std::vector<GangTask> tasks = TasksOf(spec);
    const size_t placed = PlaceTasks(&tasks, hosts);
    if (placed == tasks.size()) return OkStatus();
    text = fmt::format(
        "its {} tasks ({} in all) do not fit on {} nodes together, even when "
        "empty; the nearest that would fit is {} of them",
        tasks.size(), Describe(Sum(spec)), hosts.size(), placed);
  }
  return WithReason(
      FailedPrecondition("job {} can never run here: {}", spec.name, text),
      "NEVER_FITS");
}

}  // namespace lockstep
