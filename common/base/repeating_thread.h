// A thread that runs a function at once and then after each interval.
#ifndef LOCKSTEP_COMMON_BASE_REPEATING_THREAD_H_
#define LOCKSTEP_COMMON_BASE_REPEATING_THREAD_H_

#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace lockstep {

class RepeatingThread {
 public:
  // `work` runs on the thread. The interval begins when `work` returns and is
  // real time, even if a test's clock stands still.
  RepeatingThread(Duration interval, std::function<void()> work)
      : interval_(interval),
        work_(std::move(work)),
        thread_([this] { Run(); }) {}
  // Waits for the running `work`.
  ~RepeatingThread() {
    {
      MutexLock lock(&mu_);
      closed_ = true;
      wake_.NotifyAll();
    }
    thread_.join();
  }
  RepeatingThread(const RepeatingThread&) = delete;
  RepeatingThread& operator=(const RepeatingThread&) = delete;

 private:
  void Run() {
    for (;;) {
      work_();
      const MonoTime deadline = MonotonicNow() + interval_;
      MutexLock lock(&mu_);
      while (!closed_) {
        if (!wake_.WaitUntil(&mu_, deadline)) break;
      }
      if (closed_) return;
    }
  }

  const Duration interval_;
  const std::function<void()> work_;
  Mutex mu_;
  CondVar wake_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_REPEATING_THREAD_H_
