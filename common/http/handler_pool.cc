#include "common/http/handler_pool.h"

#include <algorithm>
#include <utility>

namespace lockstep::http {

HandlerPool::HandlerPool(int threads) {
  for (int i = 0; i < std::max(threads, 1); ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

void HandlerPool::Add(std::function<void()> task) {
  MutexLock lock(&mu_);
  if (stopping_) return;
  tasks_.push_back(std::move(task));
  changed_.NotifyOne();
}

void HandlerPool::Stop() {
  std::deque<std::function<void()>> dropped;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    // Destroyed without the lock, because tasks own other objects.
    dropped.swap(tasks_);
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void HandlerPool::Run() {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(&mu_);
      while (tasks_.empty() && !stopping_) changed_.Wait(&mu_);
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace lockstep::http
