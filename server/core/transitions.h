// Transitions that the parts of lifecycle.cc share. Pure.
#ifndef LOCKSTEP_SERVER_CORE_TRANSITIONS_H_
#define LOCKSTEP_SERVER_CORE_TRANSITIONS_H_

#include "server/core/job.h"

namespace lockstep::server {

// Enters FINISHING with the final state `outcome`.
void Finish(Job* job, JobState outcome, Cause cause, int32_t exit_code,
            Time now);

// Stops the generation. The next step is decided when it is gone everywhere.
void Fail(Job* job, Cause cause, Time now);

// Gives up all nodes that the job has beyond those of its tasks: replacements
// and spares.
void DropNewNodes(Job* job);
// The replacements alone. Those whose node was released stay, without a new
// node: what has stopped there does not come back.
void DropReplacements(Job* job);

// Removes the events of the current generation from the job's history.
void ForgetEvents(Job* job);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_TRANSITIONS_H_
