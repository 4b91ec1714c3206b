#include "worker/runtime/phase_timer.h"

#include <algorithm>

namespace lockstep::worker::runtime {

using task::RankPhase;

// Forming and finished are shown, but count as other.
size_t PhaseTimer::Index(RankPhase phase) {
  const auto index = static_cast<size_t>(phase);
  return index < task::kTimedPhases ? index
                                    : static_cast<size_t>(RankPhase::kOther);
}

void PhaseTimer::Switch(RankPhase phase, MonoTime now) {
  if (now > since_) {
    totals_[Index(phase_)] += now - since_;
    since_ = now;
  }
  phase_ = phase;
}

void PhaseTimer::Move(RankPhase to, Duration time, MonoTime now) {
  Switch(phase_, now);
  Duration& from = totals_[Index(phase_)];
  time = std::clamp(time, Duration(0), from);
  from -= time;
  totals_[Index(to)] += time;
}

void PhaseTimer::HoldBack(Duration waited, MonoTime now) {
  SettleHeldBack(Duration(0));
  Switch(phase_, now);
  Duration& total = totals_[Index(phase_)];
  held_back_ = std::clamp(waited, Duration(0), total);
  total -= held_back_;
}

void PhaseTimer::SettleHeldBack(Duration straggler) {
  straggler = std::clamp(straggler, Duration(0), held_back_);
  totals_[Index(RankPhase::kStragglerWait)] += straggler;
  totals_[Index(RankPhase::kAllReduce)] += held_back_ - straggler;
  held_back_ = Duration(0);
}

std::array<Duration, task::kTimedPhases> PhaseTimer::Totals(
    MonoTime now) const {
  std::array<Duration, task::kTimedPhases> totals = totals_;
  if (now > since_) totals[Index(phase_)] += now - since_;
  return totals;
}

}  // namespace lockstep::worker::runtime
