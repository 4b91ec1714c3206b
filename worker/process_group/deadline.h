// Deadlines from timeouts of any length.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_DEADLINE_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_DEADLINE_H_

#include <algorithm>

#include "common/base/clock.h"

namespace lockstep::worker::process_group {

// Longer than anyone waits, and short enough to be added to any time.
inline constexpr Duration kForever = std::chrono::hours(24 * 3650);

// `timeout` from now on; negative: for ever.
inline MonoTime After(Duration timeout) {
  const bool forever = timeout < Duration::zero();
  return MonotonicNow() + (forever ? kForever : std::min(timeout, kForever));
}

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_DEADLINE_H_
