// Reads the working directory of a task: its content at the end, lists of a
// folder, and parts of a file.
//
// The directory belongs to the task's user, who may change its content at any
// moment. Therefore nothing outside of it is opened, no link is followed, and
// only regular files are read.
#ifndef LOCKSTEP_WORKER_AGENT_WORK_WORK_FILES_H_
#define LOCKSTEP_WORKER_AGENT_WORK_WORK_FILES_H_

#include <functional>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/model/job.h"
#include "common/wire/worker_wire.h"
#include "worker/agent/host/task_user.h"

namespace lockstep::worker::agent {

struct WalkLimits {
  // Limits: directory depth, entries, and time.
  int depth = 16;
  size_t entries = 20'000;
  Duration time = std::chrono::milliseconds(500);
};

// Returns regular files and folders; skips links and others. Empty if
// `directory` cannot be read. Blocks as long as its file system does; calls
// `now` in between.
WorkDirectory DescribeWork(const std::string& directory,
                           const WalkLimits& limits,
                           const std::function<MonoTime()>& now);

// Answers for the task whose directory is `directory`, with the rights of
// `user` if the daemon is root. Statuses of the answer:
//   NotFound            the file, folder or directory does not exist
//   InvalidArgument     the path leads out, or is neither file nor folder
//   PermissionDenied    the task's user may not read it
//   FailedPrecondition  this kernel cannot open a path beneath a directory
FileAnswer AnswerQuery(const std::string& directory, const FileQuery& query,
                       const std::optional<TaskUser>& user,
                       const WalkLimits& limits,
                       const std::function<MonoTime()>& now);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_WORK_WORK_FILES_H_
