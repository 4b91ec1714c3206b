#include "server/core/expected_start.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "server/core/host_fit.h"
#include "server/core/place_gang.h"
#include "server/core/placement_text.h"

namespace lockstep::server {
namespace {

// The queue is scheduled at most so often.
constexpr int kMaxRounds = 32;

HostCapacity* Find(const NodeName& node, std::vector<HostCapacity>* hosts) {
  const auto host =
      std::find_if(hosts->begin(), hosts->end(),
                   [&](const HostCapacity& h) { return h.node == node; });
  return host == hosts->end() ? nullptr : &*host;
}

std::vector<Hold> HoldsOf(const JobSpec& spec,
                          const std::vector<TaskPlacement>& placement) {
  std::vector<Hold> holds;
  for (const TaskPlacement& place : placement) {
    Hold hold;
    hold.node = place.node;
    hold.gpus = place.gpus;
    for (const RoleSpec& role : spec.roles) {
      if (role.type == place.type) hold.resources = role.resources;
    }
    holds.push_back(std::move(hold));
  }
  return holds;
}

void Occupy(const std::vector<Hold>& holds, std::vector<HostCapacity>* hosts) {
  for (const Hold& hold : holds) {
    HostCapacity* const host = Find(hold.node, hosts);
    if (host == nullptr) continue;
    host->allocated.cpus += hold.resources.cpus;
    host->allocated.memory_bytes += hold.resources.memory_bytes;
    host->allocated.gpus += hold.resources.gpus;
    host->allocated_gpus.insert(host->allocated_gpus.end(), hold.gpus.begin(),
                                hold.gpus.end());
  }
}

void Free(const std::vector<Hold>& holds, std::vector<HostCapacity>* hosts) {
  for (const Hold& hold : holds) {
    HostCapacity* const host = Find(hold.node, hosts);
    if (host == nullptr) continue;
    host->allocated.cpus =
        std::max(0.0, host->allocated.cpus - hold.resources.cpus);
    host->allocated.memory_bytes -= hold.resources.memory_bytes;
    host->allocated.gpus -= hold.resources.gpus;
    for (const int32_t gpu : hold.gpus) {
      std::erase(host->allocated_gpus, gpu);
    }
  }
}

// What is free on all hosts together: less than that does not fit, which costs
// far less to find out than a placement.
Resources FreeOn(const std::vector<HostCapacity>& hosts) {
  Resources free;
  for (const HostCapacity& host : hosts) {
    if (!host.ready) continue;
    free.cpus += host.capacity.cpus - host.allocated.cpus;
    free.memory_bytes +=
        host.capacity.memory_bytes - host.allocated.memory_bytes;
    free.gpus += static_cast<int32_t>(host.gpus.size()) -
                 static_cast<int32_t>(host.allocated_gpus.size());
  }
  return free;
}

bool MayFit(const JobSpec& spec, const Resources& free) {
  constexpr double kRounding = 1e-6;
  const Resources sum = SumOf(spec);
  return sum.cpus <= free.cpus + kRounding &&
         sum.memory_bytes <= free.memory_bytes && sum.gpus <= free.gpus;
}

std::optional<std::vector<TaskPlacement>> PlaceNow(
    const Job& job, const std::vector<HostCapacity>& hosts) {
  if (auto again = PlaceAgain(job, hosts)) return again;
  size_t placed = 0;
  if (job.spec.pool.empty()) return PlaceAnew(job.spec, hosts, &placed);
  return PlaceAnew(job.spec, HostsOfPool(job.spec.pool, hosts), &placed);
}

// The jobs of `queue` that can be placed now, with their places, which are
// taken. The rules are those of Schedule, without its reasons, which cost more
// than the places.
std::map<JobName, std::vector<Hold>> PlaceQueue(
    const std::vector<QueuedJob>& queue, Duration ageing_limit,
    std::vector<HostCapacity>* hosts) {
  std::map<JobName, std::vector<Hold>> placed;
  // Pools in which no job passes an older one.
  std::set<std::string> blocked;
  const JobSpec* refused = nullptr;
  Resources free = FreeOn(*hosts);
  for (const QueuedJob& queued : queue) {
    const JobSpec& spec = queued.job->spec;
    if (queued.backing_off || !queued.job->holds.empty() ||
        blocked.contains("") || blocked.contains(spec.pool) ||
        (spec.pool.empty() && !blocked.empty())) {
      continue;
    }
    if (refused != nullptr && refused->pool == spec.pool &&
        refused->roles == spec.roles) {
      continue;
    }
    const auto placement =
        MayFit(spec, free) ? PlaceNow(*queued.job, *hosts) : std::nullopt;
    if (placement) {
      std::vector<Hold> holds = HoldsOf(spec, *placement);
      Occupy(holds, hosts);
      free = FreeOn(*hosts);
      placed[spec.name] = std::move(holds);
      refused = nullptr;
      continue;
    }
    refused = &spec;
    if (queued.waited > ageing_limit) blocked.insert(spec.pool);
  }
  return placed;
}

}  // namespace

std::map<JobName, WallTime> ExpectStarts(std::vector<QueuedJob> queue,
                                         std::vector<HostCapacity> hosts,
                                         std::vector<ExpectedEnd> ends,
                                         const SchedulerOptions& options,
                                         WallTime now) {
  std::sort(queue.begin(), queue.end(),
            [](const QueuedJob& a, const QueuedJob& b) {
              return PlaceInQueue(*a.job) < PlaceInQueue(*b.job);
            });
  if (queue.size() > kMaxForecast) queue.resize(kMaxForecast);
  std::multimap<WallTime, std::vector<Hold>> later;
  for (ExpectedEnd& end : ends) {
    // One that is late ends soon.
    later.emplace(std::max(now, end.time), std::move(end.holds));
  }
  std::map<JobName, WallTime> starts;
  WallTime time = now;
  for (int round = 0; round < kMaxRounds && !queue.empty(); ++round) {
    auto placed = PlaceQueue(queue, options.ageing_limit, &hosts);
    std::erase_if(queue, [&](const QueuedJob& queued) {
      const auto place = placed.find(queued.job->spec.name);
      if (place == placed.end()) return false;
      starts[place->first] = time;
      if (const auto& limit = queued.job->spec.max_running_time) {
        later.emplace(time + *limit, std::move(place->second));
      }
      return true;
    });
    if (later.empty()) break;
    const WallTime next = later.begin()->first;
    while (!later.empty() && later.begin()->first == next) {
      Free(later.begin()->second, &hosts);
      later.erase(later.begin());
    }
    for (QueuedJob& queued : queue) queued.waited += next - time;
    time = next;
  }
  return starts;
}

}  // namespace lockstep::server
