#include "server/core/lifecycle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "server/core/generation.h"
#include "server/core/moving.h"
#include "server/core/reports.h"
#include "server/core/verdict.h"

namespace lockstep {
namespace {

// ---- Ends ------------------------------------------------------------------

void Finish(Job* job, JobState outcome, Cause cause, int32_t exit_code,
            Time now) {
  job->outcome = outcome;
  job->exit_code = exit_code;
  job->failing.reset();
  EnterState(job, JobState::kFinishing, std::move(cause), now);
}

// Stops the generation; what comes next is decided when it is gone.
void Fail(Job* job, Cause cause, Time now) {
  cause.message = Shorten(std::move(cause.message));
  AddEvent(job, cause.reason, cause.message + "; stopping the generation", now);
  job->cause = {Reason::kStoppingRanks,
                cause.message + "; stopping the other ranks"};
  job->failing = std::move(cause);
}

// Causes that stand whatever the ranks' exits say: these followed from them.
bool StandsByItself(Reason reason) {
  return reason == Reason::kNodeLost || reason == Reason::kNodeForgotten ||
         reason == Reason::kNodeDrained || reason == Reason::kStalled;
}

// Everything of the failed generation is gone: try again or give up.
void DecideAfterFailure(Job* job, const JobView& view, Time now) {
  std::optional<Failure> failure = FirstFailure(*job);
  // Ranks that were only stopped do not explain a timeout or a lost node.
  if (!failure || StandsByItself(job->failing->reason) ||
      (failure->victim && !IsOfARank(*job, *job->failing))) {
    failure = FailureOf(*job->failing);
  }
  const bool was_running = job->state == JobState::kRunning;
  const bool progress =
      was_running &&
      (job->spec.kind == JobKind::kNative
           ? HighestCommitted(*job, view) > job->committed_before
           : now.wall - job->state_time >= std::chrono::minutes(10));
  const RestartPlan plan =
      PlanRestart(*job, *failure, progress, was_running, now);
  CloseAttempt(job, view, failure->cause, now);
  job->failures_without_progress = plan.failures_without_progress;
  if (!was_running && !failure->moved) ++job->failed_formings;
  if (!failure->moved && (progress || !job->first_failure)) {
    job->first_failure = failure->cause;
    job->first_failure_code = failure->exit_code;
  }
  if (!plan.restart) {
    Finish(job, JobState::kFailed, plan.cause, plan.exit_code, now);
    return;
  }
  std::erase_if(job->free_restarts, [&](WallTime time) {
    return now.wall - time >= kFreeRestartWindow;
  });
  if (failure->free_restart) job->free_restarts.push_back(now.wall);
  ++job->restarts;
  job->not_before = now.wall + plan.backoff;
  AddEvent(
      job, failure->cause.reason,
      failure->moved
          ? failure->cause.message + "; going on elsewhere"
          : fmt::format("{}; trying again ({} of {} failures without progress)",
                        failure->cause.message, plan.failures_without_progress,
                        job->spec.restart_budget),
      now);
  // A job that ran goes on at once where it is, the first time: backing off
  // would only idle its hosts.
  const std::set<NodeName> nodes = NodesOf(*job);
  const bool in_place =
      was_running && plan.failures_without_progress <= 1 &&
      std::all_of(nodes.begin(), nodes.end(), [&](const NodeName& node) {
        const auto it = view.nodes.find(node);
        return it != view.nodes.end() &&
               it->second.state == NodeState::kReady && it->second.takes_work;
      });
  if (in_place) {
    StartGeneration(job, now);
    return;
  }
  job->failing.reset();
  Cause cause{Reason::kBackoff,
              fmt::format("next try in {}", FormatDuration(plan.backoff))};
  if (failure->moved) cause = {Reason::kNodeDrained, "looking for other nodes"};
  EnterState(job, JobState::kPlacing, std::move(cause), now);
}

// ---- States ----------------------------------------------------------------

bool AnyRankFailed(const Job& job) { return FirstFailure(job).has_value(); }

bool AllRanks(const Job& job, RankState at_least) {
  const auto ranks = RanksOf(job);
  return std::all_of(ranks.begin(), ranks.end(), [&](const RankStatus* rank) {
    return rank->state >= at_least;
  });
}

// "rank 1 (worker 0 on b)", ... of those that are not yet `at_least`.
std::string Missing(const Job& job, RankState at_least) {
  std::vector<std::string> names;
  for (const RankStatus* rank : RanksOf(job)) {
    if (rank->state < at_least) names.push_back(RankLabel(job, rank->rank));
  }
  if (names.size() > 5) {
    names.resize(5);
    names.push_back("...");
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// A node that the generation runs on is gone, or came back without it.
bool CheckNodes(Job* job, const JobView& view, bool launched, Time now) {
  for (const NodeName& node : NodesOf(*job)) {
    if (IsLost(view, node)) {
      const bool forgotten = view.nodes.at(node).forgotten;
      Fail(job,
           forgotten
               ? Cause{Reason::kNodeForgotten,
                       fmt::format("node {} was given up by an operator", node)}
               : Cause{Reason::kNodeLost, fmt::format("node {} is lost", node)},
           now);
      return true;
    }
    if (launched && SaysNothing(view, node, job->generation)) {
      Fail(job,
           {Reason::kNodeLost,
            fmt::format("node {} came back without the job's ranks", node)},
           now);
      return true;
    }
    const GangStatus* gang = GangOf(view, node, job->generation);
    if (gang != nullptr && gang->phase == GangPhase::kRefused) {
      Cause cause = gang->refusal;
      cause.message = fmt::format("node {}: {}", node, cause.message);
      Fail(job, std::move(cause), now);
      return true;
    }
  }
  return false;
}

// Nothing to save yet.
bool LeaveAtOnce(Job* job, const JobView& view, Time now) {
  const RankStatus& deciding = DecidingRank(*job);
  if (deciding.exit && deciding.exit->ok()) return false;
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
      const size_t ranks = RanksOf(*job).size();
      const Cause cause{
          Reason::kStartingRanks,
          fmt::format("starting {} rank{}", ranks, ranks == 1 ? "" : "s")};
      if (job->spec.kind == JobKind::kNative) {
        EnterState(job, JobState::kForming, cause, now);
      } else {
        job->cause = cause;
      }
    } else if (now.mono - view.state_since > timeouts.prepare) {
      Fail(job,
           {Reason::kPrepareTimeout,
            fmt::format("not prepared after {}: {}",
                        FormatDuration(timeouts.prepare),
                        fmt::join(missing, ", "))},
           now);
    }
    return;
  }
  // A program job that is being started. One that is short may be over before
  // all of it was seen to run; its success counts all the same.
  const RankStatus& deciding = DecidingRank(*job);
  const bool done = deciding.exit && deciding.exit->ok();
  if (!done && AnyRankFailed(*job)) {
    Fail(job, FirstFailure(*job)->cause, now);
  } else if (done || AllRanks(*job, RankState::kStarted)) {
    job->failed_formings = 0;
    EnterState(job, JobState::kRunning, {Reason::kRunning, ""}, now);
  } else if (now.mono - view.state_since > timeouts.prepare + timeouts.launch) {
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
  // Nothing was computed yet: success without the others cannot be.
  for (const RankStatus* rank : RanksOf(*job)) {
    if (!rank->exit) continue;
    Fail(
        job,
        {Reason::kRankExit,
         fmt::format("{}: {} before the gang was formed; is it linked with the "
                     "runtime library? Others are jobs of kind program",
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

Cause CauseOf(const Job& job, const Stall& stall) {
  if (stall.rank < 0) {
    return {
        Reason::kStalled,
        fmt::format("all {} ranks have stood in the all-reduce of step {} "
                    "for {}: the network between them is cut, or one was "
                    "stopped there",
                    stall.waiting, stall.step, FormatDuration(stall.still))};
  }
  return {Reason::kStalled,
          fmt::format("{} has stood in {} of step {} for {} while {} other "
                      "rank{} for it; a step of this job should end within {}",
                      RankLabel(job, stall.rank), stall.phase, stall.step,
                      FormatDuration(stall.still), stall.waiting,
                      stall.waiting == 1 ? " waits" : "s wait",
                      FormatDuration(stall.deadline))};
}

void DecideRunning(Job* job, const JobView& view, Time now) {
  const RankStatus& deciding = DecidingRank(*job);
  if (HasStoppedAsTold(*job)) {
    Fail(job, MovedCause(*job, view), now);
    return;
  }
  if (deciding.exit && deciding.exit->ok()) {
    Finish(job, JobState::kSucceeded,
           {Reason::kCompleted, RankLabel(*job, deciding.rank) + " is done"}, 0,
           now);
    return;
  }
  if (AnyRankFailed(*job)) {
    Fail(job, FirstFailure(*job)->cause, now);
    return;
  }
  if (CheckNodes(job, view, true, now)) return;
  if (view.stall) {
    Fail(job, CauseOf(*job, *view.stall), now);
    return;
  }
  if (std::optional<Cause> cause = Leave(job, view, now)) {
    Fail(job, *std::move(cause), now);
  }
}

void DecideFinishing(Job* job, const JobView& view, Time now) {
  if (!job->holds.empty()) return;
  CloseAttempt(job, view, job->cause, now);
  EnterState(job, *job->outcome, job->cause, now);
}

// Limits that the job itself set: they count over all attempts.
std::optional<Cause> OverTime(const Job& job, Time now) {
  const JobSpec& spec = job.spec;
  if (!job.start_time && spec.max_wait_time &&
      now.wall - job.create_time > *spec.max_wait_time) {
    return Cause{Reason::kMaxWaitTime,
                 fmt::format("waited for longer than maxWaitTime ({})",
                             FormatDuration(*spec.max_wait_time))};
  }
  if (job.start_time && spec.max_running_time &&
      now.wall - *job.start_time > *spec.max_running_time) {
    return Cause{Reason::kMaxRunningTime,
                 fmt::format("ran for longer than maxRunningTime ({})",
                             FormatDuration(*spec.max_running_time))};
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
      DecideRunning(job, view, now);
      break;
    case JobState::kFinishing:
      DecideFinishing(job, view, now);
      break;
    default:
      break;  // QUEUED and PLACING wait for Place().
  }
}

}  // namespace

Job Decide(const Job& before, const JobView& view,
           const LifecycleTimeouts& timeouts, Time now) {
  if (IsFinal(before.state)) return before;
  Job job = before;
  TakeReports(&job, view, now);
  if (job.cancel_requested && !job.outcome) {
    EndEarly(&job, view, job.cause, now);
    return job;
  }
  if (!job.failing) DecideState(&job, view, timeouts, now);
  if (!job.outcome) {
    // A job that has just come to its end by itself is not cut short.
    if (std::optional<Cause> cause = OverTime(job, now)) {
      EndEarly(&job, view, *std::move(cause), now);
    } else if (before.failing && job.holds.empty()) {
      DecideAfterFailure(&job, view, now);
    }
  }
  return job;
}

}  // namespace lockstep
