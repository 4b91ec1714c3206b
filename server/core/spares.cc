#include "server/core/spares.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "server/core/job_roles.h"
#include "server/core/new_node.h"
#include "server/core/preparing.h"
#include "server/core/reports.h"

namespace lockstep::server {
namespace {

// What the tasks of a node need, one by one: resources, and whether a container
// engine.
using Shape = std::vector<std::pair<Resources, bool>>;

void AddTo(const Job& job, const TaskStatus& task, Shape* shape) {
  const RoleSpec* role = RoleOf(job, task.type);
  shape->emplace_back(role == nullptr ? Resources() : role->resources,
                      role != nullptr && role->container);
}

Shape ShapeOf(const Job& job, const NodeName& node) {
  Shape shape;
  for (const TaskStatus& task : job.tasks) {
    if (task.node == node) AddTo(job, task, &shape);
  }
  return shape;
}

// How many nodes are tried as Spare::like: a host may have had tasks of the
// first ones.
constexpr size_t kMostLikes = 3;

// Nodes whose tasks most nodes' tasks resemble, the last ones of the job first,
// because rank 0 is special. At most kMostLikes.
std::vector<NodeName> TypicalNodes(const Job& job) {
  std::map<NodeName, Shape> shapes;
  for (const TaskStatus& task : job.tasks) {
    AddTo(job, task, &shapes[task.node]);
  }
  std::vector<std::pair<Shape, int>> counts;
  for (const auto& [node, shape] : shapes) {
    const auto known =
        std::find_if(counts.begin(), counts.end(),
                     [&](const auto& entry) { return entry.first == shape; });
    if (known == counts.end()) {
      counts.emplace_back(shape, 1);
    } else {
      ++known->second;
    }
  }
  const auto count_of = [&](const Shape& shape) {
    return std::find_if(counts.begin(), counts.end(),
                        [&](const auto& entry) { return entry.first == shape; })
        ->second;
  };
  int most = 0;
  for (const auto& [shape, count] : counts) most = std::max(most, count);
  std::vector<NodeName> typical;
  for (auto task = job.tasks.rbegin();
       task != job.tasks.rend() && typical.size() < kMostLikes; ++task) {
    if (count_of(shapes[task->node]) == most &&
        std::count(typical.begin(), typical.end(), task->node) == 0) {
      typical.push_back(task->node);
    }
  }
  return typical;
}

// Whether the node can begin at once.
bool CanBegin(const JobView& view, const NodeName& name) {
  const auto node = view.nodes.find(name);
  return node != view.nodes.end() && node->second.state == NodeState::kReady &&
         node->second.takes_work;
}

}  // namespace

const Spare* SpareOn(const Job& job, const NodeName& node) {
  for (const Spare& spare : job.spares) {
    if (spare.node == node) return &spare;
  }
  return nullptr;
}

void CheckSpares(Job* job, const JobView& view, Time now) {
  if (!MayReplace(*job)) {
    job->spares.clear();
    return;
  }
  std::erase_if(job->spares, [&](const Spare& spare) {
    const GangStatus* gang = GangOf(view, spare.node, job->generation);
    if (gang != nullptr && gang->phase == GangPhase::kRefused) {
      const Cause cause = RefusalBy(*job, spare.node, gang->refusal);
      AddEvent(job, Reason::kSpare,
               fmt::format("{}; it is no spare any more", cause.message), now);
      job->refused_spares.push_back(spare.node);
      return true;
    }
    if (!IsUnfit(*job, view, spare.node, spare.gpus)) return false;
    AddEvent(
        job, Reason::kSpare,
        fmt::format("node {} can be used no more, and is no spare any more",
                    spare.node),
        now);
    return true;
  });
  // What it was prepared for may be gone with a node that restarted.
  std::erase_if(job->spares, [&](const Spare& spare) {
    return ShapeOf(*job, spare.like).size() != spare.gpus.size();
  });
}

bool WantsSpares(const Job& job) {
  return job.spec.spares > static_cast<int32_t>(job.spares.size()) &&
         MayReplace(job);
}

void PlaceSpares(Job* job, const std::set<NodeName>& know,
                 std::vector<HostCapacity>* hosts, Time now) {
  std::set<NodeName> without = know;
  without.insert(job->refused_spares.begin(), job->refused_spares.end());
  while (WantsSpares(*job)) {
    NodeName like;
    std::optional<NewNode> found;
    for (const NodeName& node : TypicalNodes(*job)) {
      if (found) break;
      like = node;
      found = TakeNode(job, like, /*stays=*/true, without, hosts, now);
    }
    if (!found) return;
    AddEvent(job, Reason::kSpare,
             fmt::format("node {} is held as a spare", found->node), now);
    job->spares.push_back(
        {std::move(found->node), like, std::move(found->gpus)});
  }
}

void UseSpare(Job* job, const JobView& view, Replacement* replacement,
              Time now) {
  const Shape shape = ShapeOf(*job, replacement->from);
  const Spare* best = nullptr;
  bool best_is_ready = false;
  for (const Spare& spare : job->spares) {
    if (ShapeOf(*job, spare.like) != shape ||
        std::count(replacement->refused.begin(), replacement->refused.end(),
                   spare.node) > 0 ||
        IsUnfit(*job, view, spare.node, spare.gpus) ||
        !CanBegin(view, spare.node)) {
      continue;
    }
    const bool is_ready =
        HasPrepared(*job, view, spare.node, replacement->from);
    if (best != nullptr && (best_is_ready || !is_ready)) continue;
    best = &spare;
    best_is_ready = is_ready;
  }
  if (best == nullptr) return;
  replacement->to = best->node;
  replacement->to_since = now.wall;
  replacement->gpus = best->gpus;
  std::erase_if(job->spares, [&](const Spare& spare) {
    return spare.node == replacement->to;
  });
}

}  // namespace lockstep::server
