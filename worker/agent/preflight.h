// What is looked at before a gang is said to be prepared on this host. Each
// refusal is a sentence for the job's owner.
#ifndef LOCKSTEP_WORKER_AGENT_PREFLIGHT_H_
#define LOCKSTEP_WORKER_AGENT_PREFLIGHT_H_

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/assignment.h"
#include "common/model/resources.h"

namespace lockstep {

// Who the ranks run as. Numbers, since shims do not ask the name service.
struct TaskUser {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  std::string home;
};

struct PreflightInput {
  const GangSpec* spec = nullptr;
  // PATH that argv[0] is looked up in, where the job's environment has none.
  std::string path;
  // Where relative programs are relative to without a working directory.
  std::string task_directory;
  // Absent: as the daemon.
  std::optional<TaskUser> user;
  // Of this host, and indices that other gangs hold.
  std::vector<Gpu> gpus;
  std::set<int32_t> gpus_in_use;
};

// May block for as long as a file system does: not on the event loop.
// OK, or FailedPrecondition with the sentence. Makes the output directory
// where it is missing.
Status Preflight(FileSystem* files, const PreflightInput& input);

// The program that execvp would run: `name` itself if it has a slash, taken
// from `directory` where it is relative; else the first of `path` that is an
// executable file. NotFound, PermissionDenied.
StatusOr<std::string> FindProgram(const std::string& name,
                                  const std::string& path,
                                  const std::string& directory);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_PREFLIGHT_H_
