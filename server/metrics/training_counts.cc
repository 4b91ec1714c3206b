#include "server/metrics/training_counts.h"

#include <algorithm>
#include <utility>

#include "server/core/elastic.h"

namespace lockstep::server {

TrainingCounts::TrainingCounts(const Job& job)
    : committed_(std::max<int64_t>(0, job.committed_step.value_or(0))),
      redo_until_(std::max<int64_t>(0, job.committed_before)) {}

void TrainingCounts::NewGeneration(const Job& job) {
  fresh_ = true;
  redo_until_ = std::max({redo_until_, committed_, job.committed_before});
  // The counts of its processes begin at 0, except the step.
  steps_.last.reset();
  samples_.last = 0;
  stall_.last = 0;
}

void TrainingCounts::Take(const JobSnapshot& snapshot) {
  if (snapshot.live.empty()) return;
  const Job& job = *snapshot.job;
  double samples = 0;
  for (const auto& [number, rank] : snapshot.live) {
    samples += static_cast<double>(rank.progress.samples);
  }
  const double counted = samples_.total;
  samples_.Take(samples);
  const int32_t speaks = job.tasks.empty() ? 0 : ChiefRank(job).rank;
  // The pauses of another rank's process.
  if (std::exchange(chief_, speaks) != speaks) stall_.last.reset();
  const auto chief = snapshot.live.find(speaks);
  if (chief == snapshot.live.end()) return;
  const RankProgress& said = chief->second.progress;
  if (const auto each = said.values.find(kFlopsPerSample);
      each != said.values.end() && each->second > 0) {
    flops_ = flops_.value_or(0) + (samples_.total - counted) * each->second;
  }
  stall_.Take(said.phases.checkpoint);
  const int64_t start =
      job.lineage.empty() || job.lineage.back().generation != job.generation
          ? 0
          : std::max<int64_t>(0, job.lineage.back().start_step);
  // It has not reported its first step yet, so it has done nothing.
  if (said.committed_step < start) return;
  committed_ = said.committed_step;
  if (!steps_.last) {
    // If the start is unknown, counting begins here.
    const bool known = fresh_ && (start > 0 || redo_until_ == 0);
    steps_.last = static_cast<double>(known ? start : committed_);
  }
  steps_.Take(static_cast<double>(committed_));
}

}  // namespace lockstep::server
