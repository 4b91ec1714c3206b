#include "server/core/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

Reason ReasonOf(const ExitStatus& exit) {
  if (exit.out_of_memory) return Reason::kOutOfMemory;
  if (exit.reason != Reason::kNone) return exit.reason;
  switch (exit.how) {
    case ExitStatus::How::kCode:
      return exit.value == 42 ? Reason::kRestartRequested : Reason::kRankExit;
    case ExitStatus::How::kSignal:
      return Reason::kRankSignal;
    case ExitStatus::How::kExecErrno:
      return Reason::kExecFailed;
  }
  return Reason::kRankExit;
}

bool IsFatal(const ExitStatus& exit) {
  if (exit.victim) return false;
  if (exit.out_of_memory || exit.how == ExitStatus::How::kExecErrno)
    return true;
  if (exit.reason == Reason::kConfigMismatch) return true;
  return exit.how == ExitStatus::How::kCode &&
         (exit.value == 2 || exit.value == 126 || exit.value == 127);
}

Duration Backoff(Duration first, Duration most, int32_t failures) {
  Duration wait = first;
  for (int32_t i = 1; i < failures && wait < most; ++i) wait *= 2;
  return std::min(wait, most);
}

Cause CauseOf(const Job& job, const RankStatus& rank) {
  return {ReasonOf(*rank.exit),
          Shorten(fmt::format("{}: {}", RankLabel(job, rank.rank),
                              Describe(*rank.exit)))};
}

}  // namespace

bool IsOfARank(const Job& job, const Cause& cause) {
  const auto ranks = RanksOf(job);
  return std::any_of(ranks.begin(), ranks.end(), [&](const RankStatus* rank) {
    return rank->exit && !rank->exit->ok() && CauseOf(job, *rank) == cause;
  });
}

std::optional<Failure> FirstFailure(const Job& job) {
  const RankStatus* first = nullptr;
  const auto earlier = [](const RankStatus& a, const RankStatus& b) {
    if (a.exit->victim != b.exit->victim) return b.exit->victim;
    return a.exit->end_time < b.exit->end_time;
  };
  for (const RankStatus* rank : RanksOf(job)) {
    if (!rank->exit || rank->exit->ok()) continue;
    if (first == nullptr || earlier(*rank, *first)) first = rank;
  }
  if (first == nullptr) return std::nullopt;
  Failure failure;
  failure.cause = CauseOf(job, *first);
  failure.exit_code = ShellCode(*first->exit);
  failure.fatal = IsFatal(*first->exit);
  failure.victim = first->exit->victim;
  failure.free_restart = failure.cause.reason == Reason::kRestartRequested;
  return failure;
}

Failure FailureOf(const Cause& cause) {
  Failure failure;
  failure.cause = cause;
  // RANK_EXIT without a rank that failed: one ended well before its gang was
  // formed.
  failure.fatal = cause.reason == Reason::kPrepareRefused ||
                  cause.reason == Reason::kExecFailed ||
                  cause.reason == Reason::kRankExit;
  failure.moved = cause.reason == Reason::kNodeDrained;
  failure.passing = cause.reason == Reason::kNoCapacity;
  return failure;
}

RestartPlan PlanRestart(const Job& job, const Failure& failure,
                        bool made_progress, bool was_running, Time now) {
  RestartPlan plan;
  plan.cause = failure.cause;
  plan.exit_code = failure.exit_code;
  plan.failures_without_progress =
      made_progress ? 0 : job.failures_without_progress;
  if (failure.moved) {
    plan.restart = true;
    return plan;
  }
  if (failure.passing) {
    plan.restart = true;
    plan.backoff = kPassingRefusalBackoff;
    return plan;
  }
  if (failure.fatal) {
    ++plan.failures_without_progress;
    return plan;
  }
  if (failure.free_restart) {
    const auto recent = std::count_if(
        job.free_restarts.begin(), job.free_restarts.end(),
        [&](WallTime t) { return now.wall - t < kFreeRestartWindow; });
    if (made_progress || recent < 2) {
      plan.restart = true;
      return plan;
    }
    plan.cause.message +=
        "; asked for a restart three times in 60 s without progress";
  }
  const int32_t failures = ++plan.failures_without_progress;
  if (failures > job.spec.restart_budget) {
    if (failures > 1) {
      // The first failure is what a person must look at.
      const Cause& first = job.first_failure && !made_progress
                               ? *job.first_failure
                               : failure.cause;
      plan.cause = {Reason::kRestartBudget,
                    fmt::format("failed {} times without progress; first: {}",
                                failures, first.message)};
      if (job.first_failure && !made_progress && job.first_failure_code != 0) {
        plan.exit_code = job.first_failure_code;
      }
    }
    return plan;
  }
  plan.restart = true;
  plan.backoff =
      was_running ? Backoff(1s, 60s, failures) : Backoff(200ms, 10s, failures);
  return plan;
}

}  // namespace lockstep
