// The life of a job, as one pure function of the stored job, the reports of the
// nodes and the time.
//
//   QUEUED ----------> PLACING -> PREPARING(g) -> FORMING(g) -> RUNNING(g)
//     |                  ^  ^          |              |             |
//     |                  |  +--- [failing: g is stopped everywhere, then] ---+
//     |                  |             |              |             |
//     |                  +-------------+---- same hosts: PREPARING(g+1) <----+
//     v                                                             v
//   CANCELLED                    FINISHING(outcome) -> SUCCEEDED | FAILED |
//                                                      CANCELLED
//
//   QUEUED     waits for capacity; Place() moves it through PLACING to
//              PREPARING(g) in one decision.
//   PLACING    the job had a generation and needs hosts again.
//   PREPARING  every node fetches what it lacks, reserves ports and GPUs and
//              checks the program. When all nodes have done so, the cluster
//              spec is made. Native jobs go on to FORMING. Program jobs stay
//              until every exec succeeded, then run.
//   FORMING    ranks start and form the communicator. When all have joined,
//              the job is RUNNING.
//   RUNNING    lasts until the job has succeeded (ending.h), or a rank fails
//              that does not restart alone (restart.h) and is not replaced
//              while the others stay (recovery.h).
//   failing    is not a state of its own: the generation is being stopped. When
//              no node has anything of it, the verdict covers all exits. Until
//              then the job keeps its places, and may continue in them.
//   FINISHING  is durable: every rank is being ended. The state becomes final,
//              and the last hold is released, when each node has acknowledged
//              or is lost. If a report shows meanwhile that a rank failed
//              before the success, the success is revoked: the job is failing,
//              and goes to PLACING or FAILED when all ranks are gone. In turn,
//              a failing job whose chief ended before the failure goes to
//              FINISHING(SUCCEEDED).
//
// A job that can recover in place replaces a lost or a drained node if it can
// (replacing.h), and stays RUNNING.
//
// Otherwise a job leaves a drained node that has a grace. A native job with an
// output directory, and a program whose ranks have joined, saves and stops at
// an agreed step; other jobs are stopped with that grace. Either way the
// generation ends, uses up no try, and the next one is placed elsewhere. A
// frozen rank (stall.h) and a node that is lost or forgotten end a generation
// as a failure.
//
// A job holds in PLACING while the state that it would resume from is missing
// (holding.h). So does a job whose nodes did not reach each other
// (CANNOT_FORM): it is placed again, not on both of these nodes. After ten
// minutes at the latest it waits in the queue like any other job.
//
// A cancel, maxWaitTime (until the first RUNNING) and maxRunningTime (from then
// on) lead from any state to FINISHING(CANCELLED), or directly to CANCELLED if
// the job holds nothing.
//
// Callers commit the returned job before they publish it.
#ifndef LOCKSTEP_SERVER_CORE_LIFECYCLE_H_
#define LOCKSTEP_SERVER_CORE_LIFECYCLE_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/core/job.h"
#include "server/core/job_view.h"
#include "server/core/placement.h"

namespace lockstep::server {

// Returns the job after everything in `view` is applied. It equals `job` when
// nothing is left to do. Call it again until nothing changes.
Job Decide(const Job& job, const JobView& view,
           const LifecycleTimeouts& timeouts, Time now);

// QUEUED or PLACING -> PREPARING of a new generation.
// REQUIRES: `placement` has every task of the spec, or of a smaller size
// (rescale.h), in rank order.
Job Place(const Job& job, const std::vector<TaskPlacement>& placement,
          Time now);

// Returns a new job in QUEUED.
Job NewJob(JobSpec spec, std::string uid, std::string owner, Time now);

// Cancels the job for user `who`. Idempotent; a final job stays as it is.
Job Cancel(const Job& job, const std::string& who, Time now);

// Whether the job has run for longer than its max_running_time.
bool IsOverRunningTime(const Job& job, Time now);

// Asks all ranks to save at the same future step.
// FailedPrecondition: it is a native job without an output directory, it is not
// RUNNING, or it is a program of which a rank has not joined.
StatusOr<Job> AddCheckpointDirective(const Job& job, const JobView& view,
                                     Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_LIFECYCLE_H_
