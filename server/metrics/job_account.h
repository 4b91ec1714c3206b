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
#include <utility>

#include "common/base/histogram.h"
#include "server/coordinator/snapshot.h"

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

// Of all jobs, by the name of the phase.
struct JobTimings {
  JobTimings();
  // queue, stage, rendezvous, first_step, total.
  std::map<std::string, Histogram> launch;
  // teardown, reschedule, stage, rendezvous, restore, total.
  std::map<std::string, Histogram> recovery;
};

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
  double steps() const { return steps_.total; }
  double samples() const { return samples_.total; }
  // Of these samples; nothing before the chief said what one takes.
  std::optional<double> flops() const { return flops_; }
  // The chief's.
  double checkpoint_stall_seconds() const { return stall_.total; }
  double checkpoint_bytes() const { return checkpoint_bytes_; }
  int64_t checkpoints() const { return checkpoints_; }
  // By pool: what was held, busy or not.
  struct Held {
    double core_seconds = 0;
    double gpu_seconds = 0;
  };
  const std::map<std::string, Held>& held() const { return held_; }
  // Over the last window: part of the ranks' time in which they waited for the
  // last one to arrive; and who that was, where it was clearly one.
  std::optional<double> straggler_wait_ratio() const { return wait_ratio_; }
  std::optional<int32_t> late_rank() const { return late_rank_; }
  // Windows with a late rank, by its node; the job's nodes are all there.
  const std::map<NodeName, int64_t>& straggler_events() const {
    return straggler_events_;
  }
  // Who was late in the newest of them, in this generation, by its node.
  const std::map<NodeName, int32_t>& late_ranks() const { return late_ranks_; }

 private:
  // A count that starts again with each generation.
  struct Grown {
    double total = 0;
    std::optional<double> last;
    void Take(double now) {
      if (last && now > *last) total += now - *last;
      last = now;
    }
  };
  struct Recovery {
    MonoTime began;
    MonoTime phase_since;
    std::map<std::string, double> phases;
    // RUNNING again, the first step is to come.
    std::optional<MonoTime> running_since;
  };
  struct Window {
    MonoTime since;
    int64_t step = 0;
    // By rank: seconds waited for others, and all.
    std::map<int32_t, std::pair<double, double>> ranks;
  };

  void Advance(MonoTime now, const Pools& pools);
  void Transition(const Job& before, const Job& after, Time now,
                  JobTimings* timings);
  void NewGeneration(const Job& job);
  void Take(const Job& job);
  void Progress(const CoordinatorView::JobEntry& entry, Time now,
                JobTimings* timings);
  void FirstStep(const Job& job, MonoTime step, Time now, JobTimings* timings);
  void WatchRanks(const CoordinatorView::JobEntry& entry, MonoTime now);
  void CloseWindow(const Job& job, const Window& end);
  TimeState StateOf(const Job& job) const;

  MonoTime advanced_;
  TimeState state_ = TimeState::kQueued;
  int64_t version_ = 0;
  Generation generation_ = 0;
  std::vector<Hold> holds_;
  std::array<double, kTimeStates> seconds_{};
  std::map<std::string, Held> held_;

  Grown steps_;
  Grown samples_;
  std::optional<double> flops_;
  Grown stall_;
  double checkpoint_bytes_ = 0;
  int64_t checkpoints_ = 0;
  std::optional<Checkpoint> checkpoint_;

  // The generation was seen from its beginning.
  bool fresh_ = false;
  // It has made a step, as far as is known.
  bool stepping_ = false;
  bool quiet_ = false;
  int64_t committed_ = 0;
  // Steps below were done by an earlier generation.
  int64_t redo_until_ = 0;
  bool launching_ = false;
  std::optional<Recovery> recovery_;

  std::optional<Window> window_;
  std::optional<double> wait_ratio_;
  std::optional<int32_t> late_rank_;
  std::map<NodeName, int64_t> straggler_events_;
  std::map<NodeName, int32_t> late_ranks_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_METRICS_JOB_ACCOUNT_H_
