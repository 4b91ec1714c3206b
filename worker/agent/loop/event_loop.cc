#include "worker/agent/loop/event_loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace lockstep::worker::agent {

StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create(const Clock* clock) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return ErrnoStatus(errno, "making an epoll descriptor");
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return ErrnoStatus(errno, "making an eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake.get();
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return ErrnoStatus(errno, "watching an eventfd");
  }
  return std::unique_ptr<EventLoop>(
      new EventLoop(clock, std::move(epoll), std::move(wake)));
}

EventLoop::EventLoop(const Clock* clock, Fd epoll, Fd wake)
    : clock_(clock), epoll_(std::move(epoll)), wake_(std::move(wake)) {}

Status EventLoop::Watch(int fd, std::function<void()> callback) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  const int op = watches_.contains(fd) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(epoll_.get(), op, fd, &event) != 0) {
    return ErrnoStatus(errno, fmt::format("watching descriptor {}", fd));
  }
  watches_[fd] = std::make_shared<std::function<void()>>(std::move(callback));
  return OkStatus();
}

void EventLoop::Unwatch(int fd) {
  if (watches_.erase(fd) > 0) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
}

uint64_t EventLoop::At(MonoTime when, std::function<void()> callback) {
  const uint64_t id = next_timer_++;
  timers_.emplace(std::make_pair(when, id), std::move(callback));
  timer_times_.emplace(id, when);
  return id;
}

void EventLoop::CancelTimer(uint64_t id) {
  const auto it = timer_times_.find(id);
  if (it == timer_times_.end()) return;
  timers_.erase({it->second, id});
  timer_times_.erase(it);
}

void EventLoop::Post(std::function<void()> callback) {
  {
    MutexLock lock(&mu_);
    posted_.push_back(std::move(callback));
  }
  const uint64_t one = 1;
  // Full only when it is readable anyway.
  (void)!write(wake_.get(), &one, sizeof(one));
}

void EventLoop::Stop() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  Post([] {});
}

bool EventLoop::stopped() {
  MutexLock lock(&mu_);
  return stop_;
}

void EventLoop::Run() {
  while (!stopped()) Turn();
}

int EventLoop::TimeoutMillis() {
  if (timers_.empty()) return 1000;
  const Duration left = timers_.begin()->first.first - clock_->Now().mono;
  if (left <= Duration{}) return 0;
  // Rounded up: a timer must not fire early and then spin.
  const int64_t millis = left / std::chrono::milliseconds(1) + 1;
  return static_cast<int>(std::min<int64_t>(millis, 1000));
}

void EventLoop::Turn() {
  epoll_event events[64];
  const int n = epoll_wait(epoll_.get(), events, 64, TimeoutMillis());
  for (int i = 0; i < n; ++i) {
    const int fd = events[i].data.fd;
    if (fd == wake_.get()) {
      uint64_t count = 0;
      (void)!read(wake_.get(), &count, sizeof(count));
      continue;
    }
    // An earlier callback of this turn may have unwatched it.
    const auto it = watches_.find(fd);
    if (it == watches_.end()) continue;
    const auto callback = it->second;
    (*callback)();
  }
  RunPosted();
  RunTimers();
}

void EventLoop::RunPosted() {
  std::deque<std::function<void()>> posted;
  {
    MutexLock lock(&mu_);
    posted.swap(posted_);
  }
  for (auto& callback : posted) callback();
}

void EventLoop::RunTimers() {
  const MonoTime now = clock_->Now().mono;
  // Those that a callback sets run in the next turn at the earliest.
  const uint64_t first_new = next_timer_;
  for (auto it = timers_.begin(); it != timers_.end() && it->first.first <= now;
       it = timers_.begin()) {
    if (it->first.second >= first_new) break;
    auto callback = std::move(it->second);
    timer_times_.erase(it->first.second);
    timers_.erase(it);
    callback();
  }
}

}  // namespace lockstep::worker::agent
