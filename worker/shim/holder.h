// The process that holds a cgroup (v2) for ranks: `lockstep-shim --hold`, the
// only program of lockstep-ranks.service.
//
// Ranks cannot have their groups below the daemon's own unit. Before version
// 254, systemd puts the new main process of a unit into the unit's own group,
// and the kernel refuses that (EBUSY) once the group delegates controllers. The
// daemon could not restart while a rank lives. Therefore the groups are below a
// unit that does not restart with the daemon:
//
//   BASE/          of lockstep-ranks.service, delegated to it
//   BASE/holder/   this process: a group that delegates controllers must not
//                  contain processes, and systemd removes an empty one
//   BASE/rank-ID/  created by the daemon (worker/agent/host/cgroup_tree.h)
#ifndef LOCKSTEP_WORKER_SHIM_HOLDER_H_
#define LOCKSTEP_WORKER_SHIM_HOLDER_H_

#include <string>

namespace lockstep::worker::shim {

// Moves this process into BASE/holder, then enables cpu, memory and pids for
// the groups below BASE, as far as BASE has them. `self` is the text of
// /proc/self/cgroup, `mount` the place of cgroup v2. Returns "", or what
// failed, as one sentence.
std::string DivideGroup(const std::string& self, const std::string& mount);

// Divides the group, notifies the service manager, and waits until a signal
// ends it. Returns an exit code only on failure.
int RunHolder();

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_HOLDER_H_
