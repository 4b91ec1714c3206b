// The processes of a local cluster's daemons (state.json). Not thread-safe. The
// caller holds the cluster's lock file while it starts or stops daemons.
#ifndef LOCKSTEP_CLIENT_LOCAL_DAEMON_PROCESSES_H_
#define LOCKSTEP_CLIENT_LOCAL_DAEMON_PROCESSES_H_

#include <map>
#include <string>
#include <vector>

#include "client/local/layout.h"
#include "client/local/records.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/os/process.h"

namespace lockstep::cli {

class DaemonProcesses {
 public:
  // `layout` outlives this object.
  explicit DaemonProcesses(const LocalLayout& layout) : layout_(layout) {}

  // Reads state.json. A missing file means that no daemon was started.
  Status Read();
  // Records that `daemon` was started as `process`, a child of this one.
  Status Add(const std::string& daemon, Process process);
  // Records that no daemon runs.
  Status Clear();

  // NotFound if the daemon does not run.
  StatusOr<Process> Open(const std::string& daemon) const;
  // 0 if it does not run.
  pid_t Pid(const std::string& daemon) const;
  // DeadlineExceeded if it still runs after `timeout`.
  StatusOr<ProcessExit> WaitEnded(const std::string& daemon, Duration timeout);
  // Stops `daemons` and those without a record. SIGKILL follows SIGTERM after
  // `grace`. Returns how many ran.
  StatusOr<int> Stop(const std::vector<std::string>& daemons, Duration grace);

 private:
  Status Write() const;

  const LocalLayout& layout_;
  StateRecord state_;
  // Children of this process, which must be reaped, by name.
  std::map<std::string, Process> children_;
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_DAEMON_PROCESSES_H_
