// Processes that are known by a variable of their environment, in whatever
// session, group or process tree they are by now. A program that takes the
// variable away hides.
//
// Nothing is signalled by a bare number: a process is held by a pidfd, with its
// start time checked, before its environment counts.
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

// In the environment of every program that a daemon starts for itself: of a
// shim, of a container engine's command, of a tool, each with a value of its
// kind.
inline constexpr char kToolVariable[] = "LOCKSTEP_TOOL";

// The value of `name` in the text of /proc/PID/environ; "": not there.
std::string_view VariableIn(std::string_view environ, std::string_view name);

// Whether a process is in the midst of execve, by the text of /proc/PID/stat:
// it has memory, and the end of its code is not known yet. The kernel sets that
// after the place of the environment (fs/binfmt_elf.c). Before, it shows an
// empty environment, although posix_spawn has returned.
bool IsInExec(std::string_view proc_pid_stat);

// The text of /proc/PID/environ. A process that is in the midst of execve is
// waited for. Nullopt: it is so still at `deadline`, or its environment cannot
// be read. The caller makes sure that the number is still that process's.
std::optional<std::string> EnvironOf(pid_t pid, MonoTime deadline);

// SIGKILL to those of `all`, but not to the caller, for which `wanted` says so
// of the process and its environment. Those that it reached: they end in a
// moment. One that is in the midst of execve is waited for, a second at most.
std::vector<Process> KillWanted(
    const std::vector<ProcessStat>& all,
    const std::function<bool(const ProcessStat&, const std::string& environ)>&
        wanted);

// Until all of them have ended; false at `deadline`.
bool WaitUntilGone(const std::vector<Process>& processes, MonoTime deadline);

// SIGKILL to every process with `name`=`value`, and to what they fork
// meanwhile, until there is none: true, or `deadline` is over.
bool KillMarked(const std::string& name, const std::string& value,
                MonoTime deadline);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_MARKED_PROCESSES_H_
