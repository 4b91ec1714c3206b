// The first process of a rank's container: `lockstep-shim -- PROGRAM ARGS`.
//
// Starts the program, forwards signals, reaps orphans and exits with the
// program's code (128 + signal). The program itself, as the first process of a
// PID namespace, would ignore signals without a handler. If descriptor 3 is a
// pipe, reports start and end on it (init_report.h).
#ifndef LOCKSTEP_WORKER_SHIM_INIT_H_
#define LOCKSTEP_WORKER_SHIM_INIT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::worker::shim {

// LOCKSTEP_MOUNT_0, _1 ... identify the checked directories,
// "DEVICE:INODE:PATH". An engine resolves names again, and the job's user may
// have replaced them meanwhile. If a path is another directory, the program
// does not run (ESTALE).
inline constexpr char kMountVariable[] = "LOCKSTEP_MOUNT_";
// Returns the path that does not match its variable, or "" if all match.
// Removes the variables.
std::string ChangedMount();

// `argv` holds the program, found in PATH, and its arguments, ending with
// nullptr.
int RunInit(char** argv);

// Checks whether the container's memory has a limit, for a trial of its engine,
// which may ignore limits. Returns an exit code: 0 for yes.
inline constexpr int kNotLimited = 9;
int CheckLimited();

// Returns the number after "oom_kill " in memory.events (cgroups v2) or
// memory.oom_control (v1); 0 if there is none.
uint32_t OomKillsIn(std::string_view text);

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_INIT_H_
