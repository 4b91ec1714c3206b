// The shim's descendants: the rank and all it started. As a child subreaper
// the shim is the parent of every one whose own parent is gone.
#ifndef LOCKSTEP_WORKER_SHIM_PROCESS_TREE_H_
#define LOCKSTEP_WORKER_SHIM_PROCESS_TREE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace lockstep::shim {

// Of /proc/PID/stat; 0 when there is no such process.
uint64_t StartTime(pid_t pid);

// Sends `signo` to the process if it is a descendant of ours. False when it
// is none (any more).
bool SignalDescendant(pid_t pid, int signo);

// Sends `signo` to every descendant there is now and returns how many got it;
// signo 0 counts. One that forks meanwhile may slip through: whoever kills
// repeats it until there is no child left.
//
// No signal goes to a bare number: each is held by a pidfd first and then
// seen to have one of us as its parent. `spare` and what descends from it are
// left out.
int SignalTree(int signo, pid_t spare = 0);

// SIGKILL to all of a cgroup (v2), which no fork escapes. False where it cannot
// be done (no such group; before Linux 5.14): the tree is signalled in any
// case.
bool KillCgroup(const std::string& cgroup);

}  // namespace lockstep::shim

#endif  // LOCKSTEP_WORKER_SHIM_PROCESS_TREE_H_
