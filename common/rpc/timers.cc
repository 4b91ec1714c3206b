#include "common/rpc/timers.h"

namespace lockstep {

Timers::Timers() : thread_([this] { Run(); }) {}

Timers::~Timers() {
  {
    MutexLock lock(&mu_);
    closed_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

Timers::Id Timers::Set(MonoTime time, std::function<void()> call) {
  MutexLock lock(&mu_);
  const Id id{time, next_++};
  calls_.emplace(id, std::move(call));
  if (calls_.begin()->first == id) wake_.NotifyAll();
  return id;
}

void Timers::Drop(const Id& id) {
  // Destroyed without the lock, because its destructor may call this object.
  std::function<void()> dropped;
  MutexLock lock(&mu_);
  const auto it = calls_.find(id);
  if (it == calls_.end()) return;
  dropped = std::move(it->second);
  calls_.erase(it);
}

void Timers::Run() {
  for (;;) {
    std::function<void()> due;
    {
      MutexLock lock(&mu_);
      while (!due) {
        if (closed_) return;
        if (calls_.empty()) {
          wake_.Wait(&mu_);
          continue;
        }
        const auto first = calls_.begin();
        if (first->first.first > MonotonicNow()) {
          (void)wake_.WaitUntil(&mu_, first->first.first);
          continue;
        }
        due = std::move(first->second);
        calls_.erase(first);
      }
    }
    due();
  }
}

}  // namespace lockstep
