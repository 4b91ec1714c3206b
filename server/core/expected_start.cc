#include "server/core/expected_start.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/core/place_gang.h"

namespace lockstep::server {
namespace {

// The queue is scheduled at most so often.
constexpr int kMaxRounds = 32;

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
      GiveBack(later.begin()->second, &hosts);
      later.erase(later.begin());
    }
    for (QueuedJob& queued : queue) queued.waited += next - time;
    time = next;
  }
  return starts;
}

}  // namespace lockstep::server
