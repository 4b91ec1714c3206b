#include "worker/process_group/work.h"

#include <utility>

#include "worker/process_group/deadline.h"

namespace lockstep::worker::process_group {

Work::Work(Request request, uint64_t cookie, std::shared_ptr<EndedQueue> ended)
    : request_(std::move(request)),
      cookie_(cookie),
      ended_queue_(std::move(ended)) {
  if (cookie_ != 0) ended_queue_->Expect();
}

Work::~Work() {
  if (cookie_ != 0 && !ended()) ended_queue_->Forget();
}

Status Work::Wait(Duration timeout) {
  const MonoTime deadline = After(timeout);
  MutexLock lock(&mu_);
  while (!ended_ && timeout != Duration::zero() &&
         changed_.WaitUntil(&mu_, deadline)) {
  }
  if (ended_) return status_;
  return WithReason(
      DeadlineExceeded("{} has not ended yet", Describe(request_)),
      kReasonNotEnded);
}

bool Work::ended() {
  MutexLock lock(&mu_);
  return ended_;
}

void Work::End(const Status& status) {
  {
    MutexLock lock(&mu_);
    status_ = status;
    ended_ = true;
    changed_.NotifyAll();
  }
  if (cookie_ != 0) ended_queue_->Push(cookie_);
}

}  // namespace lockstep::worker::process_group
