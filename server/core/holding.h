// A job that holds: its known output directory, or the checkpoint that it would
// resume from, is not there. Pure; for lifecycle.cc and restart.cc.
//
// To begin from the start would throw its work away, and to fail would end it
// for a mount that comes back. So it waits in PLACING, holds no resources, uses
// up no try, and looks again: each look is a generation, which the nodes or the
// ranks refuse (OUTPUT_MISSING, NO_CHECKPOINT) or which goes on. A look that
// finds what the one before it found leaves nothing in the job's history.
//
// A person may end the wait with RestoreTo.
#ifndef LOCKSTEP_SERVER_CORE_HOLDING_H_
#define LOCKSTEP_SERVER_CORE_HOLDING_H_

#include <string>

#include "common/base/status.h"
#include "server/core/job_view.h"
#include "server/core/verdict.h"

namespace lockstep {

// OUTPUT_MISSING and NO_CHECKPOINT.
bool IsHoldReason(Reason reason);

// How long after look number `looks` (from 1) the next one comes: 1 s doubling
// to 30 s.
Duration LookBackoff(int32_t looks);

// The generation is gone everywhere, and its attempt is closed: the job holds.
// REQUIRES: failure.holds.
void EnterHold(Job* job, const Failure& failure, Time now);

// The nodes of the generation did not reach each other, which `lost` says: the
// job holds (CANNOT_FORM), and is placed anew after `wait`.
void HoldForming(Job* job, const std::string& lost, Duration wait, Time now);
// Of a job in PLACING: one that could not form for kFormingPatience waits in
// the queue like any other.
void LeaveForming(Job* job, Time now);
inline constexpr Duration kFormingPatience = std::chrono::minutes(10);

// Of a RUNNING job: ends the hold when this generation goes on: a program runs,
// the ranks of a native job have resumed.
void EndHold(Job* job, const JobView& view, Time now);

// `who` says what a job that holds resumes from. Its next generation begins as
// soon as it is placed; a look that is under way is stopped. From the start
// also means: in the directory that is there then, where the known one is
// missing. Nothing is deleted.
// FailedPrecondition: the job has ended or ends, does not hold (NOT_HOLDING),
// or is a program (NOT_NATIVE), which can only begin anew in another directory.
StatusOr<Job> RestoreTo(const Job& job, const RestoreTarget& target,
                        const std::string& who, Time now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_HOLDING_H_
