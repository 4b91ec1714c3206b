// Capacity of this host that a worker daemon may offer.
#ifndef LOCKSTEP_WORKER_DEVICES_HOST_CAPACITY_H_
#define LOCKSTEP_WORKER_DEVICES_HOST_CAPACITY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep::worker::devices {

struct HostCapacity {
  double cpus = 0;
  int64_t memory_bytes = 0;
};

// Returns the CPUs that this process may run on (sched_getaffinity) and the
// host's memory, each limited by a cgroup (v2, or v1 as in containers):
// `rank_cgroup`, as in /proc/PID/cgroup, if it exists, else the process's own.
StatusOr<HostCapacity> ReadHostCapacity(const std::string& rank_cgroup = "");

// Parses cpu.max of cgroup v2, "200000 100000" or "max 100000", into cores.
// Nullopt: unlimited or malformed. Pure.
std::optional<double> ParseCpuMax(std::string_view text);
// Parses memory.max and memory.limit_in_bytes: "max", or bytes. Pure.
std::optional<int64_t> ParseMemoryMax(std::string_view text);

}  // namespace lockstep::worker::devices

#endif  // LOCKSTEP_WORKER_DEVICES_HOST_CAPACITY_H_
