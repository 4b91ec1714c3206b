#include "server/core/new_node.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "server/core/generation.h"
#include "server/core/host_fit.h"
#include "server/core/images.h"
#include "server/core/job_places.h"
#include "server/core/job_roles.h"
#include "server/core/moving.h"
#include "server/core/place_gang.h"
#include "server/core/preparing.h"
#include "server/core/replacing.h"
#include "server/core/reports.h"

namespace lockstep::server {
namespace {

// The GPUs of each task of `from` on the host; nullopt if they do not fit there
// together.
std::optional<std::vector<std::vector<int32_t>>> Fit(const Job& job,
                                                     const NodeName& from,
                                                     const HostCapacity& host) {
  FreeHost free = FreeOf(host);
  std::vector<std::vector<int32_t>> gpus;
  for (const TaskStatus& task : job.tasks) {
    if (task.node != from) continue;
    const RoleSpec* role = RoleOf(job, task.type);
    if (role == nullptr || !Fits(*role, free)) return std::nullopt;
    gpus.push_back(Take(role->resources, &free));
  }
  return gpus;
}

// Whether the host may share the gang with the nodes that stay.
bool MayJoin(const Job& job, const NodeName& from, bool stays,
             const HostCapacity& host) {
  if (!host.ready || (!job.spec.pool.empty() && host.pool != job.spec.pool)) {
    return false;
  }
  // It may be empty, but other tasks have no other place.
  if ((host.node != from || stays) &&
      std::any_of(job.replacements.begin(), job.replacements.end(),
                  [&](const Replacement& replacement) {
                    return replacement.from == host.node;
                  })) {
    return false;
  }
  return std::none_of(
      job.holds.begin(), job.holds.end(), [&](const Hold& hold) {
        return hold.node == host.node ||
               ((stays || hold.node != from) && host.apart.contains(hold.node));
      });
}

void HoldNode(Job* job, const NodeName& from, const NewNode& to,
              std::vector<HostCapacity>* hosts, Time now) {
  const JobPlaces places(*job);
  const std::vector<size_t>& tasks = places.TasksOn(from);
  Hold hold = HoldOn(*job, tasks, to.node, now);
  hold.gpus.clear();
  std::vector<TaskPlacement> placement;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const std::vector<int32_t>& own = to.gpus[i];
    hold.gpus.insert(hold.gpus.end(), own.begin(), own.end());
    const TaskStatus& task = job->tasks[tasks[i]];
    placement.push_back({task.type, task.index, to.node, own});
  }
  Occupy(job->spec, placement, hosts);
  job->holds.push_back(std::move(hold));
}

}  // namespace

bool MayReplace(const Job& job) {
  if (job.state != JobState::kRunning || job.failing || job.outcome ||
      job.spec.rescale || IsAskedToStop(job)) {
    return false;
  }
  // There is a log of each place.
  if (std::any_of(job.tasks.begin(), job.tasks.end(),
                  [](const TaskStatus& task) {
                    return task.former_nodes.size() >= kMaxFormerNodes;
                  })) {
    return false;
  }
  const auto ranks = RanksOf(job);
  return std::all_of(ranks.begin(), ranks.end(), [](const RankStatus* rank) {
    return rank->recoverable &&
           (rank->away || !(rank->exit && rank->exit->ok()));
  });
}

std::optional<NewNode> TakeNode(Job* job, const NodeName& from, bool stays,
                                const std::set<NodeName>& without,
                                std::vector<HostCapacity>* hosts, Time now) {
  const HostCapacity* best = nullptr;
  NewNode found;
  // The least that stays free, so that large tasks still find room.
  const auto rest = [](const HostCapacity& host) {
    return std::tuple(host.gpus.size() - host.allocated_gpus.size(),
                      host.capacity.cpus - host.allocated.cpus, host.node);
  };
  for (const HostCapacity& host : *hosts) {
    if (without.contains(host.node) || !MayJoin(*job, from, stays, host)) {
      continue;
    }
    auto gpus = Fit(*job, from, host);
    if (!gpus || (best != nullptr && rest(*best) <= rest(host))) continue;
    best = &host;
    found = {host.node, *std::move(gpus)};
  }
  if (best == nullptr) return std::nullopt;
  HoldNode(job, from, found, hosts, now);
  return found;
}

bool IsForRanksOn(const Job& job, const GangStatus& gang,
                  const NodeName& from) {
  std::set<int32_t> ranks;
  for (const RankStatus& rank : gang.ranks) ranks.insert(rank.rank);
  return ranks == RanksOn(job, from);
}

bool IsUnfit(const Job& job, const JobView& view, const NodeName& node,
             const std::vector<std::vector<int32_t>>& gpus) {
  const GangStatus* gang = GangOf(view, node, job.generation);
  if (IsLost(view, node) ||
      (gang != nullptr && gang->phase >= GangPhase::kLaunched)) {
    return true;
  }
  const auto at = view.nodes.find(node);
  if (at == view.nodes.end()) return false;
  const std::vector<int32_t>& bad = at->second.bad_gpus;
  return at->second.drain || at->second.cools ||
         std::any_of(
             gpus.begin(), gpus.end(), [&](const std::vector<int32_t>& own) {
               return std::find_first_of(own.begin(), own.end(), bad.begin(),
                                         bad.end()) != own.end();
             });
}

bool HasPrepared(const Job& job, const JobView& view, const NodeName& node,
                 const NodeName& from) {
  const GangStatus* gang = GangOf(view, node, job.generation);
  if (gang == nullptr || gang->phase != GangPhase::kPrepared ||
      view.nodes.at(node).state != NodeState::kReady) {
    return false;
  }
  const auto tasks = static_cast<size_t>(
      std::count_if(job.tasks.begin(), job.tasks.end(),
                    [&](const TaskStatus& task) { return task.node == from; }));
  return gang->ports.size() == tasks && IsForRanksOn(job, *gang, from) &&
         HasSettledImages(job, *gang) && SeesOutput(job, *gang);
}

}  // namespace lockstep::server
