// Ends a program whose libraries have threads of their own.
#ifndef LOCKSTEP_COMMON_BASE_LEAVE_H_
#define LOCKSTEP_COMMON_BASE_LEAVE_H_

#include "common/base/status.h"

namespace lockstep {

// Returns the exit code of a daemon that ended with `status`: 0 for OK, 2 for
// InvalidArgument, otherwise 1. InvalidArgument is a mistake in flags or files
// that a restart does not fix.
int DaemonExitCode(const Status& status);

// Flushes stdio and ends the process with `code` without destroying statics.
// gRPC's threads still run and log for a moment after the last channel and
// server are gone; they need the logger and OpenSSL. Call it at the end of
// main, after everything made there is destroyed.
[[noreturn]] void LeaveProcess(int code);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_LEAVE_H_
