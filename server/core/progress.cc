#include "server/core/progress.h"

#include <algorithm>

namespace lockstep::server {

void ProgressMeter::Reset(Generation generation) {
  if (generation == generation_) return;
  *this = ProgressMeter();
  generation_ = generation;
}

void ProgressMeter::Take(int32_t rank, const RankProgress& progress, Time now) {
  const auto known = ranks_.find(rank);
  if (known != ranks_.end() &&
      progress.committed_step > known->second.committed_step) {
    last_step_time_ = now.mono;
  }
  ranks_[rank] = progress;
  const auto known_chief = ranks_.find(chief_);
  if (rank == next_chief_ &&
      (progress.committed_step > 0 || known_chief == ranks_.end() ||
       known_chief->second.committed_step <= 0)) {
    chief_ = next_chief_;
  }
  if (rank != chief_) return;
  heard_ = now.wall;
  Sample sample{now.mono, 0, progress.committed_step};
  for (const auto& [r, p] : ranks_) sample.samples += p.samples;
  // A process that replaces the chief's has no step until it has the state.
  if (!samples_.empty() && samples_.back().steps > 0 && sample.steps <= 0) {
    return;
  }
  // Before its first sample a rank restores, and its step jumps from 0, or of a
  // program from -1, to the resumed one. (A rank that counts no samples still
  // makes steps.)
  if (!samples_.empty() && samples_.back().samples == 0 &&
      (sample.samples > 0 || samples_.back().steps <= 0)) {
    samples_.clear();
  }
  samples_.push_back(sample);
  // At least two samples: the window may be shorter than the report interval.
  while (samples_.size() > 2 && now.mono - samples_[1].time > kWindow) {
    samples_.pop_front();
  }
}

JobProgressInfo ProgressMeter::Info() const {
  JobProgressInfo info;
  info.generation = generation_;
  info.time = heard_;
  if (const auto chief = ranks_.find(chief_); chief != ranks_.end()) {
    info.chief = chief->second;
  }
  if (samples_.size() < 2) return info;
  const Sample& first = samples_.front();
  const Sample& last = samples_.back();
  const double seconds = ToSeconds(last.time - first.time);
  if (seconds <= 0) return info;
  info.samples_per_second = std::max(
      0.0, static_cast<double>(last.samples - first.samples) / seconds);
  info.steps_per_second =
      std::max(0.0, static_cast<double>(last.steps - first.steps) / seconds);
  const int64_t left = info.chief.total_steps - info.chief.committed_step;
  if (info.chief.total_steps > 0 && left >= 0 && info.steps_per_second > 0) {
    info.eta = Seconds(static_cast<double>(left) / info.steps_per_second);
  }
  return info;
}

}  // namespace lockstep::server
