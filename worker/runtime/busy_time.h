// Adds up busy time: the union of spans of time, given in the order in which
// they begin. PURE. Not thread-safe.
#ifndef LOCKSTEP_WORKER_RUNTIME_BUSY_TIME_H_
#define LOCKSTEP_WORKER_RUNTIME_BUSY_TIME_H_

#include <algorithm>
#include <utility>

#include "common/base/clock.h"

namespace lockstep::worker::runtime {

class BusyTime {
 public:
  // Time that an earlier span covers is not counted again.
  void Add(MonoTime began, MonoTime ended) {
    sum_ += std::max(ended - std::max(began, until_), Duration(0));
    until_ = std::max(ended, until_);
  }
  // Returns the busy time since the last call.
  Duration Take() { return std::exchange(sum_, Duration(0)); }

 private:
  MonoTime until_;
  Duration sum_{};
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_BUSY_TIME_H_
