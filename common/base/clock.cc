#include "common/base/clock.h"

#include <fmt/format.h>
#include <time.h>

namespace lockstep {

MonoTime MonotonicNow() {
  return std::chrono::time_point_cast<Duration>(
      std::chrono::steady_clock::now());
}

Time SystemClock::Now() const {
  return {MonotonicNow(), std::chrono::time_point_cast<Duration>(
                              std::chrono::system_clock::now())};
}

std::string FormatWallTime(WallTime t) {
  const int64_t millis = ToUnixNanos(t) / 1'000'000;
  int64_t seconds = millis / 1000;
  int64_t rest = millis % 1000;
  if (rest < 0) {
    rest += 1000;
    --seconds;
  }
  const time_t whole = static_cast<time_t>(seconds);
  tm parts{};
  gmtime_r(&whole, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
                     parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec, rest);
}

std::string FormatDuration(Duration d) {
  const double s = ToSeconds(d);
  if (s < 0) return "-" + FormatDuration(-d);
  if (s < 0.9995) return fmt::format("{:.0f} ms", s * 1e3);
  if (s < 59.95) return fmt::format("{:.1f} s", s);
  const int64_t whole = static_cast<int64_t>(s + 0.5);
  if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  if (whole < 86400) {
    return fmt::format("{} h {:02} m", whole / 3600, whole % 3600 / 60);
  }
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

}  // namespace lockstep
