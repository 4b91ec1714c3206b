// When waiting jobs are expected to start: the queue is played again at each
// time at which a running job is expected to end. Pure.
//
// A job that starts is expected to run for its limit of running time. One
// without a limit, or without an expected end, is taken to hold its resources
// for good, so a job that needs them has no expected start. Jobs end early and
// nodes come and go: it is a forecast, not a promise.
#ifndef LOCKSTEP_SERVER_CORE_EXPECTED_START_H_
#define LOCKSTEP_SERVER_CORE_EXPECTED_START_H_

#include <map>
#include <vector>

#include "server/core/job.h"
#include "server/core/placement.h"
#include "server/core/scheduler.h"

namespace lockstep::server {

struct ExpectedEnd {
  WallTime time{};
  // What is free then.
  std::vector<Hold> holds;
};

// `queue` as for Schedule; at most kMaxForecast jobs of it are looked at, the
// next ones. `hosts` are as they are now, with `ends` on them. A job that backs
// off has no expected start.
inline constexpr size_t kMaxForecast = 50;
std::map<JobName, WallTime> ExpectStarts(std::vector<QueuedJob> queue,
                                         std::vector<HostCapacity> hosts,
                                         std::vector<ExpectedEnd> ends,
                                         const SchedulerOptions& options,
                                         WallTime now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_EXPECTED_START_H_
