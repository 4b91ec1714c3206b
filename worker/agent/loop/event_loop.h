// One thread that waits for descriptors, timers and posts of other threads.
//
// Watch, Unwatch, At and Run belong to the loop's thread; Post and Stop are
// safe from any. Callbacks run one at a time, so state that only they use needs
// no lock. A callback may watch and unwatch any descriptor, including its own.
#ifndef LOCKSTEP_WORKER_AGENT_LOOP_EVENT_LOOP_H_
#define LOCKSTEP_WORKER_AGENT_LOOP_EVENT_LOOP_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace lockstep::worker::agent {

class EventLoop {
 public:
  // `clock` is borrowed.
  static StatusOr<std::unique_ptr<EventLoop>> Create(const Clock* clock);

  // Calls `callback` whenever `fd` is readable or broken, until Unwatch,
  // which must come before `fd` is closed.
  Status Watch(int fd, std::function<void()> callback);
  void Unwatch(int fd);

  // Calls `callback` once, at `when` or soon after. The number cancels it.
  uint64_t At(MonoTime when, std::function<void()> callback);
  void CancelTimer(uint64_t id);

  // Calls `callback` on the loop's thread, after all posted before it.
  void Post(std::function<void()> callback) ABSL_LOCKS_EXCLUDED(mu_);
  // Makes Run return soon.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  void Run();

  Time Now() const { return clock_->Now(); }

 private:
  EventLoop(const Clock* clock, Fd epoll, Fd wake);
  void Turn();
  void RunTimers();
  void RunPosted() ABSL_LOCKS_EXCLUDED(mu_);
  bool stopped() ABSL_LOCKS_EXCLUDED(mu_);
  int TimeoutMillis();

  const Clock* const clock_;
  Fd epoll_;
  Fd wake_;  // eventfd
  // By descriptor. Shared, so that a callback may unwatch itself.
  std::map<int, std::shared_ptr<std::function<void()>>> watches_;
  std::map<std::pair<MonoTime, uint64_t>, std::function<void()>> timers_;
  std::map<uint64_t, MonoTime> timer_times_;
  uint64_t next_timer_ = 1;

  Mutex mu_;
  std::deque<std::function<void()>> posted_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_LOOP_EVENT_LOOP_H_
