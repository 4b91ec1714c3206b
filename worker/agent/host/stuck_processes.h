// Processes of ended ranks that SIGKILL does not end: the kernel holds them,
// usually in a driver or a network file system (state D).
//
// Thread-compatible. Reads /proc.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_STUCK_PROCESSES_H_
#define LOCKSTEP_WORKER_AGENT_HOST_STUCK_PROCESSES_H_

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/model/node.h"
#include "common/os/process.h"
#include "common/os/procfs.h"

namespace lockstep::worker::agent {

// User, command, state and wait channel of the process, from /proc; empty texts
// if it shows none of that pid.
HeldProcess DescribeHeld(int64_t pid);

class StuckProcesses {
 public:
  // Returns the process, or nullopt if it has ended.
  using Find = std::function<std::optional<ProcessStat>(const ProcessId&)>;
  // `find` is for tests.
  explicit StuckProcesses(Find find = nullptr);

  // Adds processes that SIGKILL has not ended. `job` may be empty.
  void Add(const std::vector<ProcessId>& left, const JobName& job,
           WallTime now);
  // Forgets those that have ended.
  void Look();
  // At most kMaxStuckProcesses.
  const std::vector<HeldProcess>& all() const { return shown_; }

 private:
  struct Stuck {
    JobName job;
    WallTime since{};
  };

  const Find find_;
  std::map<std::pair<pid_t, uint64_t>, Stuck> stuck_;
  std::vector<HeldProcess> shown_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_STUCK_PROCESSES_H_
