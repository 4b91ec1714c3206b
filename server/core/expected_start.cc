#include "server/core/expected_start.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/core/place_gang.h"

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
  SchedulerOptions without_texts = options;
  without_texts.texts = false;
  std::map<JobName, WallTime> starts;
  WallTime time = now;
  for (int round = 0; round < kMaxRounds && !queue.empty(); ++round) {
    for (const auto& placed : Schedule(queue, hosts, without_texts).placed) {
      const auto queued = std::find_if(
          queue.begin(), queue.end(),
          [&](const QueuedJob& q) { return q.job->spec.name == placed.job; });
      const JobSpec& spec = queued->job->spec;
      Occupy(spec, placed.placement, &hosts);
      if (spec.max_running_time) {
        later.emplace(time + *spec.max_running_time,
                      HoldsOf(spec, placed.placement));
      }
      starts[placed.job] = time;
      queue.erase(queued);
    }
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
