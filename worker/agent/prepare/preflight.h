// Checks that a gang can start on this host. Each refusal is a sentence for the
// job's owner, and its code tells whether a retry makes sense.
#ifndef LOCKSTEP_WORKER_AGENT_PREPARE_PREFLIGHT_H_
#define LOCKSTEP_WORKER_AGENT_PREPARE_PREFLIGHT_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/assignment.h"
#include "common/model/resources.h"
#include "worker/agent/host/disk_space.h"
#include "worker/agent/host/task_user.h"

namespace lockstep {

// Returns `sentence` as Unavailable if `cause` is a temporary problem of a file
// system, else as FailedPrecondition.
Status PreflightRefusal(const Status& cause, const std::string& sentence);

struct PreflightInput {
  const GangSpec* spec = nullptr;
  // PATH that argv[0] is looked up in, where the job's environment has none.
  std::string path;
  // Where relative programs are relative to without a working directory.
  std::string task_directory;
  // Absent: as the daemon.
  std::optional<TaskUser> user;
  // The GPUs of this host, and indices of those that other gangs hold.
  std::vector<Gpu> gpus;
  std::set<int32_t> gpus_in_use;
  // The daemon's directory, where logs and records are written; absent: not
  // known.
  std::string state_directory;
  std::optional<DiskSpace> disk;
  DiskFloor disk_floor;
  // The space of /dev/shm; absent: not known.
  std::optional<DiskSpace> shm;
};

// May block for as long as a file system does: not on the event loop.
// OK; FailedPrecondition with the sentence; or Unavailable with one about what
// passes by itself (a GPU that is still held, a full disk, a file server that
// does not answer). Makes the output directory where it is missing, as the
// ranks' user: what that user may not make is refused.
Status Preflight(FileSystem* files, const PreflightInput& input);

// The program that execvp would run: `name` itself if it has a slash, taken
// from `directory` where it is relative; else the first of `path` that is an
// executable file. NotFound, PermissionDenied.
StatusOr<std::string> FindProgram(const std::string& name,
                                  const std::string& path,
                                  const std::string& directory);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_PREFLIGHT_H_
