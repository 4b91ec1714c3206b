// For how long something was under way: the union of spans of time, which begin
// one after the other. PURE: callers pass the time. Not thread-safe.
#ifndef LOCKSTEP_WORKER_RUNTIME_BUSY_TIME_H_
#define LOCKSTEP_WORKER_RUNTIME_BUSY_TIME_H_

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/clock.h"

namespace lockstep {

class BusyTime {
 public:
  // From now on, unless that has begun.
  void Begin(MonoTime now) {
    if (!since_) since_ = now;
  }
  bool begun() const { return since_.has_value(); }
  void End(MonoTime now) {
    if (since_) sum_ += now - *since_;
    since_.reset();
  }
  // A span that is over; what those before it cover is not counted again.
  void Add(MonoTime began, MonoTime ended) {
    sum_ += std::max(ended - std::max(began, until_), Duration(0));
    until_ = std::max(ended, until_);
  }
  // What there was since the last call.
  Duration Take() { return std::exchange(sum_, Duration(0)); }

 private:
  std::optional<MonoTime> since_;
  MonoTime until_;
  Duration sum_{};
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_RUNTIME_BUSY_TIME_H_
