#include "server/core/loss.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "server/core/elastic.h"
#include "server/core/replacing.h"
#include "server/core/reports.h"
#include "server/core/restart_rules.h"

namespace lockstep::server {
namespace {

std::optional<Loss> FailedRanks(const Job& job, Time now) {
  Loss loss;
  std::optional<WallTime> first;
  std::set<int32_t> of_last;
  for (const TaskStatus& task : job.tasks) {
    if (WaitsForNode(job, task.node)) continue;
    for (const RankStatus& rank : task.ranks) {
      if (!HasFailed(rank) || rank.away) continue;
      loss.ranks.insert(rank.rank);
      if (IsOfLastFailure(job, rank)) of_last.insert(rank.rank);
      first =
          std::min(first.value_or(rank.exit->end_time), rank.exit->end_time);
    }
  }
  if (!first) return std::nullopt;
  loss.known = of_last.size() == loss.ranks.size();
  loss.failure = *FirstFailure(job);
  // It has not failed again in that way.
  if (of_last.contains(loss.failure.rank)) loss.failure.signature.clear();
  loss.waited = now.wall - *first;
  return loss;
}

std::optional<Loss> FrozenRank(const Job& job, const JobView& view,
                               bool recovering) {
  if (!view.stall || recovering) return std::nullopt;
  Loss loss;
  if (job.spec.kind == JobKind::kProgram) {
    // Its signs of progress tell that it stands still, and evidence why.
    loss.ranks = view.stall_causes.value_or(std::set<int32_t>());
  } else if (view.stall->rank >= 0) {
    loss.ranks = {view.stall->rank};
  }
  if (loss.ranks.empty()) return std::nullopt;
  Cause cause = CauseOf(job, *view.stall);
  if (job.spec.kind == JobKind::kProgram) {
    cause.message =
        fmt::format("{} stand{} still, as evidence shows",
                    RanksLabel(loss.ranks), loss.ranks.size() == 1 ? "s" : "");
  }
  loss.failure = FailureOf(std::move(cause));
  // It stood still for longer than any wait is worth.
  loss.waited = kLongestBackoff;
  return loss;
}

std::optional<Loss> LostNetwork(const Job& job, const JobView& view, Time now) {
  if (!view.recovery.parked ||
      now.mono - *view.recovery.parked < kParkedPatience) {
    return std::nullopt;
  }
  std::set<int32_t> parked;
  for (const RankStatus* rank : RanksOf(job)) {
    if (rank->parked > job.recovery && !rank->away) parked.insert(rank->rank);
  }
  Loss loss;
  loss.failure =
      FailureOf({Reason::kFormTimeout,
                 fmt::format("{} lost a peer, although no rank has ended",
                             RanksLabel(parked))});
  loss.waited = now.mono - *view.recovery.parked;
  return loss;
}

// Ranks whose new node has prepared. Ranks that failed elsewhere join them.
std::optional<Loss> MovedRanks(const Job& job, const JobView& view,
                               bool recovering, Time now) {
  const std::vector<NodeName> from = ReadyToMove(job, view);
  if (from.empty()) return std::nullopt;
  Loss loss = FailedRanks(job, now).value_or(Loss{});
  const Replacement& first = *ReplacementOf(job, from.front());
  // What is lost comes first: a drained node can wait.
  const bool away = AllAreAwayOn(job, first.from);
  if ((!first.lost || away) && (recovering || !loss.ranks.empty())) {
    return std::nullopt;
  }
  loss.drained = !first.lost;
  loss.failure = FailureOf(first.cause);
  loss.from = from;
  loss.known = away;
  loss.waited = kLongestBackoff;
  for (const NodeName& node : from) loss.ranks.merge(RanksOn(job, node));
  return loss;
}

// The others need not wait for another node: FindLoss says who goes away.
std::optional<Loss> LostNode(const Job& job, const JobView& view, Time now) {
  const std::set<int32_t> lost = Unreachable(job, view);
  if (lost.empty() || !MayTrainWithout(job, lost, ReadyToReturn(job, now))) {
    return std::nullopt;
  }
  Loss loss;
  for (const Replacement& replacement : job.replacements) {
    if (!replacement.lost || AllAreAwayOn(job, replacement.from)) continue;
    loss.failure = FailureOf(replacement.cause);
    break;
  }
  return loss;
}

// Ranks that were away are ready, and no member is lost.
std::optional<Loss> ReturningRanks(const Job& job, Time now) {
  Loss loss;
  loss.returning = ReadyToReturn(job, now);
  if (loss.returning.empty()) return std::nullopt;
  return loss;
}

// "it is replaced while 3 ranks hold their state".
std::string WhatNow(const Job& job, const Loss& loss) {
  const auto ranks = RanksOf(job);
  const auto holding =
      std::count_if(ranks.begin(), ranks.end(), [&](const RankStatus* rank) {
        return Survives(job, *rank) && !loss.ranks.contains(rank->rank) &&
               !loss.away.contains(rank->rank);
      });
  if (!loss.away.empty() && loss.from.empty()) {
    return fmt::format("{} rank{} on without {}", holding,
                       holding == 1 ? " trains" : "s train",
                       RanksLabel(loss.away));
  }
  const std::string others =
      loss.away.empty()
          ? fmt::format("{} rank{} state", holding,
                        holding == 1 ? " holds its" : "s hold their")
          : fmt::format("{} rank{} on", holding,
                        holding == 1 ? " trains" : "s train");
  if (loss.ranks.empty()) {
    return fmt::format("a new communicator is formed while {}", others);
  }
  if (!loss.from.empty()) {
    std::vector<NodeName> to;
    for (const NodeName& node : loss.from) {
      to.push_back(ReplacementOf(job, node)->to);
    }
    return fmt::format("{} {} replaced on {} while {}", RanksLabel(loss.ranks),
                       loss.ranks.size() == 1 ? "is" : "are",
                       fmt::join(to, ", "), others);
  }
  return fmt::format("{} replaced while {}",
                     loss.ranks.size() == 1
                         ? std::string("it is")
                         : fmt::format("{} are", RanksLabel(loss.ranks)),
                     others);
}

}  // namespace

bool Survives(const Job& job, const RankStatus& rank) {
  const RankState runs = job.spec.kind == JobKind::kNative
                             ? RankState::kJoined
                             : RankState::kStarted;
  // One that is back or new has no state before it has joined.
  return rank.state >= runs && !rank.exit && !rank.away &&
         rank.recovery >= rank.returned &&
         (rank.restarts == 0 || rank.recovery > 0);
}

std::optional<Loss> FindLoss(const Job& job, const JobView& view,
                             bool recovering, Time now) {
  std::optional<Loss> loss = MovedRanks(job, view, recovering, now);
  if (!loss) loss = FailedRanks(job, now);
  if (!loss) loss = FrozenRank(job, view, recovering);
  if (!loss) loss = LostNode(job, view, now);
  if (!loss && !HasLostNode(job)) loss = LostNetwork(job, view, now);
  if (!loss && !recovering) loss = ReturningRanks(job, now);
  if (!loss) return std::nullopt;
  // With it goes what is waited for already, and comes what is ready.
  std::set<int32_t> lost = Unreachable(job, view);
  lost.insert(loss->ranks.begin(), loss->ranks.end());
  const std::set<int32_t> back = ReadyToReturn(job, now);
  if (!lost.empty() && MayTrainWithout(job, lost, back)) {
    loss->away = std::move(lost);
  }
  // Where only ranks return, members end their step first. A recovery that
  // replaces one, or follows a lost network, must not look like that.
  if (!loss->away.empty()) loss->returning = back;
  return loss;
}

bool FailedSoon(const Job& job, const Loss& loss, Time now) {
  bool soon = false;
  for (const RankStatus* rank : RanksOf(job)) {
    if (!loss.ranks.contains(rank->rank)) continue;
    if (!HasFailed(*rank)) return false;
    const auto lone = job.lone_ranks.find(rank->rank);
    soon = soon || (lone != job.lone_ranks.end() && lone->second.returned &&
                    now.wall - *lone->second.returned < kSoon);
  }
  return soon && loss.from.empty();
}

std::string Describe(const Job& job, const Loss& loss) {
  const std::string back =
      loss.returning.empty()
          ? ""
          : fmt::format("{} {} back", RanksLabel(loss.returning),
                        loss.returning.size() == 1 ? "is" : "are");
  const std::string& failed = loss.failure.cause.message;
  if (failed.empty()) return back;
  return fmt::format("{}; {}{}{}", failed, WhatNow(job, loss),
                     back.empty() ? "" : "; ", back);
}

}  // namespace lockstep::server
