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

namespace lockstep::worker::agent {

// Returns `sentence` as Unavailable if `cause` is a temporary problem of a file
// system, else as FailedPrecondition.
Status PreflightRefusal(const Status& cause, const std::string& sentence);

struct PreflightInput {
  const GangSpec* spec = nullptr;
  // PATH for argv[0] if the job's environment has none.
  std::string path;
  // Base of relative programs without a working directory.
  std::string task_directory;
  // Absent: as the daemon.
  std::optional<TaskUser> user;
  // The GPUs of this host, and indices of those in use by other gangs.
  std::vector<Gpu> gpus;
  std::set<int32_t> gpus_in_use;
  // The daemon's directory for logs and records; absent: unknown.
  std::string state_directory;
  std::optional<DiskSpace> disk;
  DiskFloor disk_floor;
  // The space of /dev/shm; absent: not known.
  std::optional<DiskSpace> shm;
};

// May block for as long as a file system does: do not call it on the event
// loop. Returns OK; FailedPrecondition with a sentence; or Unavailable for a
// temporary problem (a GPU in use, a full disk, a file server that does not
// answer). Creates a missing output directory as the ranks' user, and refuses
// it if that user may not.
Status Preflight(FileSystem* files, const PreflightInput& input);

// Returns the program that execvp would run: `name` itself if it has a slash,
// relative to `directory`; else the first executable file in `path`. NotFound,
// PermissionDenied.
StatusOr<std::string> FindProgram(const std::string& name,
                                  const std::string& path,
                                  const std::string& directory);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_PREFLIGHT_H_
