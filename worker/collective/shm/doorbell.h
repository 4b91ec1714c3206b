// Sleeping on, and waking, a word in shared memory (futex(2)); and looking at
// it for a while before.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_DOORBELL_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_DOORBELL_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "common/base/clock.h"

namespace lockstep::worker::collective::shm {

// Returns when `word` is not `value` any more, when woken, after `most`, or
// for no reason.
inline void SleepOn(std::atomic<uint32_t>* word, uint32_t value,
                    Duration most) {
  if (most <= Duration::zero()) return;
  timespec limit;
  limit.tv_sec = static_cast<time_t>(most.count() / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(most.count() % 1'000'000'000);
  syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

inline void WakeOn(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Tells the processor that this is a loop that waits.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_DOORBELL_H_
