#include "server/metrics/straggler_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::server {
namespace {

// The minimum window for comparing ranks.
constexpr Duration kWindow = std::chrono::seconds(20);
constexpr int64_t kWindowSteps = 20;
// A rank is late if the others waited for it for this share of the time and it
// did not wait for them.
constexpr double kLatePart = 0.05;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle =
      values.begin() + static_cast<ptrdiff_t>(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void StragglerWatch::AddNodes(const Job& job) {
  for (const NodeName& node : NodesOf(job)) events_.try_emplace(node, 0);
}

void StragglerWatch::NewGeneration() {
  window_.reset();
  wait_ratio_.reset();
  late_rank_.reset();
  late_ranks_.clear();
}

void StragglerWatch::Look(const JobSnapshot& snapshot, int64_t committed,
                          MonoTime now) {
  const Job& job = *snapshot.job;
  if (job.state != JobState::kRunning || job.failing ||
      job.spec.kind != JobKind::kNative || snapshot.live.empty()) {
    window_.reset();
    return;
  }
  Window current{now, committed, {}};
  for (const auto& [number, rank] : snapshot.live) {
    const PhaseSeconds& phases = rank.progress.phases;
    if (phases.Sum() > 0 && !rank.exit) {
      current.ranks[number] = {phases.straggler_wait, phases.Sum()};
    }
  }
  if (!window_ && current.ranks.size() < 2) return;
  if (window_ && (now - window_->since < kWindow ||
                  committed - window_->step < kWindowSteps)) {
    return;
  }
  if (window_) CloseWindow(job, current);
  window_ = std::move(current);
}

void StragglerWatch::CloseWindow(const Job& job, const Window& end) {
  wait_ratio_.reset();
  late_rank_.reset();
  std::map<int32_t, double> waited;
  double waits = 0, total = 0;
  for (const auto& [rank, now] : end.ranks) {
    const auto then = window_->ranks.find(rank);
    if (then == window_->ranks.end()) continue;
    waited[rank] = std::max(0.0, now.first - then->second.first);
    waits += waited[rank];
    total += std::max(0.0, now.second - then->second.second);
  }
  if (waited.size() < 2 || total <= 0) return;
  wait_ratio_ = std::min(1.0, waits / total);
  const auto late = std::min_element(
      waited.begin(), waited.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<double> others;
  for (const auto& [rank, wait] : waited) {
    if (rank != late->first) others.push_back(wait);
  }
  const double each = total / static_cast<double>(waited.size());
  if (Median(others) - late->second <= kLatePart * each) return;
  late_rank_ = late->first;
  for (const TaskStatus& task : job.tasks) {
    for (const RankStatus& rank : task.ranks) {
      if (rank.rank != *late_rank_) continue;
      ++events_[task.node];
      late_ranks_[task.node] = rank.rank;
    }
  }
}

}  // namespace lockstep::server
