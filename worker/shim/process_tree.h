// The shim's descendants: the rank and its processes. The shim is a child
// subreaper, so it adopts every process whose parent ends.
#ifndef LOCKSTEP_WORKER_SHIM_PROCESS_TREE_H_
#define LOCKSTEP_WORKER_SHIM_PROCESS_TREE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::worker::shim {

// Reads /proc/PID/stat; returns 0 if the process does not exist.
uint64_t StartTime(pid_t pid);

// Sends `signo` to the process if it is a descendant of ours; otherwise returns
// false.
bool SignalDescendant(pid_t pid, int signo);

// Sends `signo` to every current descendant and returns their number; signo 0
// only counts. A process that is started in answer to the signal never gets it.
// So a forking process may escape SIGKILL: repeat the call until no child is
// left.
//
// Never signals a bare number: each process is held by a pidfd and then
// verified to be the one that was seen, with one of ours as its parent. Skips
// the processes of `spared` and their descendants.
int SignalTree(int signo, const std::vector<pid_t>& spared = {});

// Sends SIGKILL to all processes of a cgroup (v2), which forks cannot escape.
// Returns false if this is impossible (missing group; before Linux 5.14):
// signal the tree in any case.
bool KillCgroup(const std::string& cgroup);

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_PROCESS_TREE_H_
