// Ends a stream from another thread.
#ifndef LOCKSTEP_CLIENT_LIB_STOP_TOKEN_H_
#define LOCKSTEP_CLIENT_LIB_STOP_TOKEN_H_

#include <functional>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace lockstep::cli {

// Passed to a long call of Client. Stop() makes the call return Cancelled soon,
// and is permanent. Safe from any thread; outlives its calls.
class StopToken {
 public:
  void Stop();
  bool stopped() const;

  // For Client. Stop() runs `cancel`, at once if already stopped. nullptr
  // removes it, and returns only when it no longer runs. One at a time.
  void SetCancel(std::function<void()> cancel);
  // Waits for Stop() or `timeout`. Returns true if stopped.
  bool WaitFor(Duration timeout);

 private:
  mutable Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void()> cancel_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LIB_STOP_TOKEN_H_
