#include "common/rpc/work_pool.h"

#include <utility>

namespace lockstep {

WorkPool::~WorkPool() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    wake_.NotifyAll();
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void WorkPool::Post(const std::string& caller, Work work) {
  MutexLock lock(&mu_);
  std::deque<Work>& queue = queues_[caller];
  if (queue.empty()) turns_.push_back(caller);
  queue.push_back(std::move(work));
  ++waiting_;
  if (waiting_ > idle_ && threads_.size() < max_threads_ && !closed_) {
    threads_.emplace_back([this] { Run(); });
  }
  wake_.NotifyOne();
}

size_t WorkPool::waiting() const {
  MutexLock lock(&mu_);
  return waiting_;
}

void WorkPool::Run() {
  for (;;) {
    Work work;
    {
      MutexLock lock(&mu_);
      ++idle_;
      while (turns_.empty() && !closed_) wake_.Wait(&mu_);
      --idle_;
      if (turns_.empty()) return;
      std::string caller = std::move(turns_.front());
      turns_.pop_front();
      const auto queue = queues_.find(caller);
      work = std::move(queue->second.front());
      queue->second.pop_front();
      --waiting_;
      if (queue->second.empty()) {
        queues_.erase(queue);
      } else {
        turns_.push_back(std::move(caller));
      }
    }
    work();
  }
}

}  // namespace lockstep
