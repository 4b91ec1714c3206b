#include "client/lib/stop_token.h"

#include <utility>

namespace lockstep::cli {

void StopToken::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
  // Under the lock, so that SetCancel(nullptr) waits for it. What it runs is
  // grpc::ClientContext::TryCancel, which never calls back into us.
  if (cancel_) cancel_();
  changed_.NotifyAll();
}

bool StopToken::stopped() const {
  MutexLock lock(&mu_);
  return stopped_;
}

void StopToken::SetCancel(std::function<void()> cancel) {
  MutexLock lock(&mu_);
  cancel_ = std::move(cancel);
  if (stopped_ && cancel_) cancel_();
}

bool StopToken::WaitFor(Duration timeout) {
  const MonoTime deadline = MonotonicNow() + timeout;
  MutexLock lock(&mu_);
  while (!stopped_) {
    if (!changed_.WaitUntil(&mu_, deadline)) break;
  }
  return stopped_;
}

}  // namespace lockstep::cli
