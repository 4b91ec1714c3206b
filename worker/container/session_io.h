// Whether a command still does something, where it says nothing.
#ifndef LOCKSTEP_WORKER_CONTAINER_SESSION_IO_H_
#define LOCKSTEP_WORKER_CONTAINER_SESSION_IO_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

// What the processes of `session` have read and written by now, in bytes, also
// from and to sockets (rchar and wchar of /proc/PID/io, proc(5)). It may fall
// when one of them ends: a change is what counts. Nothing: it cannot be known.
std::optional<uint64_t> BytesMoved(pid_t session);

// Nothing where `proc_pid_io` is no such file's text.
std::optional<uint64_t> ParseBytesMoved(std::string_view proc_pid_io);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CONTAINER_SESSION_IO_H_
