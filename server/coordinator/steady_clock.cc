#include "server/coordinator/steady_clock.h"

#include <algorithm>

#include "common/base/logging.h"

namespace lockstep::server {
namespace {

// Of the time that passed, what a difference is made up for by.
constexpr int kSlewPart = 100;
constexpr Duration kWorthAWord = std::chrono::minutes(1);

}  // namespace

Time SteadyTime(const Time& shown, const Time& now) {
  const Duration passed = now.mono - shown.mono;
  const WallTime wall = shown.wall + passed;
  const Duration most = passed / kSlewPart;
  return {now.mono, wall + std::clamp(Duration(now.wall - wall), -most, most)};
}

Time SteadyClock::Now() const {
  MutexLock lock(&mu_);
  const Time machine = machine_->Now();
  shown_ = SteadyTime(shown_, machine);
  const Duration ahead = machine.wall - shown_.wall;
  const bool differs = ahead > kWorthAWord || ahead < -kWorthAWord;
  if (differs && !differs_) {
    LOG_WARN(
        "the machine's date was set, or it slept: it is {} {} of this "
        "coordinator's clock, which goes on as before and closes in on it by "
        "36 s an hour; a restart takes the machine's date at once",
        FormatDuration(std::chrono::abs(ahead)),
        ahead > Duration{} ? "ahead" : "behind");
  } else if (differs_ && !differs) {
    LOG_INFO("this coordinator's clock has come to within {} of the machine's",
             FormatDuration(kWorthAWord));
  }
  differs_ = differs;
  return shown_;
}

}  // namespace lockstep::server
