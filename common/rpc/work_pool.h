// A bounded number of threads for the work of many callers, who take turns.
//
// Each caller has a queue of its own and one piece of work is taken from each
// in turn: whoever has a thousand waiting delays another by one piece per
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

  // Threads are started when there is work for them, up to `max_threads`.
  explicit WorkPool(size_t max_threads) : max_threads_(max_threads) {}
  // Ends what waits first: REQUIRES that nobody posts any more but such work.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Runs `work` on a thread of the pool, after what `caller` has waiting. It
  // may run beside other work of the same caller. Never blocks.
  void Post(const std::string& caller, Work work);

  // Pieces of work that no thread has taken yet.
  size_t waiting() const;

 private:
  void Run();

  const size_t max_threads_;
  mutable Mutex mu_;
  CondVar wake_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  size_t waiting_ ABSL_GUARDED_BY(mu_) = 0;
  size_t idle_ ABSL_GUARDED_BY(mu_) = 0;
  // Callers that have work, whose turn is first at the front.
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::deque<Work>> queues_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_WORK_POOL_H_
