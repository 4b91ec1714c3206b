#include "server/core/recovery.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/core/elastic.h"
#include "server/core/evidence.h"
#include "server/core/loss.h"
#include "server/core/moving.h"
#include "server/core/replacing.h"
#include "server/core/reports.h"
#include "server/core/restart_rules.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

bool Waits(const Job& job, const RankStatus& rank) {
  const auto lone = job.lone_ranks.find(rank.rank);
  return HasFailed(rank) && !rank.away && lone != job.lone_ranks.end() &&
         lone->second.waits;
}

bool NeedsTheGang(const Job& job, const JobView& view, const TaskStatus& task,
                  const RankStatus& rank) {
  const auto node = view.nodes.find(task.node);
  if (HasBadGpu(task, view) ||
      (node != view.nodes.end() && node->second.cools)) {
    return true;
  }
  return HasFailed(rank) && !MayReplaceRank(FailureOfRank(job, rank));
}

std::string Tries(const Job& job, const Loss& loss, const RestartPlan& plan,
                  Time now) {
  if (loss.IsFree()) return "";
  if (plan.uncharged) {
    return fmt::format("; it uses up no try, {} of {} such failures an hour",
                       UnchargedFailures(job, now.wall), kMostUncharged);
  }
  return fmt::format("; {} of {} failures without progress",
                     job.failures_without_progress, job.spec.restart_budget);
}

void SetMembership(Job* job, const Loss& loss, RankStatus* rank, Time now) {
  if (loss.away.contains(rank->rank)) {
    rank->away = true;
    rank->returned = 0;
    // Its first start, if it is not now, comes after the wait of a retry.
    int32_t& failures = job->lone_ranks[rank->rank].failures_away;
    failures = loss.later
                   ? std::max({failures, job->failures_without_progress, 1})
                   : 0;
  } else if (rank->away && loss.returning.contains(rank->rank)) {
    rank->away = false;
    rank->returned = job->recovery;
    job->lone_ranks[rank->rank].returned = now.wall;
  }
}

// REQUIRES: the ranks are what they are in the recovery.
void Note(Job* job, const JobView& view, const Loss& loss,
          const std::string& what, Time now) {
  InPlaceRecovery recovery;
  recovery.generation = job->generation;
  recovery.number = job->recovery;
  recovery.start_time = now.wall;
  recovery.cause = {loss.failure.cause.reason, Shorten(what)};
  if (recovery.cause.reason == Reason::kNone) {
    recovery.cause.reason = Reason::kRecovering;
  }
  if (!loss.later) {
    recovery.replaced_ranks = {loss.ranks.begin(), loss.ranks.end()};
  }
  recovery.away_ranks = AwayRanks(*job);
  for (const RankStatus* rank : RanksOf(*job)) {
    if (rank->returned == job->recovery) {
      recovery.returned_ranks.push_back(rank->rank);
    }
  }
  const int64_t step = HighestCommitted(*job, view);
  if (step >= 0) recovery.step = step;
  std::vector<InPlaceRecovery>& all = job->in_place_recoveries;
  all.push_back(std::move(recovery));
  if (all.size() > kMaxInPlaceRecoveries) all.erase(all.begin());
}

void Begin(Job* job, const JobView& view, const Loss& loss,
           const RestartPlan& plan, Time now) {
  const std::string what = Describe(*job, loss);
  job->committed_before =
      std::max(job->committed_before, HighestCommitted(*job, view));
  for (const RankStatus* rank : RanksOf(*job)) {
    job->recovery = std::max(job->recovery, rank->recovery);
  }
  ++job->recovery;
  ++job->recoveries;
  if (!loss.known && !loss.failure.cause.message.empty()) {
    job->recovery_start = now.wall;
  }
  for (TaskStatus& task : job->tasks) {
    for (RankStatus& rank : task.ranks) {
      if (loss.ranks.contains(rank.rank) && !loss.later) {
        RestartRank(job, view, task.node, &rank, now);
      }
      SetMembership(job, loss, &rank, now);
    }
  }
  Note(job, view, loss, what, now);
  for (const NodeName& node : loss.from) MoveTasks(job, view, node);
  if (!loss.ranks.empty() && loss.away.empty()) {
    NoteThatItCannot(job, now);
    NoteThatItCould(job, loss.ranks, now);
  }
  AddEvent(job, Reason::kRecovering,
           fmt::format("{} (recovery {}{})", what, job->recovery,
                       Tries(*job, loss, plan, now)),
           now);
  job->cause = {
      Reason::kRecovering,
      loss.ranks.empty() || !loss.away.empty()
          ? fmt::format("recovery {}: the ranks form a new communicator",
                        job->recovery)
          : fmt::format("recovery {}: {} {} replaced", job->recovery,
                        RanksLabel(loss.ranks),
                        loss.ranks.size() == 1 ? "is" : "are")};
}

// From here on the lost ranks are replaced whatever the others do.
void Wait(Job* job, const Loss& loss, const RestartPlan& plan) {
  if (loss.ranks.empty()) return;
  for (const int32_t rank : loss.ranks) job->lone_ranks[rank].waits = true;
  job->cause = {Reason::kRecovering,
                fmt::format("{} {} replaced after {}", RanksLabel(loss.ranks),
                            loss.ranks.size() == 1 ? "is" : "are",
                            FormatDuration(plan.backoff))};
}

bool AllNodesTell(const Job& job, const JobView& view) {
  const std::set<NodeName> nodes = NodesOf(job);
  return std::all_of(nodes.begin(), nodes.end(), [&](const NodeName& name) {
    if (AllAreAwayOn(job, name)) return true;
    const auto node = view.nodes.find(name);
    return node != view.nodes.end() &&
           node->second.state == NodeState::kReady && node->second.reported;
  });
}

std::string HasNotEnded(const Job& job, Duration after) {
  return fmt::format("recovery {} has not ended after {}", job.recovery,
                     FormatDuration(after));
}

// The times of a view are those of the recovery before where a new one has just
// begun.
bool TakesLongerThan(const Job& job, const JobView& view, Duration limit,
                     Time now) {
  return view.recovery.recovery == job.recovery && view.recovery.started &&
         now.mono - *view.recovery.started > limit;
}

// ": rank 1 has not joined". Ranks join together, so those that wait for the
// others have left the communicator before.
std::string WhoHasNotJoined(const Job& job) {
  std::set<int32_t> missing;
  for (const RankStatus* rank : RanksOf(job)) {
    if (!rank->away && !HasLeftForNewest(job, *rank)) {
      missing.insert(rank->rank);
    }
  }
  if (missing.empty()) {
    return fmt::format(
        ": all ranks are there, and have not joined; see `lockstep jobs why "
        "{}`",
        job.spec.name);
  }
  return fmt::format(": {} {} not joined", RanksLabel(missing),
                     missing.size() == 1 ? "has" : "have");
}

// Whether ranks are lost that only a restart of the gang replaces.
bool MustRestartGang(const Job& job, const JobView& view, const Loss& loss) {
  bool survives = false;
  for (const TaskStatus& task : job.tasks) {
    // Its node does not matter any more.
    const bool moves =
        WaitsForNode(job, task.node) ||
        std::count(loss.from.begin(), loss.from.end(), task.node) > 0;
    for (const RankStatus& rank : task.ranks) {
      if (!loss.ranks.contains(rank.rank)) {
        survives =
            survives || (Survives(job, rank) && !loss.away.contains(rank.rank));
      } else if (!moves && NeedsTheGang(job, view, task, rank)) {
        return true;
      }
    }
  }
  return !survives;
}

}  // namespace

bool AllAreRecoverable(const Job& job) {
  const auto ranks = RanksOf(job);
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const RankStatus* rank) { return rank->recoverable; });
}

bool NeedTheOthers(const Job& job, const NodeName& node) {
  if (job.state != JobState::kRunning || job.failing || job.tasks.empty() ||
      !AllAreRecoverable(job)) {
    return false;
  }
  if (job.spec.kind == JobKind::kNative) return true;
  return !MayHaveChief(job, node);
}

bool IsRecovering(const Job& job) {
  if (job.state != JobState::kRunning || job.failing ||
      !AllAreRecoverable(job)) {
    return false;
  }
  if (HasLostNode(job)) return true;
  const auto ranks = RanksOf(job);
  return std::any_of(ranks.begin(), ranks.end(), [&](const RankStatus* rank) {
    return !rank->away && (rank->recovery < job.recovery || Waits(job, *rank));
  });
}

bool CanRecover(const Job& job, const JobView& view) {
  if (!AllAreRecoverable(job) || IsAskedToStop(job) ||
      !LeavesInPlace(job, view)) {
    return false;
  }
  const auto ranks = RanksOf(job);
  return std::none_of(ranks.begin(), ranks.end(), [](const RankStatus* rank) {
    return rank->exit && rank->exit->ok() && !rank->away;
  });
}

std::optional<Cause> Recover(Job* job, const JobView& view, Time now) {
  RestartAwayRanks(job, view, now);
  // All failed ranks are replaced together, those that wait included.
  const std::map<int32_t, LoneRank> lone_ranks = job->lone_ranks;
  const std::optional<Failure> newest = FirstFailure(*job);
  for (auto& [rank, lone] : job->lone_ranks) lone.waits = false;
  std::optional<Loss> loss = FindLoss(*job, view, IsRecovering(*job), now);
  if (!loss) return std::nullopt;
  if (MustRestartGang(*job, view, *loss)) {
    if (!newest) return loss->failure.cause;
    job->lone_ranks = lone_ranks;
    return newest->cause;
  }
  if (loss->IsFree()) {
    // Begin counts steps anew.
    if (!loss->known && HighestCommitted(*job, view) > job->committed_before) {
      job->failures_without_progress = 0;
      job->failure_signature.clear();
    }
    Begin(job, view, *loss, RestartPlan(), now);
    return std::nullopt;
  }
  Failure& failure = loss->failure;
  // The others train on, and have perhaps not ended their step yet.
  if (!loss->away.empty()) failure.signature.clear();
  failure.uncharged = IsWithoutEvidence(
      *job, view, failure, EvidenceOf(job->tasks, job->generation, view));
  const bool progress = MadeProgress(*job, view, failure, now);
  const RestartPlan plan = PlanRestart(*job, failure, progress, now);
  if (!plan.restart) return failure.cause;
  // The first one is immediate, as for the gang.
  const bool first = plan.uncharged ? UnchargedFailures(*job, now.wall) == 0
                                    : plan.failures_without_progress <= 1;
  loss->later = (!first && loss->waited < plan.backoff) ||
                (!loss->away.empty() && FailedSoon(*job, *loss, now));
  if (loss->later && loss->away.empty()) {
    Wait(job, *loss, plan);
    return std::nullopt;
  }
  Account(job, failure, plan, progress, now);
  Begin(job, view, *loss, plan, now);
  return std::nullopt;
}

void EndRecovery(Job* job, Time now) {
  if (!job->in_place_recoveries.empty() && !IsRecovering(*job)) {
    InPlaceRecovery& last = job->in_place_recoveries.back();
    const bool is_newest =
        last.generation == job->generation && last.number == job->recovery;
    if (is_newest && !last.end_time) last.end_time = now.wall;
  }
  if ((job->cause.reason == Reason::kRecovering ||
       job->cause.reason == Reason::kRunning) &&
      !IsRecovering(*job)) {
    job->cause = {Reason::kRunning, SizeText(*job)};
  }
}

void AwaitRecovery(const Job& job, const JobView& view, Time now,
                   RecoveryWaits* waits) {
  RecoveryWaits next;
  next.recovery = job.recovery;
  const bool same = waits->recovery == job.recovery;
  const auto ranks = RanksOf(job);
  const bool runs =
      job.state == JobState::kRunning && !job.failing &&
      AllAreRecoverable(job) &&
      std::none_of(ranks.begin(), ranks.end(), [](const RankStatus* rank) {
        return rank->exit.has_value() && !rank->away;
      });
  if (runs && !HasLostNode(job) && AllNodesTell(job, view)) {
    const bool parked =
        std::any_of(ranks.begin(), ranks.end(), [&](const RankStatus* rank) {
          return rank->parked > job.recovery && !rank->away;
        });
    const bool started =
        IsRecovering(job) &&
        std::all_of(ranks.begin(), ranks.end(),
                    [](const RankStatus* rank) {
                      return rank->state >= RankState::kStarted || rank->away;
                    }) &&
        // Before ranks return, the members end their step.
        (!IsReturn(job) ||
         std::any_of(ranks.begin(), ranks.end(), [&](const RankStatus* rank) {
           return !IsNotNeeded(job, *rank) && HasLeftForNewest(job, *rank);
         }));
    if (parked) next.parked = same && waits->parked ? *waits->parked : now.mono;
    if (started) {
      next.started = same && waits->started ? *waits->started : now.mono;
    }
  }
  *waits = next;
}

std::optional<Cause> LateRecovery(const Job& job, const JobView& view,
                                  Duration timeout, Time now) {
  if (IsReturn(job)) timeout = std::max(timeout, kLongestReturn);
  if (!IsRecovering(job) || !TakesLongerThan(job, view, timeout, now)) {
    return std::nullopt;
  }
  return Cause{Reason::kFormTimeout,
               HasNotEnded(job, timeout) + WhoHasNotJoined(job)};
}

void NoteSlowRecovery(Job* job, const JobView& view, Time now) {
  // Another cause may be there meanwhile, as a drain.
  if (!IsRecovering(*job) || job->cause.reason != Reason::kRecovering ||
      !TakesLongerThan(*job, view, kSlowRecovery, now)) {
    return;
  }
  const std::string begin = HasNotEnded(*job, kSlowRecovery);
  job->cause.message = begin + WhoHasNotJoined(*job);
  const bool noted = std::any_of(job->events.begin(), job->events.end(),
                                 [&](const Event& event) {
                                   return event.generation == job->generation &&
                                          event.message.starts_with(begin);
                                 });
  if (!noted) AddEvent(job, Reason::kRecovering, job->cause.message, now);
}

std::optional<Cause> EndedWithoutRecovery(const Job& job) {
  if (!IsRecovering(job)) return std::nullopt;
  std::set<int32_t> ended, waiting;
  for (const RankStatus* rank : RanksOf(job)) {
    if (rank->away) continue;
    if (rank->exit && rank->exit->ok()) {
      ended.insert(rank->rank);
    } else if (!rank->exit && rank->recovery < job.recovery &&
               !IsNotNeeded(job, *rank) &&
               (!IsReturn(job) || HasLeftForNewest(job, *rank))) {
      waiting.insert(rank->rank);
    }
  }
  if (ended.empty() || waiting.empty()) return std::nullopt;
  return Cause{
      Reason::kFormTimeout,
      fmt::format("{} {} for recovery {}, and {} {} exited with 0",
                  RanksLabel(waiting), waiting.size() == 1 ? "waits" : "wait",
                  job.recovery, RanksLabel(ended),
                  ended.size() == 1 ? "has" : "have")};
}

}  // namespace lockstep::server
