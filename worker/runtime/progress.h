// What a rank shows of itself: its page, filled from a PhaseTimer and counters
// that only grow. Without a page (a program run by hand) it only counts.
//
// Costs no call into the kernel: the clock is read through the vDSO and the
// page is memory. Not thread-safe: the training loop's thread only.
#ifndef LOCKSTEP_WORKER_RUNTIME_PROGRESS_H_
#define LOCKSTEP_WORKER_RUNTIME_PROGRESS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/runtime/late_ranks.h"
#include "worker/runtime/phase_timer.h"
#include "worker/task/rank_page.h"

namespace lockstep {

class Progress {
 public:
  // An empty `page_path`: no page.
  static StatusOr<std::unique_ptr<Progress>> Create(
      const std::string& page_path, int rank, uint64_t generation);

  void Enter(task::RankPhase phase);
  task::RankPhase phase() const { return timer_.phase(); }

  void Planned(int64_t total_steps, int64_t global_batch);
  void SetStep(int64_t step) { progress_.step = static_cast<uint64_t>(step); }
  void SetCommitted(int64_t committed) { progress_.last_committed = committed; }
  void CountCollective(uint64_t bytes);

  struct Step {
    int64_t committed = 0;
    bool skipped = false;
    uint64_t samples = 0;  // Of this rank.
    double loss = 0;
    double learning_rate = 0;
    uint64_t epoch = 0;
  };
  void CountStep(const Step& step);
  // This rank's part of one is durable.
  void CountCheckpoint(int64_t step, uint64_t bytes);
  void CountCheckpointTime(task::CheckpointPhase phase, Duration time);
  void CountCheckpointFailure() { ++counters_.checkpoint_failures; }
  void SetInput(const task::InputCounters& input) { counters_.input = input; }
  // Non-finite values are kept out: the last finite one stays.
  void SetValue(std::string_view name, double value);

  // The end of a step's reductions, which held this rank up for `waited`, which
  // is in the present phase. For `busy`, that included, some were under way.
  void HoldBack(Duration waited, Duration busy);
  // Waiting for a late rank is neither all-reduce nor busy.
  void SettleHeldBack(Duration straggler);
  // Of a reduction whose wait is not held back.
  void CountBusy(Duration busy);
  // Of the time in the present phase, in which reductions were moved on.
  void CountInline(Duration time);
  // Of the step before; a moving average is shown.
  void CountLag(Duration lag);
  // The step before: who came last, how much later than the last but one, and
  // for how long this rank waited for it (step_tail.h).
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
  Duration step_length_{};  // Of the last one.
  // Moving averages of a step, and where its counters stood before.
  double bytes_ = 0;
  double busy_seconds_ = 0;
  uint64_t bytes_before_ = 0;
  double busy_before_ = 0;
  task::RankProgress progress_;
  task::RankCounters counters_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_RUNTIME_PROGRESS_H_
