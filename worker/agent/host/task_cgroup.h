// What the cgroup (v2) of a task counts, where the task has one of its own.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_TASK_CGROUP_H_
#define LOCKSTEP_WORKER_AGENT_HOST_TASK_CGROUP_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

struct TaskCgroupReading {
  // Processes that the kernel killed for memory.
  uint64_t oom_kills = 0;
  // Time in which it was held back by its CPU limit.
  double throttled_seconds = 0;

  bool operator==(const TaskCgroupReading&) const = default;
};

// The directory of process `pid`'s cgroup below `root` ("" in earnest), from
// /proc/PID/cgroup. Nothing: it is the same as that of `daemon`, or there is
// no cgroup v2.
std::optional<std::string> OwnCgroup(pid_t pid, pid_t daemon,
                                     const std::string& root = "");
// Nothing where `directory` is none that counts.
std::optional<TaskCgroupReading> ReadTaskCgroup(const std::string& directory);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_HOST_TASK_CGROUP_H_
