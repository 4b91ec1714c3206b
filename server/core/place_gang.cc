#include "server/core/place_gang.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "server/core/evidence.h"
#include "server/core/host_fit.h"

namespace lockstep::server {
namespace {

struct GangTask {
  size_t order = 0;
  const RoleSpec* role = nullptr;
  TaskPlacement placement;
};

std::vector<GangTask> GangTasksOf(const JobSpec& spec) {
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

// The order in which tasks are placed: the hardest first. That depends on the
// scarce resource, so several orders are tried.
enum class HardestBy { kGpus, kCpus, kMemory };

void SortHardestFirst(HardestBy by, std::vector<GangTask*>* tasks) {
  const auto key = [by](const GangTask* task) {
    const Resources& r = task->role->resources;
    // GPUs of any type come after those of one type, which have fewer hosts.
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
  // Stable, so that the chief precedes its equals.
  std::stable_sort(
      tasks->begin(), tasks->end(),
      [&](const GangTask* a, const GangTask* b) { return key(a) > key(b); });
}

// The order in which a task tries hosts.
enum class HostsBy {
  // Most GPUs, then most cores, so that a gang uses few hosts.
  kMostGpus,
  kMostCpus,
  // Keeps tasks without GPUs away from GPU hosts.
  kFewestGpus,
};

void SortHosts(HostsBy by, std::vector<FreeHost*>* hosts) {
  std::sort(hosts->begin(), hosts->end(),
            [by](const FreeHost* a, const FreeHost* b) {
              const size_t gpus_a = a->gpus.size();
              const size_t gpus_b = b->gpus.size();
              if (by == HostsBy::kMostGpus && gpus_a != gpus_b) {
                return gpus_a > gpus_b;
              }
              if (by == HostsBy::kFewestGpus && gpus_a != gpus_b) {
                return gpus_a < gpus_b;
              }
              if (a->cpus != b->cpus) return a->cpus > b->cpus;
              if (gpus_a != gpus_b) return gpus_a < gpus_b;
              return a->host->node < b->host->node;
            });
}

// Returns the number of placed tasks; if that is all, it is a placement.
// `spare`: tasks without GPUs go where the fewest GPUs are free, even if the
// gang then uses more hosts.
size_t PlaceTasksBy(HardestBy by, bool spare, std::vector<GangTask>* tasks,
                    const std::vector<HostCapacity>& hosts) {
  std::vector<GangTask*> ordered;
  bool any_gpus = false;
  for (GangTask& task : *tasks) {
    ordered.push_back(&task);
    any_gpus = any_gpus || task.role->resources.gpus > 0;
  }
  std::vector<FreeHost> free;
  for (const HostCapacity& host : hosts) {
    if (host.ready) free.push_back(FreeOf(host));
  }
  // Sorted lazily, because the gang's own GPUs are not free.
  std::map<HostsBy, std::vector<FreeHost*>> orders;
  SortHardestFirst(by, &ordered);
  size_t placed = 0;
  // Nodes apart from a chosen one.
  std::set<NodeName> barred;
  for (GangTask* task : ordered) {
    const bool spares = spare && task->role->resources.gpus == 0;
    const HostsBy key = spares     ? HostsBy::kFewestGpus
                        : any_gpus ? HostsBy::kMostGpus
                                   : HostsBy::kMostCpus;
    const auto [order, first] = orders.try_emplace(key);
    if (first) {
      for (FreeHost& host : free) order->second.push_back(&host);
      SortHosts(key, &order->second);
    }
    for (FreeHost* host : order->second) {
      if (!Fits(*task->role, *host) || barred.contains(host->host->node)) {
        continue;
      }
      for (const auto& [node, why] : host->host->apart) barred.insert(node);
      task->placement.node = host->host->node;
      task->placement.gpus = Take(task->role->resources, host);
      ++placed;
      break;
    }
  }
  return placed;
}

size_t PlaceTasks(std::vector<GangTask>* tasks,
                  const std::vector<HostCapacity>& hosts) {
  const bool may_spare =
      std::any_of(hosts.begin(), hosts.end(),
                  [](const HostCapacity& host) { return !host.gpus.empty(); });
  size_t most = 0;
  for (const bool spare : {true, false}) {
    if (spare && !may_spare) continue;
    for (const HardestBy by :
         {HardestBy::kGpus, HardestBy::kCpus, HardestBy::kMemory}) {
      most = std::max(most, PlaceTasksBy(by, spare, tasks, hosts));
      if (most == tasks->size()) return most;
    }
  }
  return most;
}

// Returns the ready host that is apart from most other ready hosts, and one of
// those; null if there is none.
std::pair<const HostCapacity*, NodeName> FindApart(
    const std::vector<HostCapacity>& hosts) {
  std::set<NodeName> ready;
  for (const HostCapacity& host : hosts) {
    if (host.ready) ready.insert(host.node);
  }
  std::pair<const HostCapacity*, NodeName> found;
  size_t most = 0;
  for (const HostCapacity& host : hosts) {
    if (!host.ready || host.apart.empty()) continue;
    size_t count = 0;
    NodeName other;
    for (const auto& [node, why] : host.apart) {
      if (ready.contains(node) && ++count == 1) other = node;
    }
    if (count > most) {
      most = count;
      found = {&host, other};
    }
  }
  return found;
}

std::vector<HostCapacity> Without(std::vector<HostCapacity> hosts,
                                  const NodeName& node) {
  for (HostCapacity& host : hosts) {
    if (host.node == node) host.ready = false;
  }
  return hosts;
}

// As PlaceTasks. A gang that uses one host of a separated pair may fail
// although it would fit without it. So it is tried without either host,
// `*tries` times in all.
size_t PlaceTasksApart(std::vector<GangTask>* tasks,
                       const std::vector<HostCapacity>& hosts, int* tries) {
  size_t most = PlaceTasks(tasks, hosts);
  if (most == tasks->size()) return most;
  const auto [host, other] = FindApart(hosts);
  if (host == nullptr) return most;
  for (const NodeName& left_out : {host->node, other}) {
    if (--*tries < 0) break;
    most =
        std::max(most, PlaceTasksApart(tasks, Without(hosts, left_out), tries));
    if (most == tasks->size()) break;
  }
  return most;
}

std::vector<TaskPlacement> PlacementOf(std::vector<GangTask> tasks) {
  std::vector<TaskPlacement> placement;
  for (GangTask& task : tasks) placement.push_back(std::move(task.placement));
  return placement;
}

// True if a node's report or loss ended its generation. The gang then avoids
// the place unless nothing else fits.
bool IsPlacementFault(Reason reason) {
  return reason == Reason::kNoCapacity || reason == Reason::kPrepareRefused ||
         reason == Reason::kOutputNotShared ||
         reason == Reason::kOutputMissing ||
         reason == Reason::kPrepareTimeout || reason == Reason::kFormTimeout ||
         reason == Reason::kNodeLost || reason == Reason::kNodeDrained ||
         reason == Reason::kStalled;
}

}  // namespace

std::optional<std::vector<TaskPlacement>> PlaceAnew(
    const JobSpec& spec, const std::vector<HostCapacity>& hosts,
    size_t* placed) {
  std::vector<GangTask> tasks = GangTasksOf(spec);
  int tries = 64;
  *placed = PlaceTasksApart(&tasks, hosts, &tries);
  if (*placed != tasks.size()) return std::nullopt;
  return PlacementOf(std::move(tasks));
}

void Occupy(const JobSpec& spec, const std::vector<TaskPlacement>& placement,
            std::vector<HostCapacity>* hosts) {
  for (const TaskPlacement& place : placement) {
    for (HostCapacity& host : *hosts) {
      if (host.node != place.node) continue;
      Holder& holder = host.holders.emplace_back(Holder{spec.name, {}});
      for (const RoleSpec& role : spec.roles) {
        if (role.type != place.type) continue;
        holder.resources = role.resources;
        host.allocated.cpus += role.resources.cpus;
        host.allocated.memory_bytes += role.resources.memory_bytes;
        host.allocated.gpus += role.resources.gpus;
      }
      host.allocated_gpus.insert(host.allocated_gpus.end(), place.gpus.begin(),
                                 place.gpus.end());
    }
  }
}

void GiveBack(const std::vector<Hold>& holds,
              std::vector<HostCapacity>* hosts) {
  for (const Hold& hold : holds) {
    const auto host = std::find_if(
        hosts->begin(), hosts->end(),
        [&](const HostCapacity& h) { return h.node == hold.node; });
    if (host == hosts->end()) continue;
    host->allocated.cpus =
        std::max(0.0, host->allocated.cpus - hold.resources.cpus);
    host->allocated.memory_bytes -= hold.resources.memory_bytes;
    host->allocated.gpus -= hold.resources.gpus;
    for (const int32_t gpu : hold.gpus) {
      std::erase(host->allocated_gpus, gpu);
    }
  }
}

std::vector<HostCapacity> Emptied(std::vector<HostCapacity> hosts) {
  for (HostCapacity& host : hosts) {
    host.allocated = {};
    host.allocated_gpus.clear();
    host.holders.clear();
    host.bad_gpus.clear();
  }
  return hosts;
}

std::vector<HostCapacity> Forgiven(std::vector<HostCapacity> hosts) {
  for (HostCapacity& host : hosts) {
    host.ready = host.ready || !host.cooling.empty();
    host.apart.clear();
  }
  return hosts;
}

std::optional<std::vector<TaskPlacement>> PlaceAgain(
    const Job& job, const JobSpec& spec,
    const std::vector<HostCapacity>& hosts) {
  std::vector<GangTask> tasks = GangTasksOf(spec);
  if (job.tasks.size() != tasks.size() || job.attempts.empty() ||
      IsPlacementFault(job.attempts.back().end_cause.reason) ||
      KilledTwiceOn(job)) {
    return std::nullopt;
  }
  const std::set<NodeName> before = NodesOf(job);
  for (const HostCapacity& host : hosts) {
    if (!before.contains(host.node)) continue;
    for (const auto& [node, why] : host.apart) {
      if (before.contains(node)) return std::nullopt;
    }
  }
  std::map<NodeName, FreeHost> free;
  for (const HostCapacity& host : hosts) {
    if (host.ready) free[host.node] = FreeOf(host);
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    const TaskStatus& last = job.tasks[i];
    const auto host = free.find(last.node);
    if (host == free.end() || !Fits(*tasks[i].role, host->second)) {
      return std::nullopt;
    }
    std::vector<const Gpu*>& gpus = host->second.gpus;
    std::stable_partition(gpus.begin(), gpus.end(), [&](const Gpu* gpu) {
      return std::find(last.gpus.begin(), last.gpus.end(), gpu->index) !=
             last.gpus.end();
    });
    tasks[i].placement.node = last.node;
    tasks[i].placement.gpus = Take(tasks[i].role->resources, &host->second);
  }
  return PlacementOf(std::move(tasks));
}

std::optional<std::vector<TaskPlacement>> PlaceElsewhere(
    const Job& job, const JobSpec& spec, std::vector<HostCapacity> hosts) {
  const std::optional<NodeName> killer = KilledTwiceOn(job);
  if (!killer) return std::nullopt;
  std::erase_if(hosts,
                [&](const HostCapacity& host) { return host.node == *killer; });
  size_t placed = 0;
  return PlaceAnew(spec, hosts, &placed);
}

}  // namespace lockstep::server
