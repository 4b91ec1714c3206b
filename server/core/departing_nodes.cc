#include "server/core/departing_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "server/core/elastic.h"
#include "server/core/held_back.h"
#include "server/core/replacing.h"
#include "server/core/reports.h"
#include "server/core/restart_rules.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

// A rank that failed on a node where it must not start again.
std::optional<Cause> FailedForGood(const Job& job, const JobView& view,
                                   const NodeName& name) {
  const auto node = view.nodes.find(name);
  for (const TaskStatus& task : job.tasks) {
    if (task.node != name) continue;
    const bool cools = node != view.nodes.end() && node->second.cools;
    if (!cools && !HasBadGpu(task, view)) continue;
    for (const RankStatus& rank : task.ranks) {
      if (!rank.exit || rank.exit->ok()) continue;
      // The node's other ranks train.
      if (rank.away && !AllAreAwayOn(job, name)) continue;
      const Failure failure = FailureOfRank(job, rank);
      if (!MayReplaceRank(failure)) continue;
      return Cause{failure.cause.reason,
                   fmt::format("{}, and {}", failure.cause.message,
                               cools ? fmt::format("node {} cools down", name)
                                     : "its GPU is faulty")};
    }
  }
  return std::nullopt;
}

// A node that came back empty has nothing of the job although it knows the
// generation: it prepares for its ranks again, or has refused to.
bool PreparesAgain(const Job& job, const JobView& view, const NodeName& node) {
  const Replacement* replacement = ReplacementOf(job, node);
  const GangStatus* gang = GangOf(view, node, job.generation);
  return replacement != nullptr && replacement->lost && gang != nullptr &&
         gang->phase < GangPhase::kLaunched;
}

std::optional<Departing> WhyLost(const Job& job, const JobView& view,
                                 const NodeName& name) {
  const Replacement* known = ReplacementOf(job, name);
  if (known != nullptr && known->released) return Departing{true, known->cause};
  if (std::optional<Cause> loss = LossOf(view, name, job.generation)) {
    return Departing{true, *std::move(loss)};
  }
  if (std::optional<Cause> failed = FailedForGood(job, view, name)) {
    return Departing{true, *std::move(failed)};
  }
  if (PreparesAgain(job, view, name)) return Departing{true, known->cause};
  return std::nullopt;
}

// Of a node that is left. `lost`: what the others are without anyhow. Nullopt:
// it is too late to replace the node, and the others cannot train without it.
std::optional<Departing> WhyLeft(const Job& job, const JobView& view,
                                 const NodeName& name,
                                 const std::set<int32_t>& lost, Time now) {
  const Drain& drain = *view.nodes.at(name).drain;
  const bool late = now.wall >= *drain.deadline() - *drain.grace / 2;
  std::set<int32_t> without = RanksOn(job, name);
  without.insert(lost.begin(), lost.end());
  if (late && !AllAreAwayOn(job, name) && !MayTrainWithout(job, without)) {
    return std::nullopt;
  }
  return Departing{late,
                   {Reason::kNodeDrained,
                    fmt::format("node {} is {}", name, Describe(drain))}};
}

// What a user does not want. `lost`: the ranks that the others are without
// anyhow.
void HoldBack(const Job& job, std::set<int32_t> lost,
              std::map<NodeName, Departing>* without) {
  std::set<NodeName> gone;
  for (const auto& [node, why] : *without) {
    if (why.lost) gone.insert(node);
  }
  const std::set<NodeName> nodes = NodesHeldBack(job, gone);
  for (const NodeName& node : nodes) {
    if (gone.contains(node)) without->at(node).held_back = true;
  }
  for (const NodeName& node : nodes) {
    if (gone.contains(node)) continue;
    lost.merge(RanksOn(job, node));
    if (!AllAreAwayOn(job, node) && !MayTrainWithout(job, lost)) return;
    (*without)[node] = {true, WhatIsWanted(job), true};
  }
}

}  // namespace

bool IsLeft(const JobView& view, const NodeName& name) {
  const auto node = view.nodes.find(name);
  return node != view.nodes.end() && node->second.drain &&
         node->second.drain->deadline();
}

std::map<NodeName, Departing> DepartingNodes(const Job& job,
                                             const JobView& view, Time now) {
  const std::set<NodeName> nodes = NodesOf(job);
  std::map<NodeName, Departing> without;
  std::set<int32_t> lost;
  for (const NodeName& node : nodes) {
    if (auto why = WhyLost(job, view, node)) {
      without[node] = *std::move(why);
      lost.merge(RanksOn(job, node));
    }
  }
  bool moves_as_a_whole = false;
  std::set<NodeName> left;
  for (const NodeName& node : nodes) {
    if (without.contains(node) || !IsLeft(view, node)) continue;
    if (auto why = WhyLeft(job, view, node, lost, now)) {
      if (why->lost) lost.merge(RanksOn(job, node));
      without[node] = *std::move(why);
      left.insert(node);
    } else {
      moves_as_a_whole = true;
    }
  }
  if (moves_as_a_whole) {
    for (const NodeName& node : left) without.erase(node);
    return without;
  }
  HoldBack(job, std::move(lost), &without);
  return without;
}

}  // namespace lockstep::server
