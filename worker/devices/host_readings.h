// Readings of this host beyond common/os/procfs.h: disks, InfiniBand, pressure.
// Units are bytes, seconds, and counts since boot. Parsers are pure; readers
// take the root directory, so tests can pass their own. Safe from any thread.
#ifndef LOCKSTEP_WORKER_DEVICES_HOST_READINGS_H_
#define LOCKSTEP_WORKER_DEVICES_HOST_READINGS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/os/procfs.h"

namespace lockstep::worker::devices {

// /proc/diskstats (Documentation/admin-guide/iostats.rst).
struct DiskCounters {
  uint64_t reads = 0;
  uint64_t read_bytes = 0;
  uint64_t writes = 0;
  uint64_t written_bytes = 0;
  double io_seconds = 0;
};
// By device, including partitions. Skips malformed lines.
std::map<std::string, DiskCounters> ParseDiskStats(
    std::string_view proc_diskstats);

// Parses "some ... total=" of /proc/pressure/*
// (Documentation/accounting/psi.rst): seconds in which at least one task
// waited.
std::optional<double> ParsePressure(std::string_view proc_pressure);

// "cpuN" lines of /proc/stat, by N.
std::map<int, CpuSeconds> ParseCpus(std::string_view proc_stat,
                                    double ticks_per_second);

struct PortCounters {
  uint64_t receive_bytes = 0;
  uint64_t transmit_bytes = 0;
};

struct FileSystemUse {
  uint64_t size_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t available_bytes = 0;  // To users that are not root.
};

struct MountPoint {
  std::string device;
  std::string path;
  std::string type;
};
// Parses /proc/self/mounts. Returns mounts on local disks, once per device;
// network file systems may hang.
std::vector<MountPoint> ParseDiskMounts(std::string_view proc_mounts);

struct HostReadings {
  HostMetrics base;
  // Whole disks.
  std::map<std::string, DiskCounters> disks;
  // By "mlx5_0/1".
  std::map<std::string, PortCounters> infiniband;
  // By "cpu", "memory", "io"; empty if the kernel does not count it.
  std::map<std::string, double> pressure;
  std::optional<uint64_t> oom_kills;
};
// `root` is "" or a directory with proc/ and sys/. Fails like ReadHostMetrics;
// omits other missing values. `base` is always of this host.
StatusOr<HostReadings> ReadHostReadings(const std::string& root = "");

// Errors such as NotFound, by errno.
StatusOr<FileSystemUse> ReadFileSystemUse(const std::string& path);

// Returns whether jobs' traffic goes through the device: not a loopback, a
// bridge or a container's end. Pure.
bool IsHostNetworkDevice(std::string_view name);

}  // namespace lockstep::worker::devices

#endif  // LOCKSTEP_WORKER_DEVICES_HOST_READINGS_H_
