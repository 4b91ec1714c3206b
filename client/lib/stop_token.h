// Ends a stream from another thread.
#ifndef LOCKSTEP_CLIENT_LIB_STOP_TOKEN_H_
#define LOCKSTEP_CLIENT_LIB_STOP_TOKEN_H_

#include <functional>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace lockstep {

// Given to a call of Client that can last; Stop() makes that call return
// Cancelled soon. Stays stopped for ever. Safe from any thread; outlives the
// calls it was given to.
class StopToken {
 public:
  void Stop();
  bool stopped() const;

  // For Client. Runs `cancel` at Stop(), at once when that was already;
  // nullptr takes it back, and returns only when it runs no more. One at a
  // time.
  void SetCancel(std::function<void()> cancel);
  // Waits for Stop() or `timeout`; true when stopped.
  bool WaitFor(Duration timeout);

 private:
  mutable Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void()> cancel_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LIB_STOP_TOKEN_H_
