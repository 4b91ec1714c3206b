// How far a node's clock is behind the coordinator's, so that times of
// different nodes can be compared. Pure.
//
// Each heartbeat says when it was sent by the node's clock. It was received
// later by the difference of the clocks plus the time on its way; the smallest
// of the newest is the difference plus the shortest way, which is less than a
// millisecond in one network. A clock that is set is followed at once when it
// goes ahead, and within kWindow when it goes back.
#ifndef LOCKSTEP_SERVER_CORE_CLOCK_OFFSET_H_
#define LOCKSTEP_SERVER_CORE_CLOCK_OFFSET_H_

#include <deque>
#include <utility>

#include "common/base/clock.h"

namespace lockstep {

class ClockOffset {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(30);

  // A message that was sent at `sent`, by the node's clock, has come.
  void Take(WallTime sent, Time now);

  // To be added to the node's times; 0 while nothing is known.
  Duration offset() const;

 private:
  // Of the window, each larger than the one before: the first is the smallest.
  std::deque<std::pair<MonoTime, Duration>> differences_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_CLOCK_OFFSET_H_
