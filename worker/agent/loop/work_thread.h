// A thread for work that may block as long as a file system does, so the event
// loop never blocks. Jobs run one at a time, in order.
#ifndef LOCKSTEP_WORKER_AGENT_LOOP_WORK_THREAD_H_
#define LOCKSTEP_WORKER_AGENT_LOOP_WORK_THREAD_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace lockstep::worker::agent {

class WorkThread {
 public:
  WorkThread() : thread_([this] { Loop(); }) {}
  // Waits for the running job; drops the queued ones.
  ~WorkThread() {
    {
      MutexLock lock(&mu_);
      stop_ = true;
    }
    more_.NotifyAll();
    thread_.join();
  }
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  // Safe from any thread.
  void Add(std::function<void()> job) {
    {
      MutexLock lock(&mu_);
      jobs_.push_back(std::move(job));
    }
    more_.NotifyOne();
  }

 private:
  void Loop() {
    for (;;) {
      std::function<void()> job;
      {
        MutexLock lock(&mu_);
        while (!stop_ && jobs_.empty()) more_.Wait(&mu_);
        if (stop_) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }

  Mutex mu_;
  CondVar more_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_LOOP_WORK_THREAD_H_
