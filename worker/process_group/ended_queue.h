// The cookies of operations that have ended, for one thread that serves
// callbacks.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_ENDED_QUEUE_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_ENDED_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "common/base/mutex.h"
#include "common/base/status.h"

namespace lockstep::worker::process_group {

// Safe from any thread.
class EndedQueue {
 public:
  // An operation with a cookie has been started; Push follows.
  void Expect();
  void Push(uint64_t cookie);
  // In place of Push: it did not start after all.
  void Forget();
  // No operation will be started any more.
  void Close();
  // Waits until there is a cookie; returns how many it wrote, the oldest first.
  // 0: `timeout` passed; negative: for ever. Aborted: closed, and no cookie is
  // left.
  StatusOr<size_t> Take(Duration timeout, std::span<uint64_t> cookies);
  // After Close: waits until no thread is in Take.
  void AwaitTakers();

 private:
  Mutex mu_;
  CondVar changed_;
  std::deque<uint64_t> ended_ ABSL_GUARDED_BY(mu_);
  size_t expected_ ABSL_GUARDED_BY(mu_) = 0;
  int takers_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_ENDED_QUEUE_H_
