#include "server/core/restart.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "server/core/ending.h"
#include "server/core/evidence.h"
#include "server/core/generation.h"
#include "server/core/holding.h"
#include "server/core/job_roles.h"
#include "server/core/reports.h"
#include "server/core/rescale.h"
#include "server/core/restart_rules.h"
#include "server/core/transitions.h"

namespace lockstep::server {
namespace {

// Causes that ranks' exits do not override, because the exits follow from them.
bool StandsByItself(Reason reason) {
  return reason == Reason::kNodeLost || reason == Reason::kNodeForgotten ||
         reason == Reason::kNodeDrained || reason == Reason::kStalled ||
         reason == Reason::kRestoreOrdered || reason == Reason::kResized;
}

std::string WhatNow(const Job& job, const Failure& failure,
                    const RestartPlan& plan, const GangEvidence& evidence,
                    Time now) {
  if (plan.uncharged) {
    const std::string lost = Describe(evidence.pairs);
    return fmt::format("{}{}uses up no try ({} of {} such failures an hour)",
                       lost, lost.empty() ? "" : "; ",
                       UnchargedFailures(job, now.wall), kMostUncharged);
  }
  if (failure.cause.reason == Reason::kResized) {
    return fmt::format("continuing with {} tasks", WantedSize(job));
  }
  if (failure.moved) return "continuing elsewhere";
  if (failure.ordered) return "restarting";
  if (failure.port_taken) return "restarting on other ports";
  return fmt::format("retrying ({} of {} failures without progress)",
                     job.failures_without_progress, job.spec.restart_budget);
}

bool AnyHasBadGpu(const Job& job, const JobView& view) {
  return std::any_of(
      job.tasks.begin(), job.tasks.end(),
      [&](const TaskStatus& task) { return HasBadGpu(task, view); });
}

bool AllTakeWork(const Job& job, const JobView& view) {
  if (AnyHasBadGpu(job, view)) return false;
  const std::set<NodeName> nodes = NodesOf(job);
  return std::all_of(nodes.begin(), nodes.end(), [&](const NodeName& node) {
    const auto it = view.nodes.find(node);
    return it != view.nodes.end() && it->second.state == NodeState::kReady &&
           it->second.takes_work;
  });
}

Failure Judge(const Job& job) {
  const std::optional<Failure> first = FirstFailure(job);
  // Stopped ranks do not explain a timeout or a lost node.
  if (!first || StandsByItself(job.failing->reason) ||
      (first->victim && !IsOfARank(job, *job.failing))) {
    Failure failure = FailureOf(*job.failing);
    // The directory was shared before, so a mount may return.
    if (failure.cause.reason == Reason::kOutputNotShared && job.start_time) {
      failure.cause.reason = Reason::kOutputMissing;
      failure.fatal = false;
      failure.holds = true;
    }
    return failure;
  }
  return *first;
}

// Returns the first failed rank of a task, or null.
const RankStatus* FirstFailed(const TaskStatus& task) {
  const RankStatus* first = nullptr;
  for (const RankStatus& rank : task.ranks) {
    if (!rank.exit || rank.exit->ok()) continue;
    if (first == nullptr || rank.exit->end_time < first->exit->end_time) {
      first = &rank;
    }
  }
  return first;
}

void SetWaits(Job* job, const TaskStatus& task, bool waits) {
  for (const RankStatus& rank : task.ranks) {
    job->lone_ranks[rank.rank].waits = waits;
  }
}

void RestartAlone(Job* job, const JobView& view, TaskStatus* task,
                  const Failure& failure, Time now) {
  SetWaits(job, *task, false);
  for (RankStatus& rank : task->ranks) {
    RestartRank(job, view, task->node, &rank, now);
  }
  AddEvent(job, Reason::kWorkerRestarted,
           fmt::format("{}; restarted alone ({} of {} failures without "
                       "progress)",
                       failure.cause.message, job->failures_without_progress,
                       job->spec.restart_budget),
           now);
}

// A disk that is full for days would displace all other history.
void ForgetRefusal(Job* job) {
  if (PassingRefusals(*job) <= kPassingRefusalsKept) return;
  ForgetEvents(job);
  job->attempts.erase(job->attempts.end() - 2);
}

}  // namespace

void DecideAfterFailure(Job* job, const JobView& view, Time now) {
  Failure failure = Judge(*job);
  if (AnyHasBadGpu(*job, view)) failure.signature.clear();
  const GangEvidence evidence = EvidenceOf(job->tasks, job->generation, view);
  failure.uncharged = IsWithoutEvidence(*job, view, failure, evidence);
  const bool was_running = WasRunning(*job);
  const bool progress = MadeProgress(*job, view, failure, now);
  TakeBackTry(job, failure);
  const RestartPlan plan = PlanRestart(*job, failure, progress, now);
  MarkVictims(job, failure);
  CloseAttempt(job, view, failure.cause, now);
  if (failure.holds) {
    EnterHold(job, failure, now);
    return;
  }
  // All peers lose a lost node; that is not evidence about the network.
  const bool cannot_form = plan.uncharged && !evidence.pairs.empty() &&
                           !IsOfTheHost(failure.cause.reason);
  if (!failure.passing && !failure.ordered && !cannot_form) {
    job->output_hold.reset();
  }
  if (!was_running && !failure.moved && !failure.ordered)
    ++job->failed_formings;
  Account(job, failure, plan, progress, now);
  if (!plan.restart) {
    Finish(job, JobState::kFailed, plan.cause, plan.exit_code, now);
    return;
  }
  ++job->restarts;
  job->not_before = now.wall + plan.backoff;
  AddEvent(job, plan.uncharged ? Reason::kNotCharged : failure.cause.reason,
           fmt::format("{}; {}", failure.cause.message,
                       WhatNow(*job, failure, plan, evidence, now)),
           now);
  NoteGangRestart(job, now);
  if (cannot_form) {
    HoldForming(job, Describe(evidence.pairs), plan.backoff, now);
    return;
  }
  // The first restart of a running job is immediate, because a backoff would
  // idle its hosts. A FINISHING job has released some already.
  // The places of a gang that may have another size are the scheduler's.
  // So are those of one that has released some (replacing.h).
  const bool has_all_places = std::none_of(
      job->replacements.begin(), job->replacements.end(),
      [](const Replacement& replacement) { return replacement.released; });
  const bool at_once =
      job->state != JobState::kFinishing && SizeOf(*job) == WantedSize(*job) &&
      has_all_places &&
      (plan.backoff == Duration{} ||
       (was_running && plan.failures_without_progress <= 1 && !plan.uncharged));
  if (at_once && AllTakeWork(*job, view)) {
    StartGeneration(job, now);
    return;
  }
  job->failing.reset();
  Cause cause{Reason::kBackoff,
              fmt::format("next try in {}", FormatDuration(plan.backoff))};
  if (failure.moved) cause = {Reason::kNodeDrained, "looking for other nodes"};
  if (failure.cause.reason == Reason::kResized) {
    cause = {Reason::kResized,
             fmt::format("looking for room for {} tasks", WantedSize(*job))};
  }
  if (plan.uncharged && plan.backoff == Duration{}) {
    cause = {failure.cause.reason, "looking for other nodes"};
  }
  EnterState(job, JobState::kPlacing, std::move(cause), now);
  if (failure.passing) ForgetRefusal(job);
}

std::optional<Failure> TakeFailures(Job* job, const JobView& view, Time now) {
  std::vector<TaskStatus*> alone;
  for (TaskStatus& task : job->tasks) {
    if (FirstFailed(task) == nullptr) continue;
    if (!MayRestartAlone(*job, task)) {
      // A native rank that waited to be replaced waits no longer.
      if (job->spec.kind == JobKind::kNative) SetWaits(job, task, false);
      return FirstFailure(*job);
    }
    alone.push_back(&task);
  }
  for (TaskStatus* task : alone) {
    const RankStatus* rank = FirstFailed(*task);
    Failure failure = FailureOfRank(*job, *rank);
    // Two workers that fail alike once are not one failure repeated.
    failure.signature.clear();
    const bool progress = MadeProgress(*job, view, failure, now);
    const RestartPlan plan = PlanRestart(*job, failure, progress, now);
    // Other ports change the cluster spec, so the whole gang restarts.
    if (!plan.restart || failure.port_taken || HasBadGpu(*task, view)) {
      SetWaits(job, *task, false);
      return FirstFailure(*job);
    }
    // The first restart is immediate, as for the gang.
    if (plan.failures_without_progress > 1 &&
        now.wall < rank->exit->end_time + plan.backoff) {
      // From here on it restarts whatever the others do.
      SetWaits(job, *task, true);
      continue;
    }
    Account(job, failure, plan, progress, now);
    RestartAlone(job, view, task, failure, now);
  }
  return std::nullopt;
}

void AwaitRestarts(const Job& job, const JobView& view, Time now,
                   AwaitedSince* since) {
  AwaitedSince awaited;
  const bool running = job.state == JobState::kRunning && !job.failing;
  for (const TaskStatus& task : job.tasks) {
    const auto node = view.nodes.find(task.node);
    if (!running || node == view.nodes.end() ||
        node->second.state != NodeState::kReady || !node->second.reported) {
      continue;
    }
    for (const RankStatus& rank : task.ranks) {
      if (rank.restarts == 0 || rank.away ||
          rank.state >= RankState::kStarted) {
        continue;
      }
      const std::pair key(rank.rank, rank.restarts);
      const auto known = since->find(key);
      awaited[key] = known == since->end() ? now.mono : known->second;
    }
  }
  *since = std::move(awaited);
}

std::optional<Cause> LateRestart(const Job& job, const JobView& view,
                                 Duration timeout, Time now) {
  for (const RankStatus* rank : RanksOf(job)) {
    if (rank->state >= RankState::kStarted) continue;
    const auto since = view.awaited_since.find({rank->rank, rank->restarts});
    if (since == view.awaited_since.end() ||
        now.mono - since->second <= timeout) {
      continue;
    }
    return Cause{
        Reason::kFormTimeout,
        fmt::format("{} did not restart within {}", RankLabel(job, rank->rank),
                    FormatDuration(timeout))};
  }
  return std::nullopt;
}

}  // namespace lockstep::server
