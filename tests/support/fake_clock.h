// A clock that a test moves.
#ifndef LOCKSTEP_TESTS_SUPPORT_FAKE_CLOCK_H_
#define LOCKSTEP_TESTS_SUPPORT_FAKE_CLOCK_H_

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace lockstep {

// 2026-01-01T00:00:00Z, an hour after the machine started. Safe from any
// thread.
class FakeClock final : public Clock {
 public:
  Time Now() const override {
    MutexLock lock(&mu_);
    return now_;
  }
  void Advance(Duration by) {
    MutexLock lock(&mu_);
    now_.mono += by;
    now_.wall += by;
  }
  // Somebody sets the machine's date.
  void JumpWall(Duration by) {
    MutexLock lock(&mu_);
    now_.wall += by;
  }

 private:
  mutable Mutex mu_;
  Time now_ ABSL_GUARDED_BY(mu_) = {
      MonoTime(std::chrono::hours(1)),
      FromUnixNanos(int64_t{1'767'225'600} * 1'000'000'000)};
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SUPPORT_FAKE_CLOCK_H_
