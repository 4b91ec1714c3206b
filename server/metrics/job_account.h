// Accumulates one job's metrics beyond its stored state: its time by activity,
// progress and stragglers. Pure: callers pass `now`.
//
// Every stored change of the job is passed in, so phases are timed exactly. A
// look about once per second finds steps, stalls and repeated steps, so their
// times are exact to a second. Counts begin at 0 when the coordinator starts,
// like any restarted program's.
#ifndef LOCKSTEP_SERVER_METRICS_JOB_ACCOUNT_H_
#define LOCKSTEP_SERVER_METRICS_JOB_ACCOUNT_H_

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/coordinator/snapshot.h"
#include "server/metrics/phase_timer.h"
#include "server/metrics/rank_time.h"
#include "server/metrics/straggler_watch.h"
#include "server/metrics/training_counts.h"

namespace lockstep::server {

// Activities of a job; disjoint.
enum class TimeState {
  kQueued,
  // Until its first step (of a program: until it runs).
  kLaunching,
  kProductive,
  // A program runs and has reported no step.
  kUnknown,
  // Steps that were done before the last failure.
  kRecomputed,
  // A program shows no progress for its limit. Of a native job: no step for
  // 30 s, or a rank that delays the others has stalled, from the look that sees
  // it (stall.h: after half of a step's limit). Time before that is counted
  // elsewhere already, because counters never decrease.
  kStalled,
  // From a failure to the first step after it, or until all ranks have joined
  // the recovery.
  kRecovering,
  // Done, and being stopped everywhere.
  kFinishing,
};
inline constexpr size_t kTimeStates = 8;
std::string_view Name(TimeState state);

// The cause of a restart.
enum class RestartReason {
  kRankExit,
  kOom,
  kNodeLost,
  kDrain,
  kHang,
  kLaunch,
  kUser,
  kOther,
};
inline constexpr size_t kRestartReasons = 8;
std::string_view Name(RestartReason reason);
// Counts the job's ended attempts by cause. The sum is the number of restarts.
std::array<int64_t, kRestartReasons> RestartsOf(const Job& job);

class JobAccount {
 public:
  using Pools = std::map<NodeName, std::string>;

  JobAccount(const Job& job, Time now);

  // The job changed. `after` follows the last state passed in.
  void OnJob(const Job& before, const Job& after, const Pools& pools, Time now,
             JobTimings* timings);
  // Takes the current state. Ignores an entry older than the last change.
  void Look(const CoordinatorView::JobEntry& entry, const Pools& pools,
            Time now, JobTimings* timings);

  double seconds(TimeState state) const {
    return seconds_[static_cast<size_t>(state)];
  }
  TimeState state() const { return state_; }
  const TrainingCounts& training() const { return training_; }
  const StragglerWatch& stragglers() const { return stragglers_; }
  const RankTime& rank_time() const { return rank_time_; }
  // Complete ones that were published.
  struct Checkpoints {
    double bytes = 0;
    int64_t count = 0;
    std::optional<Checkpoint> newest;
  };
  const Checkpoints& checkpoints() const { return checkpoints_; }
  // Resources held in one pool, busy or idle.
  struct Held {
    double core_seconds = 0;
    double gpu_seconds = 0;
  };
  const std::map<std::string, Held>& held() const { return held_; }

 private:
  void Advance(MonoTime now, const Pools& pools);
  void NewGeneration(const Job& job);
  void Take(const Job& job);
  void Progress(const CoordinatorView::JobEntry& entry, Time now,
                JobTimings* timings);
  TimeState StateOf(const Job& job) const;

  MonoTime advanced_;
  TimeState state_ = TimeState::kQueued;
  int64_t version_ = 0;
  Generation generation_ = 0;
  std::vector<Hold> holds_;
  std::array<double, kTimeStates> seconds_{};
  std::map<std::string, Held> held_;

  Checkpoints checkpoints_;
  // The generation is known to have made a step.
  bool stepping_ = false;
  // It stands still. Where the coordinator does not say that it has stalled, no
  // time is past a limit yet.
  std::optional<Standstill> quiet_;
  // A node of it is silent.
  bool silent_ = false;
  RankTime rank_time_;
  TrainingCounts training_;
  PhaseTimer phases_;
  StragglerWatch stragglers_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_JOB_ACCOUNT_H_
