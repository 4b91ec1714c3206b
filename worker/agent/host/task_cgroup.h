// Reads the counters of a task's own cgroup (v2).
#ifndef LOCKSTEP_WORKER_AGENT_HOST_TASK_CGROUP_H_
#define LOCKSTEP_WORKER_AGENT_HOST_TASK_CGROUP_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::worker::agent {

struct TaskCgroupReading {
  // Processes that the OOM killer killed.
  uint64_t oom_kills = 0;
  // Time in which the CPU limit throttled it.
  double throttled_seconds = 0;

  bool operator==(const TaskCgroupReading&) const = default;
};

// Returns the directory of the cgroup of `pid` below `root` ("" in production),
// from /proc/PID/cgroup. Nullopt if it equals that of `daemon` or there is no
// cgroup v2.
std::optional<std::string> OwnCgroup(pid_t pid, pid_t daemon,
                                     const std::string& root = "");
// Nullopt if `directory` has no counters.
std::optional<TaskCgroupReading> ReadTaskCgroup(const std::string& directory);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_TASK_CGROUP_H_
