// The threads that run handlers, apart from the socket thread.
#ifndef LOCKSTEP_COMMON_HTTP_HANDLER_POOL_H_
#define LOCKSTEP_COMMON_HTTP_HANDLER_POOL_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace lockstep::http {

// Thread-safe; FIFO. The queue needs no bound, because a connection has at most
// one task in it and connections are bounded.
class HandlerPool {
 public:
  explicit HandlerPool(int threads);
  // REQUIRES: Stop() has returned.
  ~HandlerPool() = default;
  HandlerPool(const HandlerPool&) = delete;
  HandlerPool& operator=(const HandlerPool&) = delete;

  // Tasks must not throw. Tasks added after Stop() are dropped.
  void Add(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);
  // Drops waiting tasks and waits for running ones.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_HANDLER_POOL_H_
