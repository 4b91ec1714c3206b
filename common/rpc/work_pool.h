// A bounded number of threads shared fairly by many callers.
//
// Each caller has its own queue, and the threads take one item from each in
// turn. A caller with a thousand waiting items delays another by one item per
// thread, not by a thousand.
//
// Thread-safe.
#ifndef LOCKSTEP_COMMON_RPC_WORK_POOL_H_
#define LOCKSTEP_COMMON_RPC_WORK_POOL_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace lockstep {

class WorkPool {
 public:
  using Work = std::function<void()>;

  // Starts threads on demand, up to `max_threads`.
  explicit WorkPool(size_t max_threads) : max_threads_(max_threads) {}
  // Finishes waiting work first. REQUIRES: only such work still posts.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Runs `work` on a thread of the pool, after the caller's earlier items have
  // started. Items of one caller may run concurrently. Never blocks.
  void Post(const std::string& caller, Work work);

  // Items that no thread has taken yet.
  size_t waiting() const;

 private:
  void Run();

  const size_t max_threads_;
  mutable Mutex mu_;
  CondVar wake_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  size_t waiting_ ABSL_GUARDED_BY(mu_) = 0;
  size_t idle_ ABSL_GUARDED_BY(mu_) = 0;
  // Callers with work; the front is next.
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::deque<Work>> queues_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_WORK_POOL_H_
