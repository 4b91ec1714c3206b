// Checks whether a user can reach a directory, with that user's rights.
#ifndef LOCKSTEP_WORKER_CONTAINER_REACH_H_
#define LOCKSTEP_WORKER_CONTAINER_REACH_H_

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/container/container_engine.h"

namespace lockstep::worker::container {

struct ReachedDirectory {
  std::string path;  // Without symbolic links.
  // From stat(2) at the check.
  uint64_t device = 0;
  uint64_t inode = 0;
};

// An engine that runs as root can mount any path, also below directories that
// are closed to the task's user. Therefore this checks that the user can reach
// the path. PermissionDenied names path and user; NotFound. Changes the file
// system rights of the calling thread during the call; the daemon must be root
// or that user. Blocks as long as the file system does.
StatusOr<ReachedDirectory> ReachAs(const ContainerUser& user,
                                   const std::string& path);
// Does the same on a thread of its own, which is abandoned if the file system
// hangs: DeadlineExceeded after `limit`.
StatusOr<ReachedDirectory> ReachWithin(const ContainerUser& user,
                                       const std::string& path, Duration limit);

}  // namespace lockstep::worker::container

#endif  // LOCKSTEP_WORKER_CONTAINER_REACH_H_
