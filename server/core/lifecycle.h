// The life of a job, as one pure function of what is stored, what the nodes
// report and the time.
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
//   PLACING    had a generation, needs hosts again.
//   PREPARING  every node fetches what it lacks, reserves ports and GPUs and
//              checks the program; when all have, the cluster spec is made.
//              Native jobs go on to FORMING. Program jobs stay until every exec
//              succeeded, then run.
//   FORMING    ranks start and form the communicator; all joined: RUNNING.
//   RUNNING    until the job has succeeded (ending.h), or any rank fails that
//              is not started again alone (restart.h).
//   failing    not a state of its own: the generation is told to stop; when no
//              node has anything of it the verdict is given over all exits.
//              Until then it keeps its places, and may go on in them.
//   FINISHING  durable: every rank is told to end; the state becomes final,
//              and the last hold goes, when each node acknowledged or is lost.
//              Is a rank heard of meanwhile that failed before the success, the
//              success is taken back: failing, and when all is gone PLACING or
//              FAILED. The other way round, a failing job whose chief turns out
//              to have ended before the failure goes to FINISHING(SUCCEEDED).
//
// A drained node with a grace is left: a native job with an output directory is
// told to save and stop at an agreed step, others are stopped with that grace;
// either way the generation ends, costs nothing, and the next is placed
// elsewhere. A frozen rank (stall.h) and a node that is lost or forgotten end
// a generation as a failure.
//
// Where what the job would resume from is not there, it holds in PLACING
// (holding.h). So does a job whose nodes did not reach each other
// (CANNOT_FORM): it is placed anew, not on both of them, at the latest after
// ten minutes as one of the queue.
//
// A cancel, maxWaitTime (until the first RUNNING) and maxRunningTime (from it)
// lead from any of them to FINISHING(CANCELLED); where nothing is held, to
// CANCELLED.
//
// Callers commit the returned job before anybody hears of it.
#ifndef LOCKSTEP_SERVER_CORE_LIFECYCLE_H_
#define LOCKSTEP_SERVER_CORE_LIFECYCLE_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/core/job.h"
#include "server/core/job_view.h"
#include "server/core/placement.h"

namespace lockstep {

// The job after everything in `view` was taken in; equal to `job` when nothing
// is to be done. Call again until nothing changes.
Job Decide(const Job& job, const JobView& view,
           const LifecycleTimeouts& timeouts, Time now);

// QUEUED or PLACING -> PREPARING of a new generation.
// REQUIRES: `placement` has every task of the spec, in rank order.
Job Place(const Job& job, const std::vector<TaskPlacement>& placement,
          Time now);

// A new job, QUEUED.
Job NewJob(JobSpec spec, std::string uid, std::string owner, Time now);

// A person wants it to end. Idempotent; a final job stays as it is.
Job Cancel(const Job& job, const std::string& who, Time now);

// All ranks should save at the same coming step.
// FailedPrecondition: program job, no output directory, or not RUNNING.
StatusOr<Job> AddCheckpointDirective(const Job& job, Time now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_LIFECYCLE_H_
