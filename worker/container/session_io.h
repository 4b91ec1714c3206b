// Detects whether a silent command still makes progress.
#ifndef LOCKSTEP_WORKER_CONTAINER_SESSION_IO_H_
#define LOCKSTEP_WORKER_CONTAINER_SESSION_IO_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::worker::container {

// Returns the bytes that the processes of `session` have read and written so
// far, including sockets (rchar and wchar of /proc/PID/io, proc(5)). The sum
// falls when a process ends: only a change is significant. Nullopt if it is
// unknown.
std::optional<uint64_t> BytesMoved(pid_t session);

// Nullopt if `proc_pid_io` is malformed.
std::optional<uint64_t> ParseBytesMoved(std::string_view proc_pid_io);

}  // namespace lockstep::worker::container

#endif  // LOCKSTEP_WORKER_CONTAINER_SESSION_IO_H_
