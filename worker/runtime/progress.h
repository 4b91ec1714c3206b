// The status page of a rank (worker/task/rank_page.h), filled from a PhaseTimer
// and from counters that only grow. Without a page (a program run by hand) it
// only counts.
//
// It makes no system call: the clock is read through the vDSO and the page is
// memory. Not thread-safe: for the training loop's thread.
#ifndef LOCKSTEP_WORKER_RUNTIME_PROGRESS_H_
#define LOCKSTEP_WORKER_RUNTIME_PROGRESS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/runtime/late_ranks.h"
#include "worker/runtime/phase_timer.h"
#include "worker/runtime/wait_page.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::runtime {

class Progress {
 public:
  // An empty `page_path`: no page. Opens `waits`, where not null, for the
  // link's thread.
  static StatusOr<std::unique_ptr<Progress>> Create(
      const std::string& page_path, int rank, uint64_t generation,
      WaitPage* waits = nullptr);

  void Enter(task::RankPhase phase);
  task::RankPhase phase() const { return timer_.phase(); }

  void Planned(int64_t total_steps, int64_t global_batch,
               std::optional<uint64_t> epoch = std::nullopt);
  void SetStep(int64_t step) { progress_.step = static_cast<uint64_t>(step); }
  void SetCommitted(int64_t committed) { progress_.last_committed = committed; }
  void CountCollective(uint64_t bytes);

  struct Step {
    int64_t committed = 0;
    bool skipped = false;
    uint64_t samples = 0;  // This rank's.
    double loss = 0;
    double learning_rate = 0;
    uint64_t epoch = 0;
    // That this one call stands for; 0: more of the last step.
    uint64_t steps = 1;
  };
  void CountStep(const Step& step);
  // This rank's part of a checkpoint, of `bytes`, is durable.
  void CountCheckpoint(int64_t step, uint64_t bytes);
  void CountCheckpointTime(task::CheckpointPhase phase, Duration time);
  void CountCheckpointFailure() { ++counters_.checkpoint_failures; }
  void SetInput(const task::InputCounters& input) { counters_.input = input; }
  // Ignores values that are not finite: the last finite one stays.
  void SetValue(std::string_view name, double value);

  // The end of a step's reductions, which held this rank up for `waited`; that
  // is in the present phase. Some reduction was under way for `busy`, which
  // includes it.
  void HoldBack(Duration waited, Duration busy);
  // `straggler` of the time held back was the wait for a late rank, which is
  // neither all-reduce nor busy.
  void SettleHeldBack(Duration straggler);
  // A reduction whose wait is not held back took `busy`.
  void CountBusy(Duration busy);
  // Reductions were moved on for `time` of the present phase.
  void CountInline(Duration time);
  // The lag in the step before; the page has a moving average.
  void CountLag(Duration lag);
  // In the step before `rank` came last, `late_by` after the last but one, and
  // this rank waited `waited` for it (step_tail.h).
  void CountLate(int rank, Duration late_by, Duration waited);
  void SetWorldSize(int size) { world_size_ = size; }

  // Writes everything.
  void Publish();
  const task::RankCounters& counters() const { return counters_; }

 private:
  Progress(std::unique_ptr<task::PageWriter> page, int rank,
           uint64_t generation, MonoTime now);
  void WriteProgress(MonoTime now);
  void TimeStep(MonoTime now);
  void MeasureBandwidth();

  const std::unique_ptr<task::PageWriter> page_;  // May be null.
  PhaseTimer timer_;
  Duration busy_held_back_{};
  bool has_lag_ = false;
  int world_size_ = 1;
  LateRanks late_ranks_;
  MonoTime step_began_;
  Duration step_length_{};  // The last one.
  // Moving averages of a step, and where its counters stood before.
  double bytes_ = 0;
  double busy_seconds_ = 0;
  uint64_t bytes_before_ = 0;
  double busy_before_ = 0;
  task::RankProgress progress_;
  task::RankCounters counters_;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_PROGRESS_H_
