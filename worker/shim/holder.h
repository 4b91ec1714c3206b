// The process that keeps a cgroup (v2) for ranks: `lockstep-shim --hold`, the
// only program of lockstep-ranks.service.
//
// Ranks cannot have their groups below the daemon's own unit: systemd before
// version 254 puts the new main process of a unit into the unit's own group,
// and the kernel refuses that (EBUSY) once the group hands controllers on to
// others. The daemon could not be started again while a rank lives. So the
// groups are below a unit that is not restarted with the daemon:
//
//   BASE/          of lockstep-ranks.service, delegated to it
//   BASE/holder/   this process: a group that hands controllers on may hold no
//                  process itself, and systemd removes one without any
//   BASE/rank-ID/  made by the daemon (worker/agent/host/cgroup_tree.h)
#ifndef LOCKSTEP_WORKER_SHIM_HOLDER_H_
#define LOCKSTEP_WORKER_SHIM_HOLDER_H_

#include <string>

namespace lockstep::shim {

// Moves this process into BASE/holder, then enables cpu, memory and pids for
// the groups below BASE, as far as BASE has them. `self` is the text of
// /proc/self/cgroup, `mount` the place of cgroup v2. Returns "", or what
// failed, as one sentence.
std::string DivideGroup(const std::string& self, const std::string& mount);

// Divides the group, tells the service manager, and stays until a signal ends
// it. Returns an exit code only where that fails.
int RunHolder();

}  // namespace lockstep::shim

#endif  // LOCKSTEP_WORKER_SHIM_HOLDER_H_
