// The first process of a rank's container: `lockstep-shim -- PROGRAM ARGS`.
//
// Starts the program, passes signals on to it, reaps orphans and ends with the
// program's code (128 + signal). As the first process of a PID namespace the
// program itself would not notice a signal that it has no handler for. Where
// descriptor 3 is a pipe, start and end are told on it (init_report.h).
#ifndef LOCKSTEP_WORKER_SHIM_INIT_H_
#define LOCKSTEP_WORKER_SHIM_INIT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::shim {

// LOCKSTEP_MOUNT_0, _1 ... say what was to be mounted, "DEVICE:INODE:PATH": an
// engine goes by names, which the job's user may have given to something else
// meanwhile. Where a path is another directory the program is not run (ESTALE).
inline constexpr char kMountVariable[] = "LOCKSTEP_MOUNT_";
// The path that is not what its variable says; "": all are. Takes the variables
// away.
std::string ChangedMount();

// `argv`: the program and its arguments, ending with nullptr; found in PATH.
int RunInit(char** argv);

// Whether the container's memory has a limit that was set; for a trial of its
// engine, which may ignore what it is asked for. A process's exit code: 0 yes.
inline constexpr int kNotLimited = 9;
int CheckLimited();

// The number after "oom_kill " in the text of memory.events (cgroups v2) or
// memory.oom_control (v1); 0: none there.
uint32_t OomKillsIn(std::string_view text);

}  // namespace lockstep::shim

#endif  // LOCKSTEP_WORKER_SHIM_INIT_H_
