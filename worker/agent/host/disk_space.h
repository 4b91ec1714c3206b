// The free space of a file system, and how much of it must stay free.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_DISK_SPACE_H_
#define LOCKSTEP_WORKER_AGENT_HOST_DISK_SPACE_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace lockstep::worker::agent {

// Bytes; `free` is what a user who is not root may still write.
struct DiskSpace {
  uint64_t size = 0;
  uint64_t free = 0;
};

// Reads the space of the file system that holds `path`.
StatusOr<DiskSpace> ReadDiskSpace(const std::string& path);

// Space that must stay free: the smaller of the two.
struct DiskFloor {
  uint64_t bytes = uint64_t{1} << 30;
  double part = 0.05;
};
uint64_t BytesOf(const DiskFloor& floor, uint64_t size);

// Returns Unavailable with a sentence if less than `floor` is free.
Status CheckDiskSpace(const std::string& path, const DiskSpace& space,
                      const DiskFloor& floor);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_DISK_SPACE_H_
