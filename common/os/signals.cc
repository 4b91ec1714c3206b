#include "common/os/signals.h"

#include <signal.h>
#include <sys/signalfd.h>

namespace lockstep {

Fd BlockSignals(std::initializer_list<int> signals) {
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int signo : signals) sigaddset(&set, signo);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

}  // namespace lockstep
