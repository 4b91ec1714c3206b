// The part that a task's role plays in a job's end and in restarts. Pure.
//
// The group of a job is its chief and its workers. Parameter servers and
// evaluators are not part of it.
#ifndef LOCKSTEP_SERVER_CORE_JOB_ROLES_H_
#define LOCKSTEP_SERVER_CORE_JOB_ROLES_H_

#include "server/core/job.h"

namespace lockstep::server {

bool IsOfGroup(TaskType type);
// Returns null if the job has no role of this type.
const RoleSpec* RoleOf(const Job& job, TaskType type);
bool HasParameterServers(const JobSpec& spec);

// Returns the rule for a spec that names none: kChief with parameter servers,
// because their clients in TensorFlow never exit by themselves; otherwise kAll.
EndWith DefaultEndWith(const JobSpec& spec);

// Whether `task`, which is one of job.tasks, restarts alone when it fails
// (restart.h).
bool MayRestartAlone(const Job& job, const TaskStatus& task);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_JOB_ROLES_H_
