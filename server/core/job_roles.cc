#include "server/core/job_roles.h"

#include <algorithm>

namespace lockstep::server {

bool IsOfGroup(TaskType type) {
  return type == TaskType::kChief || type == TaskType::kWorker;
}

const RoleSpec* RoleOf(const Job& job, TaskType type) {
  for (const RoleSpec& role : job.spec.roles) {
    if (role.type == type) return &role;
  }
  return nullptr;
}

bool HasParameterServers(const JobSpec& spec) {
  return std::any_of(
      spec.roles.begin(), spec.roles.end(),
      [](const RoleSpec& role) { return role.type == TaskType::kPs; });
}

EndWith DefaultEndWith(const JobSpec& spec) {
  return HasParameterServers(spec) ? EndWith::kChief : EndWith::kAll;
}

bool MayRestartAlone(const Job& job, const TaskStatus& task) {
  const bool has_ps =
      std::any_of(job.tasks.begin(), job.tasks.end(),
                  [](const TaskStatus& t) { return t.type == TaskType::kPs; });
  return job.spec.restart_worker_alone && has_ps &&
         job.spec.kind == JobKind::kProgram && task.type == TaskType::kWorker &&
         &task != &job.tasks.front();
}

}  // namespace lockstep::server
