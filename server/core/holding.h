// A job holds while its known output directory, or the checkpoint that it would
// resume from, is missing. Pure; for lifecycle.cc and restart.cc.
//
// Starting over would discard its work, and failing would end it because of a
// mount that may come back. So the job waits in PLACING, holds no resources,
// uses up no try, and looks again. Each look is a generation, which the nodes
// or the ranks refuse (OUTPUT_MISSING, NO_CHECKPOINT) or which continues. A
// look with the same result as the one before leaves nothing in the job's
// history.
//
// A person may end the wait with RestoreTo.
#ifndef LOCKSTEP_SERVER_CORE_HOLDING_H_
#define LOCKSTEP_SERVER_CORE_HOLDING_H_

#include <string>

#include "common/base/status.h"
#include "server/core/job_view.h"
#include "server/core/verdict.h"

namespace lockstep::server {

// OUTPUT_MISSING and NO_CHECKPOINT.
bool IsHoldReason(Reason reason);

// Returns the wait between look number `looks` (from 1) and the next: 1 s,
// doubling up to 30 s.
Duration LookBackoff(int32_t looks);

// Lets the job hold.
// REQUIRES: failure.holds; the generation is gone everywhere, and its attempt
// is closed.
void EnterHold(Job* job, const Failure& failure, Time now);

// Lets the job hold (CANNOT_FORM) because its nodes did not reach each other,
// which the sentence `lost` describes. It is placed again after `wait`.
void HoldForming(Job* job, const std::string& lost, Duration wait, Time now);
// For a job in PLACING: after kFormingPatience without forming, it waits in the
// queue like any other job.
void LeaveForming(Job* job, Time now);
inline constexpr Duration kFormingPatience = std::chrono::minutes(10);

// For a RUNNING job: ends the hold when this generation continues, that is,
// when a program runs or the ranks of a native job have resumed.
void EndHold(Job* job, const JobView& view, Time now);

// Sets, for user `who`, what a job that holds resumes from. Its next generation
// begins as soon as it is placed; a look in progress is stopped. If the target
// is the start and the known directory is missing, the job uses the directory
// that exists then. Nothing is deleted.
// FailedPrecondition: the job has ended or ends, does not hold (NOT_HOLDING),
// or is a program (NOT_NATIVE), which can only begin anew in another directory.
StatusOr<Job> RestoreTo(const Job& job, const RestoreTarget& target,
                        const std::string& who, Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_HOLDING_H_
