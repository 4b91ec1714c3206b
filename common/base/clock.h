// Time as a value. Rules take `now` as an argument; only a Clock reads it.
//
// MonoTime never jumps. It measures leases, deadlines and durations. WallTime
// is for timestamps in answers, logs and records.
#ifndef LOCKSTEP_COMMON_BASE_CLOCK_H_
#define LOCKSTEP_COMMON_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep {

using Duration = std::chrono::nanoseconds;
using MonoTime = std::chrono::time_point<std::chrono::steady_clock, Duration>;
using WallTime = std::chrono::time_point<std::chrono::system_clock, Duration>;

// One reading of both clocks.
struct Time {
  MonoTime mono;
  WallTime wall;
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time Now() const = 0;
};

// The machine's CLOCK_MONOTONIC and CLOCK_REALTIME. Safe from any thread.
class SystemClock final : public Clock {
 public:
  Time Now() const override;
};

// Reads CLOCK_MONOTONIC, for code that takes no Clock. Safe from any thread.
MonoTime MonotonicNow();

// The same in nanoseconds, for memory that processes share.
inline int64_t MonotonicNanos() {
  return MonotonicNow().time_since_epoch().count();
}

inline double ToSeconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
inline Duration Seconds(double s) {
  return Duration(static_cast<int64_t>(s * 1e9));
}
inline int64_t ToUnixNanos(WallTime t) { return t.time_since_epoch().count(); }
inline WallTime FromUnixNanos(int64_t nanos) {
  return WallTime(Duration(nanos));
}

// "2026-01-31T12:00:00.123Z" (UTC, milliseconds).
std::string FormatWallTime(WallTime t);
// "850 ms", "12.3 s", "4 m 05 s", "2 h 10 m", "3 d 4 h".
std::string FormatDuration(Duration d);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_CLOCK_H_
