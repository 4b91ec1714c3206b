// What follows a failure: the gang again, one worker alone, or the end. Pure;
// for lifecycle.cc. Which failures are tried again: verdict.h.
//
// The gang restarts as a whole, on the nodes that it has where it may. In a
// job with parameter servers and `restart_worker_alone`, a worker whose process
// failed is started again alone, at its address, by the same rules and out of
// the same budget; its node's loss still restarts the gang. All ranks of its
// task go together. RankStatus.restarts counts their processes: it rises here
// first, and the node follows.
#ifndef LOCKSTEP_SERVER_CORE_RESTART_H_
#define LOCKSTEP_SERVER_CORE_RESTART_H_

#include <map>
#include <optional>
#include <utility>

#include "server/core/job_view.h"
#include "server/core/verdict.h"

namespace lockstep {

// Everything of the failed generation is gone: the next one begins, the job
// looks for places, or it ends.
void DecideAfterFailure(Job* job, const JobView& view, Time now);

// Of a RUNNING job: starts again alone those workers that failed and may.
// Returns the failure that the whole gang has to answer for; nullopt: none.
std::optional<Failure> TakeFailures(Job* job, const JobView& view, Time now);

using AwaitedSince = std::map<std::pair<int32_t, int32_t>, MonoTime>;

// Brings JobView::awaited_since up to `view`: a rank is awaited from when it is
// to be started again, on a node that is READY and has reported, until it has
// started. A node that is not heard of, and a coordinator that was not there,
// leave it its time. To be called before each decision.
void AwaitRestarts(const Job& job, const JobView& view, Time now,
                   AwaitedSince* since);

// The workers started again alone that are not there after `timeout`.
std::optional<Cause> LateRestart(const Job& job, const JobView& view,
                                 Duration timeout, Time now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_RESTART_H_
