// Decides what follows a failure: the gang restarts, one worker restarts alone,
// or the job ends. Pure; for lifecycle.cc. verdict.h has the rules for retries.
// recovery.h has the native jobs whose lost ranks are replaced.
//
// The gang restarts as a whole, on its nodes if it may. In a job with parameter
// servers and `restart_worker_alone`, a worker whose process failed restarts
// alone, at its address, by the same rules and from the same budget; the loss
// of its node still restarts the gang. All ranks of its task restart together.
// RankStatus.restarts counts their processes: it increases here first, and the
// node follows.
#ifndef LOCKSTEP_SERVER_CORE_RESTART_H_
#define LOCKSTEP_SERVER_CORE_RESTART_H_

#include <map>
#include <optional>
#include <utility>

#include "server/core/job_view.h"
#include "server/core/verdict.h"

namespace lockstep::server {

// Starts the next generation, sends the job to PLACING, or ends it.
// REQUIRES: everything of the failed generation is gone.
void DecideAfterFailure(Job* job, const JobView& view, Time now);

// For a RUNNING job: restarts alone the failed workers that may. Returns the
// failure for which the whole gang must stop; nullopt if there is none.
std::optional<Failure> TakeFailures(Job* job, const JobView& view, Time now);

using AwaitedSince = std::map<std::pair<int32_t, int32_t>, MonoTime>;

// Updates JobView::awaited_since from `view`. A rank is awaited from the moment
// when it should restart, on a node that is READY and has reported, until it
// has started. Time in which its node is silent or the coordinator is down does
// not count. Call it before each decision.
void AwaitRestarts(const Job& job, const JobView& view, Time now,
                   AwaitedSince* since);

// Returns a cause if workers that restart alone have not started after
// `timeout`.
std::optional<Cause> LateRestart(const Job& job, const JobView& view,
                                 Duration timeout, Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_RESTART_H_
