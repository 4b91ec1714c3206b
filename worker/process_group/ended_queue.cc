#include "worker/process_group/ended_queue.h"

#include "worker/process_group/deadline.h"

namespace lockstep::worker::process_group {

void EndedQueue::Expect() {
  MutexLock lock(&mu_);
  ++expected_;
}

void EndedQueue::Push(uint64_t cookie) {
  MutexLock lock(&mu_);
  --expected_;
  ended_.push_back(cookie);
  changed_.NotifyAll();
}

void EndedQueue::Forget() {
  MutexLock lock(&mu_);
  --expected_;
  changed_.NotifyAll();
}

void EndedQueue::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  changed_.NotifyAll();
}

StatusOr<size_t> EndedQueue::Take(Duration timeout,
                                  std::span<uint64_t> cookies) {
  const MonoTime deadline = After(timeout);
  MutexLock lock(&mu_);
  ++takers_;
  while (ended_.empty() && !(closed_ && expected_ == 0) &&
         changed_.WaitUntil(&mu_, deadline)) {
  }
  const bool over = ended_.empty() && closed_ && expected_ == 0;
  size_t count = 0;
  for (; count < cookies.size() && !ended_.empty(); ++count) {
    cookies[count] = ended_.front();
    ended_.pop_front();
  }
  --takers_;
  changed_.NotifyAll();
  if (over) return Aborted("the group has ended, and no cookie is left");
  return count;
}

void EndedQueue::AwaitTakers() {
  MutexLock lock(&mu_);
  while (takers_ > 0) changed_.Wait(&mu_);
}

}  // namespace lockstep::worker::process_group
