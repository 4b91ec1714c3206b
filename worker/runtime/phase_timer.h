// A rank's time, split in phases that exclude each other and add up to wall
// time. PURE: callers pass `now`. Not thread-safe.
//
// A rank cannot see straggler wait within one all-reduce: when it is blocked it
// cannot distinguish a late peer from a slow wire. So each rank reports, in the
// tail of the next step, how long its last reduction held it up after its own
// arrival. The rank that waited least was the last to arrive, and its wait is
// communication alone. The wait of the others beyond that is straggler wait.
// This compares no clocks and adds no message. Until the next step says so, the
// time is held back: the phases lack it for at most one step (Settle at the
// end).
#ifndef LOCKSTEP_WORKER_RUNTIME_PHASE_TIMER_H_
#define LOCKSTEP_WORKER_RUNTIME_PHASE_TIMER_H_

#include <array>

#include "common/base/clock.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::runtime {

class PhaseTimer {
 public:
  explicit PhaseTimer(MonoTime now) : start_(now), since_(now) {}

  // The time since the last call was spent in phase().
  void Switch(task::RankPhase phase, MonoTime now);
  task::RankPhase phase() const { return phase_; }
  MonoTime start() const { return start_; }

  // `time` of the present phase belongs to the phase `to`.
  void Move(task::RankPhase to, Duration time, MonoTime now);

  // Takes `waited`, which ends at `now`, out of the present phase, to be split
  // later. Time that was held back before counts as all-reduce.
  void HoldBack(Duration waited, MonoTime now);
  // Splits what was held back: `straggler` of it (at most all) was waiting
  // for a late rank, the rest all-reduce.
  void SettleHeldBack(Duration straggler);

  // Up to `now`, indexed by phase. Without what is held back.
  std::array<Duration, task::kTimedPhases> Totals(MonoTime now) const;
  Duration held_back() const { return held_back_; }

 private:
  static size_t Index(task::RankPhase phase);

  const MonoTime start_;
  MonoTime since_;
  task::RankPhase phase_ = task::RankPhase::kOther;
  std::array<Duration, task::kTimedPhases> totals_{};
  Duration held_back_{};
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_PHASE_TIMER_H_
