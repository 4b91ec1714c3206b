// Steps that the rules of a job's life share. Pure; for lifecycle.cc and its
// like.
#ifndef LOCKSTEP_SERVER_CORE_TRANSITIONS_H_
#define LOCKSTEP_SERVER_CORE_TRANSITIONS_H_

#include "server/core/job.h"

namespace lockstep {

// FINISHING with what it ends in.
void Finish(Job* job, JobState outcome, Cause cause, int32_t exit_code,
            Time now);

// Stops the generation; what comes next is decided when it is gone everywhere.
void Fail(Job* job, Cause cause, Time now);

// What the generation wrote into the job's history goes.
void ForgetEvents(Job* job);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_TRANSITIONS_H_
