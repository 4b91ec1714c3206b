// Looks into the working directory of a task: what it holds at the end, lists
// of a folder, and parts of a file for whoever fetches it.
//
// The directory is the task's user's, who may put anything there and change it
// at any moment: nothing outside of it is opened, no link is followed, and only
// regular files are read.
#ifndef LOCKSTEP_WORKER_AGENT_WORK_WORK_FILES_H_
#define LOCKSTEP_WORKER_AGENT_WORK_WORK_FILES_H_

#include <functional>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/model/job.h"
#include "common/wire/worker_wire.h"
#include "worker/agent/host/task_user.h"

namespace lockstep {

struct WalkLimits {
  // Folders below the directory; things looked at; time.
  int depth = 16;
  size_t entries = 20'000;
  Duration time = std::chrono::milliseconds(500);
};

// Regular files and folders; links and others are passed over. Empty where
// `directory` cannot be read. Blocks as long as its file system does; `now` is
// asked between its calls.
WorkDirectory DescribeWork(const std::string& directory,
                           const WalkLimits& limits,
                           const std::function<MonoTime()>& now);

// Answers for the task whose directory is `directory`, with the rights of
// `user` where the daemon is root. Statuses of the answer:
//   NotFound            there is no such file or folder, or no such directory
//   InvalidArgument     the path leads out, or is neither file nor folder
//   PermissionDenied    the task's user may not read it
//   FailedPrecondition  this kernel cannot open a path beneath a directory
FileAnswer AnswerQuery(const std::string& directory, const FileQuery& query,
                       const std::optional<TaskUser>& user,
                       const WalkLimits& limits,
                       const std::function<MonoTime()>& now);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_WORK_WORK_FILES_H_
