#include "worker/agent/progress/progress_watch.h"

#include <algorithm>
#include <vector>

namespace lockstep::worker::agent {
namespace {

constexpr size_t kDistances = 100;
constexpr size_t kFew = 10;

}  // namespace

void ProgressWatch::Look(MonoTime now) {
  if (looked_ && now - *looked_ > limits_.gap) {
    const Duration away = now - *looked_;
    start_ += away;
    last_ = std::min(now, last_ + away);
    if (active_) active_ = std::min(now, *active_ + away);
  }
  looked_ = now;
}

void ProgressWatch::TakeSign(SignSource source, MonoTime now) {
  if (source == SignSource::kActivity) active_ = now;
  if (source < source_) return;
  if (source > source_) {
    source_ = source;
    distances_.clear();
  } else if (!paused_) {
    distances_.push_back(std::max(Duration{}, now - last_));
    if (distances_.size() > kDistances) distances_.pop_front();
  }
  paused_ = false;
  last_ = now;
}

void ProgressWatch::TakePause(MonoTime now) {
  paused_ = true;
  last_ = now;
}

Duration ProgressWatch::Usual() const {
  if (distances_.empty()) return {};
  std::vector<Duration> sorted(distances_.begin(), distances_.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted[(sorted.size() * 99 - 1) / 100];
}

Duration ProgressWatch::Limit(Duration usual) const {
  if (source_ <= SignSource::kActivity) {
    const Duration rest = limits_.stall_after.value_or(
        std::max(limits_.least, limits_.factor * usual));
    return std::max(rest, start_ + limits_.grace - last_);
  }
  if (limits_.stall_after) return *limits_.stall_after;
  const bool joined = source_ == SignSource::kSession;
  const Duration least = joined && distances_.size() >= kFew
                             ? limits_.joined_least
                             : limits_.least;
  const Duration busy =
      std::max(joined && says_ ? limits_.phase_busy_least : limits_.busy_least,
               limits_.busy_factor * usual);
  const Duration rested = std::max(last_, active_.value_or(last_)) - last_ +
                          std::max(least, limits_.factor * usual);
  return std::min(rested, busy);
}

ProgressSigns ProgressWatch::Signs(MonoTime now) const {
  ProgressSigns signs;
  signs.source = source_;
  signs.still = std::max(Duration{}, now - last_);
  signs.usual = Usual();
  signs.limit = Limit(signs.usual);
  return signs;
}

}  // namespace lockstep::worker::agent
