// Finds processes by a variable of their environment, in any session, group or
// process tree. A program that removes the variable is not found.
//
// No signal is sent to a bare pid: a process is held by a pidfd, and its start
// time is checked before its environment counts.
#ifndef LOCKSTEP_COMMON_OS_MARKED_PROCESSES_H_
#define LOCKSTEP_COMMON_OS_MARKED_PROCESSES_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/os/process.h"
#include "common/os/procfs.h"

namespace lockstep {

// Set in the environment of every helper program that a daemon starts: a shim,
// a container engine's command, a tool. The value names the kind.
inline constexpr char kToolVariable[] = "LOCKSTEP_TOOL";

// Returns the value of `name` in the text of /proc/PID/environ, or "".
std::string_view VariableIn(std::string_view environ, std::string_view name);

// True if a process is inside execve, by the text of /proc/PID/stat: it has
// memory, but the end of its code is not set. The kernel sets that after the
// environment's location (fs/binfmt_elf.c). Until then the environment appears
// empty, although posix_spawn has returned.
bool IsInExec(std::string_view proc_pid_stat);

// Returns the text of /proc/PID/environ. Waits for a process inside execve.
// Nullopt if it is still there at `deadline` or the environment is unreadable.
// The caller checks that the pid still belongs to the process.
std::optional<std::string> EnvironOf(pid_t pid, MonoTime deadline);

// Sends SIGKILL to the processes of `all`, except the caller, for which
// `wanted` is true. Returns those that it reached; they end in a moment. Waits
// up to a second for a process inside execve.
std::vector<Process> KillWanted(
    const std::vector<ProcessStat>& all,
    const std::function<bool(const ProcessStat&, const std::string& environ)>&
        wanted);

// Waits until all of them have ended. Returns false at `deadline`.
bool WaitUntilGone(const std::vector<Process>& processes, MonoTime deadline);

// Sends SIGKILL to every process with `name`=`value`, and to those that they
// fork meanwhile, until none is left. Returns false at `deadline`.
bool KillMarked(const std::string& name, const std::string& value,
                MonoTime deadline);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_MARKED_PROCESSES_H_
