// The end of a program whose libraries have threads of their own.
#ifndef LOCKSTEP_COMMON_BASE_LEAVE_H_
#define LOCKSTEP_COMMON_BASE_LEAVE_H_

namespace lockstep {

// Ends the process with `code`, after stdio is flushed, and destroys no
// statics: gRPC's threads run on, and log, for a moment after the last channel
// and server is gone, and would find the logger and OpenSSL taken apart. To be
// called at the end of main, when all that was made there is destroyed.
[[noreturn]] void LeaveProcess(int code);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_LEAVE_H_
