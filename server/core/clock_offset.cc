#include "server/core/clock_offset.h"

namespace lockstep::server {
namespace {

// Beyond the difference of any two real clocks. Differences of invented times
// must not overflow.
constexpr WallTime kEarliest{};
constexpr Duration kFarthest = std::chrono::hours(24 * 365 * 100);

}  // namespace

void ClockOffset::Take(WallTime sent, Time now) {
  if (sent < kEarliest || sent - kEarliest > kFarthest) return;
  const Duration difference = now.wall - sent;
  while (!differences_.empty() && differences_.back().second >= difference) {
    differences_.pop_back();
  }
  differences_.emplace_back(now.mono, difference);
  while (now.mono - differences_.front().first > kWindow) {
    differences_.pop_front();
  }
}

Duration ClockOffset::offset() const {
  return differences_.empty() ? Duration{} : differences_.front().second;
}

}  // namespace lockstep::server
