// Decides when a job has succeeded, and what happens to ranks that still run.
// Pure; for lifecycle.cc and assignments.cc.
//
// The group of a job is its chief and its workers. With EndWith::kAll the job
// has succeeded when every rank of the group has exited with 0. With
// EndWith::kChief the exit of the first rank of the first task decides; later
// exits of other ranks change nothing and are recorded as events. Parameter
// servers and evaluators never decide.
//
// The order of exits is that of their corrected times (clock_offset.h), not
// that in which the reports arrive. A rank that failed by itself before the
// chief's end makes the attempt fail, even if its report comes later. An exit
// that blames a peer (verdict.h) does not, because the chief closes its
// connections before its process ends.
#ifndef LOCKSTEP_SERVER_CORE_ENDING_H_
#define LOCKSTEP_SERVER_CORE_ENDING_H_

#include <optional>

#include "server/core/job.h"
#include "server/core/job_places.h"
#include "server/core/verdict.h"

namespace lockstep::server {

// Whether the current generation has done the job's work.
bool HasSucceeded(const Job& job);

// For a job that ends with its chief, which has exited with 0: returns the
// first rank that failed by itself before that; nullopt if no such rank is
// known.
std::optional<Failure> FailureBeforeTheEnd(const Job& job);

// Whether the chief had exited with 0 before any rank failed. For a RUNNING job
// that ends with its chief and is failing because of a rank.
bool EndedBeforeItFailed(const Job& job);

// Whether the job no longer needs `node`: it has tasks there, and all of their
// ranks are of the group and have exited with 0. `places` are the job's.
bool IsDoneOn(const Job& job, const JobPlaces& places, const NodeName& node);

// Returns how long ranks of the group may continue after the success; 0 if they
// are stopped at once.
Duration GraceAfterSuccess(const JobSpec& spec);
// Whether they may still run when the time `since` has passed after the
// success. False after a cancel, and when the job's max_running_time is over.
bool MayRunOn(const Job& job, Duration since, WallTime now);

// Adds, once, an event that names the ranks that the job waits for, if some of
// its ranks exited with 0 a minute ago or earlier.
void NoteWaiting(Job* job, Time now);
// Adds events at the start of FINISHING after a success: which ranks still run,
// and what happens to them.
void NoteStillRunning(Job* job, Time now);
// Adds events at the end of FINISHING: which ranks failed by themselves after
// the success, and which were stopped, each with its exit.
void NoteExits(Job* job, Time now);
// Adds an event if the gang restarts although some of its ranks exited with 0.
void NoteGangRestart(Job* job, Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_ENDING_H_
