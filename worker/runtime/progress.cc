#include "worker/runtime/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::worker::runtime {
namespace {

// Of the newest step in the moving average of the lag: it follows in some 20
// steps.
constexpr double kLagWeight = 0.1;
// In that of what was reduced and how fast.
constexpr double kBandwidthWeight = 0.05;

}  // namespace

StatusOr<std::unique_ptr<Progress>> Progress::Create(
    const std::string& page_path, int rank, uint64_t generation,
    WaitPage* waits) {
  std::unique_ptr<task::PageWriter> page;
  if (!page_path.empty()) {
    std::string error;
    page = task::PageWriter::Create(page_path, static_cast<uint32_t>(rank),
                                    &error);
    if (!page) return Unavailable("the rank's page: {}", error);
  }
  if (waits != nullptr) waits->Open(page.get());
  return std::unique_ptr<Progress>(
      new Progress(std::move(page), rank, generation, MonotonicNow()));
}

Progress::Progress(std::unique_ptr<task::PageWriter> page, int rank,
                   uint64_t generation, MonoTime now)
    : page_(std::move(page)), timer_(now), step_began_(now) {
  progress_.rank = static_cast<uint32_t>(rank);
  progress_.generation = generation;
  counters_.start_mono_nanos = now.time_since_epoch().count();
  Publish();
}

void Progress::Enter(task::RankPhase phase) {
  const MonoTime now = MonotonicNow();
  timer_.Switch(phase, now);
  WriteProgress(now);
}

void Progress::Planned(int64_t total_steps, int64_t global_batch,
                       std::optional<uint64_t> epoch) {
  if (epoch) counters_.epoch = *epoch;
  counters_.total_steps =
      static_cast<uint64_t>(std::max<int64_t>(0, total_steps));
  counters_.global_batch =
      static_cast<uint64_t>(std::max<int64_t>(0, global_batch));
}

void Progress::CountCollective(uint64_t bytes) {
  ++progress_.collective;
  ++counters_.collectives;
  counters_.allreduce_bytes += bytes;
}

void Progress::CountStep(const Step& step) {
  progress_.last_committed = step.committed;
  progress_.step = static_cast<uint64_t>(step.committed + 1);
  counters_.steps_committed += step.steps;
  if (step.skipped) ++counters_.steps_skipped;
  counters_.samples += step.samples;
  counters_.epoch = step.epoch;
  if (std::isfinite(step.loss)) {
    counters_.has_loss = true;
    counters_.last_loss = step.loss;
  }
  if (std::isfinite(step.learning_rate)) {
    counters_.has_learning_rate = true;
    counters_.last_learning_rate = step.learning_rate;
  }
  if (step.steps == 0) return;
  TimeStep(MonotonicNow());
  MeasureBandwidth();
}

void Progress::TimeStep(MonoTime now) {
  step_length_ = now - std::exchange(step_began_, now);
  counters_.step_times.Observe(ToSeconds(step_length_));
}

// nccl-tests' bus bandwidth: bytes * 2 (n - 1) / n over time.
void Progress::MeasureBandwidth() {
  const auto bytes = static_cast<double>(
      counters_.allreduce_bytes -
      std::exchange(bytes_before_, counters_.allreduce_bytes));
  const double busy =
      counters_.allreduce_busy_seconds -
      std::exchange(busy_before_, counters_.allreduce_busy_seconds);
  bytes_ += kBandwidthWeight * (bytes - bytes_);
  busy_seconds_ += kBandwidthWeight * (busy - busy_seconds_);
  const auto n = static_cast<double>(world_size_);
  counters_.communication.bus_bytes_per_second =
      busy_seconds_ > 0 ? bytes_ * 2 * (n - 1) / n / busy_seconds_ : 0;
}

void Progress::CountCheckpoint(int64_t step, uint64_t bytes) {
  ++counters_.checkpoints_saved;
  counters_.last_checkpoint_step = step;
  counters_.checkpoint_bytes += bytes;
}

void Progress::CountCheckpointTime(task::CheckpointPhase phase, Duration time) {
  const double seconds = ToSeconds(std::max(time, Duration(0)));
  counters_.checkpoint_seconds.at(static_cast<size_t>(phase)) += seconds;
  counters_.checkpoint_times.at(static_cast<size_t>(phase)).Observe(seconds);
}

void Progress::SetValue(std::string_view name, double value) {
  if (!std::isfinite(value)) return;
  for (auto& [known, last] : counters_.values) {
    if (known == name) {
      last = value;
      return;
    }
  }
  if (counters_.values.size() < task::kMaxReportedValues) {
    counters_.values.emplace_back(name, value);
  }
}

void Progress::HoldBack(Duration waited, Duration busy) {
  SettleHeldBack(Duration(0));
  timer_.HoldBack(waited, MonotonicNow());
  busy_held_back_ = std::max(busy, timer_.held_back());
}

void Progress::SettleHeldBack(Duration straggler) {
  straggler = std::clamp(straggler, Duration(0), timer_.held_back());
  timer_.SettleHeldBack(straggler);
  CountBusy(busy_held_back_ - straggler);
  busy_held_back_ = Duration(0);
}

void Progress::CountBusy(Duration busy) {
  counters_.allreduce_busy_seconds += ToSeconds(std::max(busy, Duration(0)));
}

void Progress::CountInline(Duration time) {
  timer_.Move(task::RankPhase::kAllReduce, time, MonotonicNow());
  CountBusy(time);
}

void Progress::CountLate(int rank, Duration late_by, Duration waited) {
  late_ranks_.Add(rank, late_by, waited, step_length_);
  counters_.communication.longest_waits = late_ranks_.longest_waits();
  counters_.communication.straggler = late_ranks_.straggler();
  counters_.communication.late_rank = rank;
  counters_.communication.late_waited_seconds = ToSeconds(waited);
}

void Progress::CountLag(Duration lag) {
  double& shown = counters_.straggler_lag_seconds;
  shown += (has_lag_ ? kLagWeight : 1) * (ToSeconds(lag) - shown);
  has_lag_ = true;
}

void Progress::WriteProgress(MonoTime now) {
  if (!page_) return;
  progress_.phase = timer_.phase();
  progress_.mono_nanos = now.time_since_epoch().count();
  page_->SetProgress(progress_);
}

void Progress::Publish() {
  const MonoTime now = MonotonicNow();
  const auto totals = timer_.Totals(now);
  for (size_t i = 0; i < totals.size(); ++i) {
    counters_.phase_seconds[i] = ToSeconds(totals[i]);
  }
  if (page_) page_->SetCounters(counters_);
  WriteProgress(now);
}

}  // namespace lockstep::worker::runtime
