// Tells the CPU time of users' sessions (worker/shim/session.h) from the rank's
// own: both are below the rank's shim. Pure.
//
// The time of a session that ended is in the shim's, as its reaped child. So
// what the shim's reaped children gain while a session ends belongs to the
// session. A session that comes and goes between two samples is not noticed,
// and after a restart of the daemon those that ended before are the rank's.
#ifndef LOCKSTEP_WORKER_AGENT_READINGS_SESSION_CPU_H_
#define LOCKSTEP_WORKER_AGENT_READINGS_SESSION_CPU_H_

#include <sys/types.h>

#include <map>
#include <set>
#include <vector>

#include "common/os/procfs.h"

namespace lockstep::worker::agent {

class SessionCpu {
 public:
  // `living`: CPU seconds of each session's process tree, by its keeper.
  // `reaped`: of the shim's children that have ended. Returns the seconds of
  // all sessions so far.
  double Take(const std::map<pid_t, double>& living, double reaped);

 private:
  std::set<pid_t> keepers_;
  double reaped_ = 0;
  double ended_ = 0;
};

// The keepers of sessions among `all`: children of the shim that are a shim
// themselves. `is_same_program` is asked about each that has the shim's name.
template <typename IsSame>
std::vector<pid_t> KeepersOf(const ProcessStat& shim,
                             const std::vector<ProcessStat>& all,
                             IsSame is_same_program) {
  std::vector<pid_t> keepers;
  for (const ProcessStat& process : all) {
    if (process.parent == shim.pid && process.command == shim.command &&
        is_same_program(process.pid)) {
      keepers.push_back(process.pid);
    }
  }
  return keepers;
}

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_READINGS_SESSION_CPU_H_
