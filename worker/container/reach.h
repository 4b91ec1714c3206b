// Whether a user may get at a directory, by asking the kernel as that user.
#ifndef LOCKSTEP_WORKER_CONTAINER_REACH_H_
#define LOCKSTEP_WORKER_CONTAINER_REACH_H_

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/container/container_engine.h"

namespace lockstep {

struct ReachedDirectory {
  std::string path;  // Without symbolic links.
  // Of stat(2): what the path was then.
  uint64_t device = 0;
  uint64_t inode = 0;
};

// An engine that is root mounts any path, also one below directories that are
// closed to the task's user: what it is told to mount must be in that user's
// reach. PermissionDenied names path and user; NotFound. Of the calling thread
// alone, and only for the time of the call, the file system's rights change;
// the daemon must be root, or that user itself. Blocks as long as the file
// system does.
StatusOr<ReachedDirectory> ReachAs(const ContainerUser& user,
                                   const std::string& path);
// The same on a thread of its own, which is left alone with a file system that
// hangs: DeadlineExceeded after `limit`.
StatusOr<ReachedDirectory> ReachWithin(const ContainerUser& user,
                                       const std::string& path, Duration limit);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CONTAINER_REACH_H_
