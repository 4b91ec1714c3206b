// A request to cancel work that may block long: on the network, a file system
// or a program. Safe from any thread.
#ifndef LOCKSTEP_WORKER_PACKAGE_CANCELLATION_H_
#define LOCKSTEP_WORKER_PACKAGE_CANCELLATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace lockstep::worker::package {

class Cancellation {
 public:
  Cancellation() = default;
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  void Cancel() {
    MutexLock lock(&mu_);
    cancelled_ = true;
    changed_.NotifyAll();
    for (const auto& [id, callback] : callbacks_) callback();
  }
  bool cancelled() const {
    MutexLock lock(&mu_);
    return cancelled_;
  }
  // Returns Cancelled after Cancel; OK before.
  Status Check() const {
    return cancelled() ? Cancelled("it was told to stop") : OkStatus();
  }
  // Returns false if it is cancelled first.
  bool SleepFor(Duration duration) {
    const MonoTime until = MonotonicNow() + duration;
    MutexLock lock(&mu_);
    while (!cancelled_) {
      if (!changed_.WaitUntil(&mu_, until)) return !cancelled_;
    }
    return false;
  }

  // While it lives, Cancel calls `callback` once, on its own thread;
  // immediately if Cancel came before. The callback must be short and must not
  // use the Cancellation.
  class Listener {
   public:
    Listener(Cancellation* owner, std::function<void()> callback)
        : owner_(owner) {
      MutexLock lock(&owner_->mu_);
      id_ = owner_->next_id_++;
      if (owner_->cancelled_) callback();
      owner_->callbacks_[id_] = std::move(callback);
    }
    ~Listener() {
      MutexLock lock(&owner_->mu_);
      owner_->callbacks_.erase(id_);
    }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

   private:
    Cancellation* const owner_;
    uint64_t id_ = 0;
  };

 private:
  mutable Mutex mu_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, std::function<void()>> callbacks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::worker::package

#endif  // LOCKSTEP_WORKER_PACKAGE_CANCELLATION_H_
