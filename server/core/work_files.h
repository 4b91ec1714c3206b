// Working directories of tasks: the nodes' reports on them, their location, and
// what a moved task leaves behind. Pure.
#ifndef LOCKSTEP_SERVER_CORE_WORK_FILES_H_
#define LOCKSTEP_SERVER_CORE_WORK_FILES_H_

#include <optional>
#include <vector>

#include "common/base/status.h"
#include "server/core/job.h"

namespace lockstep::server {

// Records what a stopped node reports about the directories of its own tasks,
// which have the indices `tasks`.
void TakeWork(Job* job, const std::vector<size_t>& tasks,
              const GangStatus& gang);

// Removes the names of files, which an ended attempt does not keep.
void ShortenWork(std::vector<TaskStatus>* tasks);

// Adds events about directories that stay on their old nodes and may not be
// empty, after `job` was placed on other nodes.
void NoteWorkLeftBehind(Job* job, Time now);

struct WorkSite {
  TaskType type = TaskType::kChief;
  int32_t index = 0;
  NodeName node;
};
// Returns the site of the directory of `rank`'s task: the node where the task
// last ran. NotFound: the job does not have this rank. FailedPrecondition: the
// job names its working directory itself, or the rank has not started yet.
StatusOr<WorkSite> WorkSiteOf(const Job& job, int32_t rank);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_WORK_FILES_H_
