// The two system calls of pidfds, for process.cc and spawn.cc. glibc 2.36 has
// them, but its header lacks the C linkage that C++ needs.
#ifndef LOCKSTEP_COMMON_OS_PIDFD_H_
#define LOCKSTEP_COMMON_OS_PIDFD_H_

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace lockstep {

// -1 and errno on failure. The descriptor closes on exec.
inline int PidfdOpen(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}
inline int PidfdSendSignal(int pidfd, int signo) {
  return static_cast<int>(
      syscall(SYS_pidfd_send_signal, pidfd, signo, nullptr, 0));
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_PIDFD_H_
