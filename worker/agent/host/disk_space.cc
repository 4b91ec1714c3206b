#include "worker/agent/host/disk_space.h"

#include <algorithm>

#include "worker/devices/host_readings.h"

namespace lockstep::worker::agent {

StatusOr<DiskSpace> ReadDiskSpace(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const devices::FileSystemUse use,
                            devices::ReadFileSystemUse(path));
  return DiskSpace{use.size_bytes, use.available_bytes};
}

uint64_t BytesOf(const DiskFloor& floor, uint64_t size) {
  return std::min(floor.bytes, static_cast<uint64_t>(
                                   floor.part * static_cast<double>(size)));
}

Status CheckDiskSpace(const std::string& path, const DiskSpace& space,
                      const DiskFloor& floor) {
  const uint64_t needed = BytesOf(floor, space.size);
  if (space.free >= needed) return OkStatus();
  constexpr double kMiB = 1 << 20;
  return Unavailable(
      "the disk of {} is nearly full: {:.0f} MiB are free, and a start needs "
      "{:.0f} MiB",
      path, static_cast<double>(space.free) / kMiB,
      static_cast<double>(needed) / kMiB);
}

}  // namespace lockstep::worker::agent
