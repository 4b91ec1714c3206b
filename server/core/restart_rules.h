// What follows a failure, in parts that the restart of a gang, of a worker
// alone (restart.h) and the replacement of ranks (recovery.h) share. Pure.
#ifndef LOCKSTEP_SERVER_CORE_RESTART_RULES_H_
#define LOCKSTEP_SERVER_CORE_RESTART_RULES_H_

#include "server/core/evidence.h"
#include "server/core/job_view.h"
#include "server/core/verdict.h"

namespace lockstep::server {

// RUNNING, or a revoked success (lifecycle.h).
bool WasRunning(const Job& job);

// Whether the job has come further since its last failure: a native job has
// committed a step, a rank of a program has run for long enough.
bool MadeProgress(const Job& job, const JobView& view, const Failure& failure,
                  Time now);

// Updates the counters that outlive a failure.
void Account(Job* job, const Failure& failure, const RestartPlan& plan,
             bool progress, Time now);

// Whether a new process of the rank alone may help: the failure asks for no
// restart of the gang, and is not fatal.
bool MayReplaceRank(const Failure& failure);

// True if `task` has a faulty GPU, which may have caused its failure.
bool HasBadGpu(const TaskStatus& task, const JobView& view);

// True if there is no evidence against the program: a node was lost, the
// network lost a peer, all ranks stalled in one all-reduce, the gang did not
// get ready in time although no rank ended by itself, or a node cools down
// because other jobs failed there, too.
bool IsWithoutEvidence(const Job& job, const JobView& view,
                       const Failure& failure, const GangEvidence& evidence);

// Whether the rank had failed when a recovery was decided that did not replace
// it (recovery.h), or has failed in the same way since, before it joined: it
// belongs to the failure that led to that recovery.
bool IsOfLastFailure(const Job& job, const RankStatus& rank);

// Takes the try back that the recovery used up: `failure`, which belongs to the
// same failure, uses it up.
void TakeBackTry(Job* job, const Failure& failure);

// Puts a new process in the place of the rank's last one. The node follows: it
// stops one that still runs.
void RestartRank(Job* job, const JobView& view, const NodeName& node,
                 RankStatus* rank, Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_RESTART_RULES_H_
