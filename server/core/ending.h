// When a job has succeeded, and what becomes of ranks that still run then.
// Pure; for lifecycle.cc and assignments.cc.
//
// The group of a job is its chief and its workers. With EndWith::kAll the job
// has succeeded when every rank of the group has exited with 0. With
// EndWith::kChief the exit of the first rank of the first task decides; what
// other ranks do after it changes nothing, and is recorded as events. Parameter
// servers and evaluators never decide.
//
// Before and after are by the corrected times of the exits (clock_offset.h),
// in whatever order the news of them come: a rank that failed by itself before
// the chief's end is a failed attempt, also when that is heard of later. What
// blames a peer (verdict.h) is not: the chief closes its connections before it
// has ended.
#ifndef LOCKSTEP_SERVER_CORE_ENDING_H_
#define LOCKSTEP_SERVER_CORE_ENDING_H_

#include <optional>

#include "server/core/job.h"
#include "server/core/job_places.h"
#include "server/core/verdict.h"

namespace lockstep {

// Whether the current generation has done the job's work.
bool HasSucceeded(const Job& job);

// Of a job that ends with its chief, which has exited with 0: the first rank
// that failed by itself before that. nullopt: none did, that is known.
std::optional<Failure> FailureBeforeTheEnd(const Job& job);

// Of a RUNNING job that ends with its chief and is failing because of a rank:
// the chief had exited with 0 before any rank failed.
bool EndedBeforeItFailed(const Job& job);

// Whether the job no longer needs `node`: it has tasks there, and all of their
// ranks are of the group and have exited with 0. `places` are the job's.
bool IsDoneOn(const Job& job, const JobPlaces& places, const NodeName& node);

// How long ranks of the group may run on after the success; 0: they are stopped
// at once.
Duration GraceAfterSuccess(const JobSpec& spec);
// Whether they may still, `since` the success: not after a cancel, nor when
// the job's max_running_time is over.
bool MayRunOn(const Job& job, Duration since, WallTime now);

// An event for a job that runs on although some of its ranks exited with 0 a
// minute ago or more: which it waits for. Once.
void NoteWaiting(Job* job, Time now);
// Events for the start of FINISHING after a success: which ranks still run, and
// what becomes of them.
void NoteStillRunning(Job* job, Time now);
// Events for its end: which ranks failed after the success by themselves, and
// which were stopped, each with its exit.
void NoteHowTheyEnded(Job* job, Time now);
// The event for a gang that restarts although some of its ranks had exited with
// 0.
void NoteStartedAnew(Job* job, Time now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_ENDING_H_
