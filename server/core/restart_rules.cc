#include "server/core/restart_rules.h"

#include <algorithm>
#include <utility>

#include "server/core/clock_offset.h"
#include "server/core/reports.h"

namespace lockstep::server {
namespace {

// Returns the last start of `rank`, alone or with its generation. -1 stands for
// the generation.
WallTime LastStart(const Job& job, int32_t rank) {
  // FINISHING does not store when the job became RUNNING.
  const WallTime began =
      job.state == JobState::kFinishing ? job.attempt_start : job.state_time;
  const auto lone = job.lone_ranks.find(rank);
  return lone == job.lone_ranks.end()
             ? began
             : std::max(began, lone->second.start.value_or(began));
}

// Returns the use of all processes of `rank`; for running ones the last
// reported.
Usage UsedBy(const Job& job, const JobView& view, const NodeName& node,
             const RankStatus& rank) {
  if (rank.exit) return rank.usage;
  const GangStatus* gang = GangOf(view, node, job.generation);
  if (gang == nullptr) return rank.usage;
  for (const RankStatus& report : gang->ranks) {
    if (report.rank == rank.rank) return UsageOf(job, report);
  }
  return rank.usage;
}

}  // namespace

bool WasRunning(const Job& job) {
  return job.state == JobState::kRunning || job.state == JobState::kFinishing;
}

bool MadeProgress(const Job& job, const JobView& view, const Failure& failure,
                  Time now) {
  if (!WasRunning(job)) return false;
  // A program that recovers in place tells its steps.
  const auto ranks = RanksOf(job);
  const bool steps =
      job.spec.kind == JobKind::kNative ||
      std::all_of(ranks.begin(), ranks.end(),
                  [](const RankStatus* rank) { return rank->recoverable; });
  return steps ? HighestCommitted(job, view) > job.committed_before
               : now.wall - LastStart(job, failure.rank) >= kProgramProgress;
}

void Account(Job* job, const Failure& failure, const RestartPlan& plan,
             bool progress, Time now) {
  job->failures_without_progress = plan.failures_without_progress;
  // After progress the next failure starts a new comparison.
  job->failure_signature = progress ? "" : failure.signature;
  std::erase_if(job->free_restarts, [&](WallTime time) {
    return now.wall - time >= kFreeRestartWindow;
  });
  if (plan.restart && failure.free_restart) {
    job->free_restarts.push_back(now.wall);
  }
  std::erase_if(job->uncharged_failures, [&](WallTime time) {
    return now.wall - time >= kUnchargedWindow;
  });
  if (plan.uncharged) job->uncharged_failures.push_back(now.wall);
}

bool MayReplaceRank(const Failure& failure) {
  return !failure.fatal && !failure.port_taken && !failure.holds &&
         !failure.free_restart && failure.cause.reason != Reason::kDiverged;
}

bool HasBadGpu(const TaskStatus& task, const JobView& view) {
  const auto node = view.nodes.find(task.node);
  if (node == view.nodes.end()) return false;
  const std::vector<int32_t>& bad = node->second.bad_gpus;
  return std::any_of(task.gpus.begin(), task.gpus.end(), [&](int32_t gpu) {
    return std::find(bad.begin(), bad.end(), gpu) != bad.end();
  });
}

bool IsWithoutEvidence(const Job& job, const JobView& view,
                       const Failure& failure, const GangEvidence& evidence) {
  if (failure.fatal || failure.free_restart || failure.port_taken ||
      failure.passing || failure.holds || failure.moved || failure.ordered) {
    return false;
  }
  const Reason reason = failure.cause.reason;
  if (IsOfTheHost(reason)) return true;
  // A rank that ended by itself would be the cause.
  if (reason == Reason::kFormTimeout) return true;
  if (reason == Reason::kStalled && view.all_stood) return true;
  const bool timeout = reason == Reason::kPrepareTimeout;
  if (timeout && !evidence.late.empty()) return true;
  if (!evidence.pairs.empty() &&
      (failure.peer_lost || timeout || reason == Reason::kStalled)) {
    return true;
  }
  for (const TaskStatus& task : job.tasks) {
    const auto node = view.nodes.find(task.node);
    for (const RankStatus& rank : task.ranks) {
      if (rank.rank == failure.rank && node != view.nodes.end() &&
          node->second.cools) {
        return true;
      }
    }
  }
  return false;
}

bool IsOfLastFailure(const Job& job, const RankStatus& rank) {
  if (job.recovery == 0 || !rank.exit) return false;
  const auto lone = job.lone_ranks.find(rank.rank);
  if (lone != job.lone_ranks.end() &&
      lone->second.start.value_or(WallTime{}) >= job.recovery_start) {
    return false;
  }
  if (rank.exit->end_time <= job.recovery_start + kSameTime) return true;
  // The rank came to the same line later.
  return rank.recovery < job.recovery && !rank.exit->ok() &&
         !job.failure_signature.empty() &&
         FailureOfRank(job, rank).signature == job.failure_signature;
}

void TakeBackTry(Job* job, const Failure& failure) {
  const auto& free = job->uncharged_failures;
  for (const RankStatus* rank : RanksOf(*job)) {
    if (rank->rank != failure.rank || !IsOfLastFailure(*job, *rank)) continue;
    // It is still the first time that the job has failed in this way.
    job->failure_signature.clear();
    if (std::count(free.begin(), free.end(), job->recovery_start) == 0 &&
        job->failures_without_progress > 0) {
      --job->failures_without_progress;
    }
    return;
  }
}

void RestartRank(Job* job, const JobView& view, const NodeName& node,
                 RankStatus* rank, Time now) {
  LoneRank& lone = job->lone_ranks[rank->rank];
  lone.before = UsedBy(*job, view, node, *rank);
  lone.start = now.wall;
  RankStatus fresh;
  fresh.rank = rank->rank;
  fresh.local_rank = rank->local_rank;
  fresh.restarts = rank->restarts + 1;
  fresh.usage = lone.before;
  // It is the same program.
  fresh.recoverable = rank->recoverable;
  fresh.elastic = rank->elastic;
  fresh.away = rank->away;
  *rank = std::move(fresh);
}

}  // namespace lockstep::server
