#include "server/metrics/recovery_timer.h"

#include <algorithm>

#include "server/core/elastic.h"
#include "server/core/recovery.h"
#include "server/core/replacing.h"

namespace lockstep::server {
namespace {

constexpr const char* kInPlacePhases[] = {"node", "wait", "start", "form"};

int64_t LoneRestartsOf(const Job& job) {
  int64_t restarts = 0;
  for (const RankStatus* rank : RanksOf(job)) restarts += rank->restarts;
  return restarts;
}

size_t MovesOf(const Job& job) {
  size_t moves = 0;
  for (const TaskStatus& task : job.tasks) moves += task.former_nodes.size();
  return moves;
}

// REQUIRES: IsRecovering(job).
const char* InPlacePhaseOf(const Job& job) {
  if (HasLostNode(job)) return "node";
  const auto ranks = RanksOf(job);
  const auto any = [&](auto is) {
    return std::any_of(ranks.begin(), ranks.end(), is);
  };
  if (any([](const RankStatus* rank) {
        return rank->exit.has_value() && !rank->away;
      })) {
    return "wait";
  }
  return any([](const RankStatus* rank) {
    return rank->state < RankState::kStarted && !rank->away;
  })
             ? "start"
             : "form";
}

}  // namespace

RecoveryTimings::RecoveryTimings() {
  for (const char* phase : kInPlacePhases) {
    phases.emplace(phase, Histogram(kLongBuckets));
  }
  phases.emplace("total", Histogram(kLongBuckets));
  for (const char* kind : {"rank", "node", "network", "smaller", "return"})
    kinds[kind] = 0;
}

void RecoveryTimer::OnJob(const Job& before, const Job& after, MonoTime now,
                          RecoveryTimings* timings) {
  const bool is = IsRecovering(after);
  if (!recovery_ && is) {
    recovery_ = Recovery{now,
                         now,
                         {},
                         LoneRestartsOf(before),
                         MovesOf(before),
                         AwayRanks(before).size()};
    return;
  }
  if (!recovery_) return;
  if (IsRecovering(before)) {
    recovery_->phases[InPlacePhaseOf(before)] +=
        ToSeconds(now - recovery_->phase_since);
  }
  recovery_->phase_since = now;
  if (is) return;
  if (after.state == JobState::kRunning && !after.failing &&
      after.generation == before.generation) {
    for (const char* phase : kInPlacePhases) {
      timings->phases.at(phase).Observe(recovery_->phases[phase]);
    }
    timings->phases.at("total").Observe(ToSeconds(now - recovery_->began));
    const char* kind = "network";
    if (LoneRestartsOf(after) > recovery_->restarts) kind = "rank";
    if (MovesOf(after) > recovery_->moves) kind = "node";
    const size_t away = AwayRanks(after).size();
    if (away > recovery_->away) kind = "smaller";
    if (away < recovery_->away) kind = "return";
    ++timings->kinds[kind];
  }
  recovery_.reset();
}

}  // namespace lockstep::server
