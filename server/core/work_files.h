// Working directories of tasks: what nodes report of them, where they are, and
// what a task that moves leaves behind. Pure.
#ifndef LOCKSTEP_SERVER_CORE_WORK_FILES_H_
#define LOCKSTEP_SERVER_CORE_WORK_FILES_H_

#include <optional>
#include <vector>

#include "common/base/status.h"
#include "server/core/job.h"

namespace lockstep {

// Takes over what a node that has stopped says of the directories of `tasks`,
// which are the indices of its own.
void TakeWork(Job* job, const std::vector<size_t>& tasks,
              const GangStatus& gang);

// What an ended attempt keeps of it: no names of files.
void ShortenWork(std::vector<TaskStatus>* tasks);

// `job` was just placed, its tasks were on other nodes before: events about
// directories that stay where they were and may not be empty.
void NoteWorkLeftBehind(Job* job, Time now);

struct WorkSite {
  TaskType type = TaskType::kChief;
  int32_t index = 0;
  NodeName node;
};
// Where the directory of the task of `rank` is: on the node where that task
// last ran. NotFound: the job has no such rank. FailedPrecondition: the job
// names its working directory itself, or the rank has not been started yet.
StatusOr<WorkSite> WorkSiteOf(const Job& job, int32_t rank);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_WORK_FILES_H_
