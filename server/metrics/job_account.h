// What the coordinator counts of one job beyond what it stores: where its time
// went, how far it got, who held it up. Pure: callers pass `now`.
//
// Fed by every stored change of the job, which times the phases exactly, and
// by a look at it each second or so. What a look finds (a step, a stall, steps
// done again) is known to the second. Counts begin at 0 when the coordinator
// starts, as counters of a restarted program do.
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
#include "server/metrics/straggler_watch.h"
#include "server/metrics/training_counts.h"

namespace lockstep {

// Where a job's time goes; exclusive.
enum class TimeState {
  kQueued,
  // Until its first step (a program job: until it runs).
  kLaunching,
  kProductive,
  // Steps that had been done before the last failure.
  kRecomputed,
  // No step for 30 s; or a rank that holds the others up stands still, from
  // the look that sees it (stall.h: after half of what a step may take). What
  // it stood before that has been counted already, and counters do not fall.
  kStalled,
  // From a failure to the first step after it.
  kRecovering,
  // Done, and being ended everywhere.
  kFinishing,
};
inline constexpr size_t kTimeStates = 7;
std::string_view Name(TimeState state);

// Why an attempt was followed by another.
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
// Of the job's ended attempts; the sum is its number of restarts.
std::array<int64_t, kRestartReasons> RestartsOf(const Job& job);

class JobAccount {
 public:
  using Pools = std::map<NodeName, std::string>;

  JobAccount(const Job& job, Time now);

  // The job changed. `after` follows what was seen last.
  void OnJob(const Job& before, const Job& after, const Pools& pools, Time now,
             JobTimings* timings);
  // A look at it; an entry that is older than the last change says nothing.
  void Look(const CoordinatorView::JobEntry& entry, const Pools& pools,
            Time now, JobTimings* timings);

  double seconds(TimeState state) const {
    return seconds_[static_cast<size_t>(state)];
  }
  TimeState state() const { return state_; }
  const TrainingCounts& training() const { return training_; }
  const StragglerWatch& stragglers() const { return stragglers_; }
  double checkpoint_bytes() const { return checkpoint_bytes_; }
  int64_t checkpoints() const { return checkpoints_; }
  // By pool: what was held, busy or not.
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

  double checkpoint_bytes_ = 0;
  int64_t checkpoints_ = 0;
  std::optional<Checkpoint> checkpoint_;

  // The generation has made a step, as far as is known.
  bool stepping_ = false;
  bool quiet_ = false;
  TrainingCounts training_;
  PhaseTimer phases_;
  StragglerWatch stragglers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_METRICS_JOB_ACCOUNT_H_
