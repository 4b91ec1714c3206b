// How much of this host a worker daemon may offer.
#ifndef LOCKSTEP_WORKER_DEVICES_HOST_CAPACITY_H_
#define LOCKSTEP_WORKER_DEVICES_HOST_CAPACITY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep {

struct HostCapacity {
  double cpus = 0;
  int64_t memory_bytes = 0;
};

// The CPUs that this process may run on (sched_getaffinity) and the host's
// memory, each cut to what a cgroup (v2, or v1 as containers have it) allows:
// `rank_cgroup`, as in /proc/PID/cgroup, where that is there, else the
// process's own.
StatusOr<HostCapacity> ReadHostCapacity(const std::string& rank_cgroup = "");

// cpu.max of cgroup v2, "200000 100000" or "max 100000": cores. Nothing:
// unlimited, or not understood. Pure.
std::optional<double> ParseCpuMax(std::string_view text);
// memory.max and memory.limit_in_bytes: "max", or bytes. Pure.
std::optional<int64_t> ParseMemoryMax(std::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_DEVICES_HOST_CAPACITY_H_
