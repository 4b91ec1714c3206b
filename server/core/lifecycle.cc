#include "server/core/lifecycle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "server/core/elastic.h"
#include "server/core/ending.h"
#include "server/core/generation.h"
#include "server/core/holding.h"
#include "server/core/job_places.h"
#include "server/core/moving.h"
#include "server/core/preparing.h"
#include "server/core/recovery.h"
#include "server/core/replacing.h"
#include "server/core/reports.h"
#include "server/core/rescale.h"
#include "server/core/restart.h"
#include "server/core/spares.h"
#include "server/core/transitions.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

// ---- States ----------------------------------------------------------------

bool AnyRankFailed(const Job& job) { return FirstFailure(job).has_value(); }

bool AllRanks(const Job& job, RankState at_least) {
  const auto ranks = RanksOf(job);
  return std::all_of(ranks.begin(), ranks.end(), [&](const RankStatus* rank) {
    return rank->state >= at_least;
  });
}

// "rank 1 (worker 0 on b)", ... for ranks that are not yet `at_least`.
std::string Missing(const Job& job, RankState at_least) {
  std::vector<std::string> names;
  for (const RankStatus* rank : RanksOf(job)) {
    if (rank->state >= at_least) continue;
    if (names.size() == 5) {
      names.push_back("...");
      break;
    }
    names.push_back(RankLabel(job, rank->rank));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// Fails the generation if one of its nodes is gone or returned without it.
bool CheckNodes(Job* job, const JobView& view, bool launched, Time now) {
  const JobPlaces places(*job);
  for (const NodeName& node : NodesOf(*job)) {
    if (launched && IsDoneOn(*job, places, node)) continue;
    if (ReplacementOf(*job, node) != nullptr) continue;
    if (AllAreAwayOn(*job, node)) continue;
    if (auto loss = LossOf(view, node, job->generation, launched)) {
      Fail(job, *std::move(loss), now);
      return true;
    }
    const GangStatus* gang = GangOf(view, node, job->generation);
    if (gang != nullptr && gang->phase == GangPhase::kRefused) {
      Fail(job, RefusalBy(*job, node, gang->refusal), now);
      return true;
    }
  }
  return false;
}

// A program finds its peers by TF_CONFIG, which is omitted if it exceeds
// Linux's limit; the program would then run alone. The last task of a type has
// the longest.
std::optional<Cause> TooWideForTfConfig(const Job& job) {
  if (job.spec.kind != JobKind::kProgram) return std::nullopt;
  const std::vector<TaskSpec>& tasks = job.cluster->tasks;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (i + 1 < tasks.size() && tasks[i + 1].type == tasks[i].type) continue;
    const int32_t rank = tasks[i].ranks.front().rank;
    if (RankEnvironment(*job.cluster, rank).contains("TF_CONFIG")) continue;
    return Cause{
        Reason::kPrepareRefused,
        fmt::format("TF_CONFIG cannot hold the addresses of {} tasks, because "
                    "Linux allows 128 KiB in one variable: request fewer "
                    "tasks, or for nodes with shorter (IPv4) addresses",
                    tasks.size())};
  }
  return std::nullopt;
}

// There is nothing to save yet.
bool LeaveAtOnce(Job* job, const JobView& view, Time now) {
  if (HasSucceeded(*job)) return false;
  const std::optional<Departure> departure = MustLeave(*job, view);
  if (!departure) return false;
  Fail(job, {Reason::kNodeDrained, departure->why}, now);
  return true;
}

void DecidePreparing(Job* job, const JobView& view,
                     const LifecycleTimeouts& timeouts, Time now) {
  const bool launched = job->cluster.has_value();
  if (CheckNodes(job, view, launched, now)) return;
  if (LeaveAtOnce(job, view, now)) return;
  if (!launched) {
    std::vector<NodeName> missing;
    if (AllPrepared(*job, view, &missing)) {
      MakeClusterSpec(job, view);
      if (std::optional<Cause> cause = TooWideForTfConfig(*job)) {
        job->cluster.reset();
        job->job_key.clear();
        Fail(job, *std::move(cause), now);
        return;
      }
      const size_t ranks = RanksOf(*job).size();
      const Cause cause{
          Reason::kStartingRanks,
          fmt::format("starting {} rank{}", ranks, ranks == 1 ? "" : "s")};
      if (job->spec.kind == JobKind::kNative) {
        EnterState(job, JobState::kForming, cause, now);
      } else {
        job->cause = cause;
      }
    } else if (std::optional<Cause> late =
                   LateToPrepare(*job, view, missing, timeouts, now)) {
      Fail(job, *std::move(late), now);
    }
    return;
  }
  // A program job is starting. A short one may end before all ranks were seen
  // running; its success counts.
  const bool done = HasSucceeded(*job);
  if (!done && AnyRankFailed(*job)) {
    Fail(job, FirstFailure(*job)->cause, now);
  } else if (done || AllRanks(*job, RankState::kStarted)) {
    job->failed_formings = 0;
    EnterState(job, JobState::kRunning, {Reason::kRunning, ""}, now);
  } else if (now.mono - view.state_since > timeouts.launch) {
    Fail(
        job,
        {Reason::kFormTimeout, fmt::format("not started after {}: {}",
                                           FormatDuration(timeouts.launch),
                                           Missing(*job, RankState::kStarted))},
        now);
  }
}

void DecideForming(Job* job, const JobView& view,
                   const LifecycleTimeouts& timeouts, Time now) {
  if (CheckNodes(job, view, true, now)) return;
  if (AnyRankFailed(*job)) {
    Fail(job, FirstFailure(*job)->cause, now);
    return;
  }
  if (LeaveAtOnce(job, view, now)) return;
  // Nothing was computed yet, so success without the others is impossible.
  for (const RankStatus* rank : RanksOf(*job)) {
    if (!rank->exit) continue;
    Fail(
        job,
        {Reason::kRankExit,
         fmt::format("{}: {} before the gang had formed; is it linked with the "
                     "runtime library? If not, submit it with kind program",
                     RankLabel(*job, rank->rank), Describe(*rank->exit))},
        now);
    return;
  }
  if (AllRanks(*job, RankState::kJoined)) {
    job->failed_formings = 0;
    EnterState(job, JobState::kRunning, {Reason::kRunning, ""}, now);
    return;
  }
  const bool started = AllRanks(*job, RankState::kStarted);
  const bool late = started
                        ? view.all_started_since &&
                              now.mono - *view.all_started_since > timeouts.join
                        : now.mono - view.state_since > timeouts.launch;
  if (!late) return;
  Fail(job,
       {Reason::kFormTimeout,
        fmt::format(
            "{} after {}: {}", started ? "not joined" : "not started",
            FormatDuration(started ? timeouts.join : timeouts.launch),
            Missing(*job, started ? RankState::kJoined : RankState::kStarted))},
       now);
}

void Succeed(Job* job, Time now) {
  Finish(job, JobState::kSucceeded,
         {Reason::kCompleted,
          job->spec.end_with == EndWith::kAll
              ? std::string("all ranks are done")
              : RankLabel(*job, DecidingRank(*job).rank) + " is done"},
         0, now);
  NoteStillRunning(job, now);
}

std::optional<Cause> FailureOfGang(Job* job, const JobView& view, Time now) {
  const std::optional<Failure> failure = TakeFailures(job, view, now);
  if (!failure) return std::nullopt;
  NoteThatItCannot(job, now);
  return failure->cause;
}

void DecideRunning(Job* job, const JobView& view,
                   const LifecycleTimeouts& timeouts, Time now) {
  EndHold(job, view, now);
  if (HasStoppedOnRequest(*job, view)) {
    if (OthersStillStop(*job, view, now)) return;
    Fail(job, MovedCause(*job, view), now);
    return;
  }
  if (HasSucceeded(*job)) {
    Succeed(job, now);
    return;
  }
  // Before its ranks: a worker on a lost node does not restart there.
  std::optional<Cause> why =
      PlanReplacements(job, view, job->spec.hold.value_or(timeouts.hold), now);
  if (why) {
    Fail(job, *std::move(why), now);
    return;
  }
  CheckSpares(job, view, now);
  if (CheckNodes(job, view, true, now)) return;
  EndRecovery(job, now);
  why = CanRecover(*job, view) ? Recover(job, view, now)
                               : FailureOfGang(job, view, now);
  if (!why) why = LateRestart(*job, view, timeouts.launch, now);
  if (!why) why = EndedWithoutRecovery(*job);
  if (!why) why = LateRecovery(*job, view, timeouts.recover, now);
  if (!why && view.stall && !IsRecovering(*job)) {
    why = CauseOf(*job, *view.stall);
  }
  if (!why && (job->replacements.empty() || !LeavesInPlace(*job, view))) {
    why = Leave(job, view, now);
  }
  if (!why) why = ChangeSize(job, view, now);
  if (why) {
    Fail(job, *std::move(why), now);
    return;
  }
  NoteSlowRecovery(job, view, now);
  NoteWaiting(job, now);
}

void DecideFinishing(Job* job, const JobView& view, Time now) {
  // A cancel ends the wait; the success stands.
  if (job->outcome == JobState::kSucceeded && !job->cancel_requested) {
    if (std::optional<Failure> before = FailureBeforeTheEnd(*job)) {
      Fail(job, std::move(before->cause), now);
      return;
    }
  }
  if (!job->holds.empty()) return;
  if (*job->outcome == JobState::kSucceeded) NoteExits(job, now);
  CloseAttempt(job, view, job->cause, now);
  EnterState(job, *job->outcome, job->cause, now);
}

// Why the job is to be ended early, and since when.
struct EarlyEnd {
  Cause cause;
  Duration late{};
};

// Limits set by the job count over all attempts.
std::optional<EarlyEnd> OverTime(const Job& job, const JobView& view,
                                 Time now) {
  const JobSpec& spec = job.spec;
  if (!job.start_time && spec.max_wait_time &&
      now.wall - job.create_time > *spec.max_wait_time) {
    return EarlyEnd{{Reason::kMaxWaitTime,
                     fmt::format("waited for longer than maxWaitTime ({})",
                                 FormatDuration(*spec.max_wait_time))}};
  }
  if (IsOverRunningTime(job, now)) {
    return EarlyEnd{{Reason::kMaxRunningTime,
                     fmt::format("ran for longer than maxRunningTime ({})",
                                 FormatDuration(*spec.max_running_time))},
                    now.wall - *job.start_time - *spec.max_running_time};
  }
  if (view.idle_end) {
    return EarlyEnd{view.idle_end->cause, view.idle_end->since};
  }
  return std::nullopt;
}

void EndEarly(Job* job, const JobView& view, Cause cause, Time now) {
  if (!job->holds.empty()) {
    Finish(job, JobState::kCancelled, std::move(cause), 1, now);
    return;
  }
  CloseAttempt(job, view, cause, now);
  job->exit_code = 1;
  job->failing.reset();
  job->outcome = JobState::kCancelled;
  EnterState(job, JobState::kCancelled, std::move(cause), now);
}

void DecideState(Job* job, const JobView& view,
                 const LifecycleTimeouts& timeouts, Time now) {
  switch (job->state) {
    case JobState::kPreparing:
      DecidePreparing(job, view, timeouts, now);
      break;
    case JobState::kForming:
      DecideForming(job, view, timeouts, now);
      break;
    case JobState::kRunning:
      DecideRunning(job, view, timeouts, now);
      break;
    case JobState::kFinishing:
      DecideFinishing(job, view, now);
      break;
    case JobState::kPlacing:
      LeaveForming(job, now);
      break;
    default:
      break;  // Place() moves QUEUED and PLACING.
  }
}

}  // namespace

bool IsOverRunningTime(const Job& job, Time now) {
  return job.start_time && job.spec.max_running_time &&
         now.wall - *job.start_time > *job.spec.max_running_time;
}

Job Decide(const Job& before, const JobView& view,
           const LifecycleTimeouts& timeouts, Time now) {
  if (IsFinal(before.state)) return before;
  Job job = before;
  TakeReports(&job, view, now);
  if (job.failing && job.outcome && job.holds.empty() && !view.testing_pairs) {
    // A revoked success, and all of its ranks are gone.
    job.outcome.reset();
  }
  if (job.cancel_requested && !job.outcome) {
    EndEarly(&job, view, job.cause, now);
    return job;
  }
  if (!job.failing) {
    DecideState(&job, view, timeouts, now);
  } else if (!job.outcome && EndedBeforeItFailed(job)) {
    Succeed(&job, now);
  }
  if (!job.outcome) {
    // A job that has just ended by itself is not cut short.
    if (std::optional<EarlyEnd> end = OverTime(job, view, now)) {
      if (!SaveBeforeTheEnd(&job, view, end->cause, end->late, now) &&
          !view.capturing) {
        EndEarly(&job, view, std::move(end->cause), now);
      }
    } else if (before.failing && job.holds.empty() && !view.testing_pairs) {
      DecideAfterFailure(&job, view, now);
    }
  }
  return job;
}

}  // namespace lockstep::server
