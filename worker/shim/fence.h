// The time by which a rank ends, unless its worker daemon renews it: a node
// that is cut off must not go on with work that the coordinator gives to
// another (server/core/silence.h has the whole reasoning).
//
// The clock is CLOCK_BOOTTIME, and a timer of that clock wakes the shim: so a
// machine that slept past the time ends the rank when it wakes up. It does not
// depend on the daemon, which may be dead or stopped.
#ifndef LOCKSTEP_WORKER_SHIM_FENCE_H_
#define LOCKSTEP_WORKER_SHIM_FENCE_H_

#include <cstdint>

#include "common/base/fd.h"
#include "worker/shim/io.h"

namespace lockstep::worker::shim {

// SIGKILL comes this long before the time is over: a container engine has a
// second to kill, before the shim kills its own tree (container_signal.h).
inline constexpr int64_t kFenceKillTime = kNanosPerSecond;
// And SIGTERM this long before SIGKILL.
inline constexpr int64_t kFenceGrace = kNanosPerSecond;

class Fence {
 public:
  enum class Due { kNothing, kTerminate, kKill };

  // Without a time the rank goes on. Returns false and sets errno if the system
  // gives no timer.
  bool Begin(int64_t fence_nanos);
  // Renews it. Nothing happens if the time is not later, if there was none, or
  // if the rank was told to end.
  void Renew(int64_t fence_nanos);
  // Returns what is due at `now` of CLOCK_BOOTTIME, each once. Call it when
  // fd() is readable.
  Due Check(int64_t now);
  // The rank has ended.
  void End();

  // Readable when something is due; -1: never.
  int fd() const { return timer_.get(); }

 private:
  void SetTimer(int64_t at);

  Fd timer_;
  int64_t fence_nanos_ = 0;
  bool told_ = false;
  bool killed_ = false;
};

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_FENCE_H_
