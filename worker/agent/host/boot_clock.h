// The clock of fences (worker/shim/fence.h).
#ifndef LOCKSTEP_WORKER_AGENT_HOST_BOOT_CLOCK_H_
#define LOCKSTEP_WORKER_AGENT_HOST_BOOT_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace lockstep::worker::agent {

// CLOCK_BOOTTIME in nanoseconds: it goes on while the machine sleeps.
inline int64_t BootNanos() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_BOOT_CLOCK_H_
