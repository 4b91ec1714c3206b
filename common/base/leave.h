// The end of a program whose libraries have threads of their own.
#ifndef LOCKSTEP_COMMON_BASE_LEAVE_H_
#define LOCKSTEP_COMMON_BASE_LEAVE_H_

#include "common/base/status.h"

namespace lockstep {

// The exit code of a daemon that ended with `status`: 0; 2 for an
// InvalidArgument, which is a mistake in its flags or in the files that they
// name, so that no restart mends it; else 1.
int DaemonExitCode(const Status& status);

// Ends the process with `code`, after stdio is flushed, and destroys no
// statics: gRPC's threads run on, and log, for a moment after the last channel
// and server is gone, and would find the logger and OpenSSL taken apart. To be
// called at the end of main, when all that was made there is destroyed.
[[noreturn]] void LeaveProcess(int code);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_LEAVE_H_
