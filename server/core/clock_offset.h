// How far a node's clock is behind the coordinator's, so that times of
// different nodes can be compared. Pure.
//
// Each heartbeat carries its send time by the node's clock. The receive time
// differs from it by the clock difference plus the network delay. The smallest
// of the newest differences contains the shortest delay, which is less than a
// millisecond in one network. A clock that is set forward is followed at once;
// one that is set back, within kWindow.
#ifndef LOCKSTEP_SERVER_CORE_CLOCK_OFFSET_H_
#define LOCKSTEP_SERVER_CORE_CLOCK_OFFSET_H_

#include <deque>
#include <utility>

#include "common/base/clock.h"

namespace lockstep::server {

// Corrected times that are closer to each other have no order. A shim records
// the end of its rank when it gets to run, and an offset contains the shortest
// delay of a message.
inline constexpr Duration kSameTime = std::chrono::milliseconds(20);

class ClockOffset {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(30);

  // Records a message that was sent at `sent`, by the node's clock.
  void Take(WallTime sent, Time now);

  // Is added to the node's times; 0 before the first message.
  Duration offset() const;

 private:
  // Ascending differences within the window. The first is the smallest.
  std::deque<std::pair<MonoTime, Duration>> differences_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_CLOCK_OFFSET_H_
