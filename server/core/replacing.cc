#include "server/core/replacing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "server/core/departing_nodes.h"
#include "server/core/elastic.h"
#include "server/core/generation.h"
#include "server/core/held_back.h"
#include "server/core/job_places.h"
#include "server/core/moving.h"
#include "server/core/new_node.h"
#include "server/core/preparing.h"
#include "server/core/reports.h"
#include "server/core/restart_rules.h"
#include "server/core/spares.h"
#include "server/core/transitions.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

// The places on nodes that stop the job's ranks are free once the others train.
void ReleaseNodes(Job* job, const JobView& view) {
  for (Replacement& replacement : job->replacements) {
    if (replacement.lost && AllAreAwayOn(*job, replacement.from) &&
        (replacement.held_back || IsLeft(view, replacement.from))) {
      replacement.released = true;
    }
  }
}

// Whether a rank is left that runs and is not on a lost node.
bool AnyRemains(const Job& job, const std::map<NodeName, Departing>& without) {
  for (const TaskStatus& task : job.tasks) {
    const auto why = without.find(task.node);
    if (why != without.end() && why->second.lost) continue;
    for (const RankStatus& rank : task.ranks) {
      if (!rank.exit && !rank.away && rank.state >= RankState::kStarted) {
        return true;
      }
    }
  }
  return false;
}

std::string RanksText(const Job& job, const NodeName& node) {
  return RanksLabel(RanksOn(job, node));
}

void Note(Job* job, const Replacement& replacement, Time now) {
  const std::string ranks = RanksText(*job, replacement.from);
  const std::set<int32_t> lost = RanksOn(*job, replacement.from);
  const bool train =
      AllAreAwayOn(*job, replacement.from) || MayTrainWithout(*job, lost);
  AddEvent(job, replacement.cause.reason,
           replacement.held_back
               ? fmt::format("{}; the other ranks train on without {}",
                             replacement.cause.message, ranks)
           : replacement.lost
               ? fmt::format("{}; the other ranks {} until another node has {}",
                             replacement.cause.message,
                             train ? "train on" : "hold their state", ranks)
               : fmt::format("{}; {} moves as soon as another node has "
                             "prepared for it",
                             replacement.cause.message, ranks),
           now);
}

void Explain(Job* job) {
  for (const Replacement& replacement : job->replacements) {
    if (!replacement.lost || AllAreAwayOn(*job, replacement.from)) continue;
    const std::string ranks = RanksText(*job, replacement.from);
    job->cause = {
        Reason::kRecovering,
        replacement.to.empty()
            ? fmt::format("{}: {} waits for a node with room",
                          replacement.cause.message, ranks)
            : fmt::format("{}: node {} prepares for {}",
                          replacement.cause.message, replacement.to, ranks)};
    return;
  }
}

// A node that came back without the job's ranks needs no scheduler: their
// places there are still held.
bool IsBackEmpty(const Job& job, const JobView& view, const NodeName& name) {
  const auto node = view.nodes.find(name);
  return node != view.nodes.end() && node->second.takes_work &&
         HasNoReport(view, name, job.generation) &&
         std::none_of(job.tasks.begin(), job.tasks.end(),
                      [&](const TaskStatus& task) {
                        return task.node == name && HasBadGpu(task, view);
                      });
}

void GiveSamePlace(Job* job, Replacement* replacement) {
  replacement->to = replacement->from;
  replacement->gpus.clear();
  for (const TaskStatus& task : job->tasks) {
    if (task.node == replacement->from) replacement->gpus.push_back(task.gpus);
  }
}

// A node that is asked to prepare for other ranks than before does so at once,
// but a daemon from before there were spares ignores it. A stream may end for a
// moment.
constexpr Duration kAnswerTime = std::chrono::seconds(30);

// Whether the new node does not become ready: it is silent, or still ready for
// other ranks.
bool DoesNotComeAlong(const Job& job, const JobView& view,
                      const Replacement& replacement, Time now) {
  const auto node = view.nodes.find(replacement.to);
  if (replacement.to == replacement.from || node == view.nodes.end() ||
      now.wall - replacement.to_since <= kAnswerTime ||
      HasPrepared(job, view, replacement.to, replacement.from)) {
    return false;
  }
  if (node->second.state == NodeState::kUnknown) {
    return now.wall - node->second.last_sign > kAnswerTime;
  }
  const GangStatus* gang = GangOf(view, replacement.to, job.generation);
  return gang != nullptr && gang->phase == GangPhase::kPrepared &&
         !IsForRanksOn(job, *gang, replacement.from);
}

// Gives up a new node that is unfit, has refused, or does not come along.
void CheckNewNode(Job* job, const JobView& view, Replacement* replacement,
                  Time now) {
  if (replacement->to.empty()) return;
  const GangStatus* gang = GangOf(view, replacement->to, job->generation);
  if (gang != nullptr && gang->phase == GangPhase::kRefused) {
    const Cause cause = RefusalBy(*job, replacement->to, gang->refusal);
    AddEvent(job, cause.reason,
             fmt::format("{}; another node is to take {}", cause.message,
                         RanksText(*job, replacement->from)),
             now);
    replacement->refused.push_back(replacement->to);
  } else if (!IsUnfit(*job, view, replacement->to, replacement->gpus) &&
             !DoesNotComeAlong(*job, view, *replacement, now)) {
    return;
  }
  replacement->to.clear();
  replacement->gpus.clear();
}

// Since when the others hold their state: a peer's silence breaks their
// communicator.
WallTime HoldsSince(const JobView& view, const NodeName& node, Time now) {
  if (!IsLost(view, node) || view.nodes.at(node).last_sign <= WallTime{}) {
    return now.wall;
  }
  return std::min(now.wall, view.nodes.at(node).last_sign);
}

// Updates the replacement of `node`, or adds one.
void Want(Job* job, const JobView& view, const NodeName& node, Departing why,
          Time now) {
  const auto known = std::find_if(
      job->replacements.begin(), job->replacements.end(),
      [&](const Replacement& other) { return other.from == node; });
  if (known == job->replacements.end()) {
    Replacement& added = job->replacements.emplace_back();
    added.from = node;
    added.lost = why.lost;
    added.held_back = why.held_back;
    added.cause = std::move(why.cause);
    added.since = added.lost ? HoldsSince(view, node, now) : now.wall;
    Note(job, added, now);
    if (added.held_back) return;
    if (added.lost && IsBackEmpty(*job, view, node)) {
      GiveSamePlace(job, &added);
    } else {
      UseSpare(job, view, &added, now);
    }
    return;
  }
  if (why.lost && !known->lost) {
    known->lost = true;
    known->cause = std::move(why.cause);
    known->since = HoldsSince(view, node, now);
    Note(job, *known, now);
  }
  if (known->held_back && !why.held_back) known->cause = WhatIsWanted(*job);
  known->held_back = why.held_back;
  if (known->held_back) {
    known->to.clear();
    known->gpus.clear();
    return;
  }
  CheckNewNode(job, view, &*known, now);
  if (!known->to.empty()) return;
  if (known->lost && !known->released && IsBackEmpty(*job, view, node)) {
    GiveSamePlace(job, &*known);
  } else {
    UseSpare(job, view, &*known, now);
  }
}

bool IsReady(const Job& job, const JobView& view,
             const Replacement& replacement) {
  return !replacement.to.empty() &&
         HasPrepared(job, view, replacement.to, replacement.from);
}

// The ranks that are left do not wait for ever. Those of an elastic job train
// meanwhile.
std::optional<Cause> HeldTooLong(const Job& job, const JobView& view,
                                 const Replacement& replacement, Duration hold,
                                 Time now) {
  if (!replacement.lost || now.wall - replacement.since <= hold ||
      IsReady(job, view, replacement) || AllAreAwayOn(job, replacement.from) ||
      MayTrainWithout(job, Unreachable(job, view), ReadyToReturn(job, now))) {
    return std::nullopt;
  }
  return Cause{
      replacement.cause.reason,
      fmt::format("{}, and no other node was ready for {} within {}",
                  replacement.cause.message, RanksText(job, replacement.from),
                  FormatDuration(hold))};
}

void UpdateCluster(Job* job, const JobView& view, size_t index) {
  ClusterSpec& cluster = *job->cluster;
  const TaskStatus& task = job->tasks[index];
  TaskSpec& entry = cluster.tasks[index];
  entry.node = task.node;
  entry.address = task.address;
  for (RankSpec& rank : entry.ranks) {
    rank.gpus = GpusOfRank(task, rank.local_rank);
  }
  if (index == 0) {
    SetMaster(*GangOf(view, task.node, job->generation),
              view.nodes.at(task.node).address, job->spec, &cluster);
  }
}

// Finds a node for it.
bool Place(Job* job, const std::set<NodeName>& know, Replacement* replacement,
           std::vector<HostCapacity>* hosts, Time now) {
  std::set<NodeName> without = know;
  without.insert(replacement->refused.begin(), replacement->refused.end());
  auto found =
      TakeNode(job, replacement->from, /*stays=*/false, without, hosts, now);
  if (!found) return false;
  replacement->to = std::move(found->node);
  replacement->to_since = now.wall;
  replacement->gpus = std::move(found->gpus);
  return true;
}

// Whether the ranks of `b`, which are stopped, may come back instead of those
// of `a`, which are away.
bool AreAlike(const Job& job, const Replacement& a, const Replacement& b) {
  const auto tasks = [&](const NodeName& node) {
    return std::count_if(
        job.tasks.begin(), job.tasks.end(),
        [&](const TaskStatus& task) { return task.node == node; });
  };
  return b.released && AllAreAwayOn(job, a.from) &&
         tasks(a.from) == tasks(b.from);
}

}  // namespace

const Replacement* ReplacementOf(const Job& job, const NodeName& from) {
  for (const Replacement& replacement : job.replacements) {
    if (replacement.from == from) return &replacement;
  }
  return nullptr;
}

const Replacement* ReplacementOn(const Job& job, const NodeName& to) {
  for (const Replacement& replacement : job.replacements) {
    if (replacement.to == to) return &replacement;
  }
  return nullptr;
}

bool WaitsForNode(const Job& job, const NodeName& node) {
  const Replacement* replacement = ReplacementOf(job, node);
  return replacement != nullptr && replacement->lost;
}

bool HasLostNode(const Job& job) {
  return std::any_of(job.replacements.begin(), job.replacements.end(),
                     [&](const Replacement& replacement) {
                       return replacement.lost &&
                              !AllAreAwayOn(job, replacement.from);
                     });
}

bool LeavesInPlace(const Job& job, const JobView& view) {
  const std::set<NodeName> nodes = NodesOf(job);
  return std::all_of(nodes.begin(), nodes.end(), [&](const NodeName& name) {
    const auto node = view.nodes.find(name);
    return node == view.nodes.end() || !node->second.drain ||
           !node->second.drain->deadline() || AllAreAwayOn(job, name) ||
           ReplacementOf(job, name) != nullptr;
  });
}

std::optional<Cause> PlanReplacements(Job* job, const JobView& view,
                                      Duration hold, Time now) {
  if (!MayReplace(*job)) {
    DropReplacements(job);
    return std::nullopt;
  }
  std::map<NodeName, Departing> without = DepartingNodes(*job, view, now);
  if (without.size() == NodesOf(*job).size() || !AnyRemains(*job, without)) {
    without.clear();
  }
  std::erase_if(job->replacements, [&](const Replacement& replacement) {
    return !without.contains(replacement.from) && !replacement.released;
  });
  for (auto& [node, why] : without) Want(job, view, node, std::move(why), now);
  ReleaseNodes(job, view);
  for (const Replacement& replacement : job->replacements) {
    if (auto cause = HeldTooLong(*job, view, replacement, hold, now))
      return cause;
  }
  Explain(job);
  return std::nullopt;
}

bool WantsPlaces(const Job& job) {
  return std::any_of(job.replacements.begin(), job.replacements.end(),
                     [](const Replacement& replacement) {
                       return replacement.to.empty() && !replacement.held_back;
                     }) &&
         MayReplace(job);
}

void PlaceReplacements(Job* job, const std::set<NodeName>& know,
                       std::vector<HostCapacity>* hosts, Time now) {
  for (Replacement& replacement : job->replacements) {
    if (!replacement.to.empty() || replacement.held_back) continue;
    if (Place(job, know, &replacement, hosts, now)) {
      Explain(job);
      continue;
    }
    // It does not matter which of several comes back.
    for (Replacement& other : job->replacements) {
      if (!other.held_back || !AreAlike(*job, replacement, other)) continue;
      if (!Place(job, know, &other, hosts, now)) continue;
      other.held_back = false;
      other.cause = WhatIsWanted(*job);
      replacement.held_back = true;
      break;
    }
  }
}

std::vector<NodeName> ReadyToMove(const Job& job, const JobView& view) {
  std::vector<NodeName> lost;
  for (const Replacement& replacement : job.replacements) {
    if (!replacement.lost || AllAreAwayOn(job, replacement.from)) continue;
    if (!IsReady(job, view, replacement)) return {};
    lost.push_back(replacement.from);
  }
  if (!lost.empty()) return lost;
  std::vector<NodeName> away;
  for (const Replacement& replacement : job.replacements) {
    if (AllAreAwayOn(job, replacement.from) &&
        IsReady(job, view, replacement)) {
      away.push_back(replacement.from);
    }
  }
  if (!away.empty()) return away;
  for (const Replacement& replacement : job.replacements) {
    if (!replacement.lost && IsReady(job, view, replacement)) {
      return {replacement.from};
    }
  }
  return {};
}

std::set<int32_t> RanksOn(const Job& job, const NodeName& node) {
  std::set<int32_t> ranks;
  for (const TaskStatus& task : job.tasks) {
    if (task.node != node) continue;
    for (const RankStatus& rank : task.ranks) ranks.insert(rank.rank);
  }
  return ranks;
}

void MoveTasks(Job* job, const JobView& view, const NodeName& from) {
  const Replacement replacement = *ReplacementOf(*job, from);
  std::erase_if(job->replacements,
                [&](const Replacement& other) { return other.from == from; });
  for (Spare& spare : job->spares) {
    if (spare.like == from) spare.like = replacement.to;
  }
  const GangStatus& gang = *GangOf(view, replacement.to, job->generation);
  // Its daemon counts the events of this gang from 1.
  job->event_numbers.erase(replacement.to);
  size_t moved = 0;
  for (size_t i = 0; i < job->tasks.size(); ++i) {
    TaskStatus& task = job->tasks[i];
    if (task.node != from || moved == replacement.gpus.size()) continue;
    // Also one that came back empty: its new log begins anew.
    task.former_nodes.push_back(from);
    task.node = replacement.to;
    task.gpus = replacement.gpus[moved];
    task.address = fmt::format("{}:{}", view.nodes.at(task.node).address,
                               gang.ports[moved]);
    task.preparation = {};
    ++moved;
    UpdateCluster(job, view, i);
  }
}

}  // namespace lockstep::server
