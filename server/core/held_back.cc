#include "server/core/held_back.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "server/core/elastic.h"
#include "server/core/job_roles.h"
#include "server/core/rescale.h"

namespace lockstep::server {
namespace {

// Of each node that may be held back. The one of rank 0 may not where its exit
// ends the job (elastic.h).
std::map<NodeName, int32_t> TasksOfNodes(const Job& job) {
  std::map<NodeName, int32_t> tasks;
  for (const TaskStatus& task : job.tasks) {
    if (IsOfGroup(task.type)) ++tasks[task.node];
  }
  if (job.spec.end_with != EndWith::kAll) tasks.erase(job.tasks.front().node);
  return tasks;
}

// Chooses nodes with `fewer` tasks together, or less where these do not fit.
std::set<NodeName> Choose(const Job& job,
                          const std::map<NodeName, int32_t>& tasks,
                          const std::set<NodeName>& lost, int32_t fewer) {
  std::set<NodeName> chosen;
  const auto take = [&](const NodeName& node) {
    const auto on = tasks.find(node);
    if (on == tasks.end() || on->second > fewer) return;
    if (chosen.insert(node).second) fewer -= on->second;
  };
  // Those that are held back stay so.
  for (const Replacement& replacement : job.replacements) {
    if (replacement.held_back) take(replacement.from);
  }
  for (const NodeName& node : lost) take(node);
  for (auto task = job.tasks.rbegin(); task != job.tasks.rend(); ++task) {
    take(task->node);
  }
  return chosen;
}

// How many tasks the job has when it is to have `size`: that, or more.
int32_t SizeInPlace(const Job& job, const std::map<NodeName, int32_t>& tasks,
                    int32_t size) {
  int32_t has = SizeOf(job);
  for (const NodeName& node : Choose(job, tasks, {}, has - size)) {
    has -= tasks.at(node);
  }
  return has;
}

}  // namespace

int32_t WantedInPlace(const Job& job) {
  return job.wanted_tasks > 0 ? job.wanted_tasks : SizeOf(job.spec);
}

Cause WhatIsWanted(const Job& job) {
  const int32_t tasks = WantedInPlace(job);
  return {Reason::kResized,
          fmt::format("{} task{} wanted", tasks, tasks == 1 ? " is" : "s are")};
}

std::set<NodeName> NodesHeldBack(const Job& job,
                                 const std::set<NodeName>& lost) {
  const int32_t fewer = SizeOf(job) - WantedInPlace(job);
  if (job.spec.elastic_min_tasks == 0 || job.spec.rescale || fewer <= 0) {
    return {};
  }
  return Choose(job, TasksOfNodes(job), lost, fewer);
}

size_t MissedRanks(const Job& job) {
  size_t missed = 0;
  for (const TaskStatus& task : job.tasks) {
    const bool held_back = std::any_of(
        job.replacements.begin(), job.replacements.end(),
        [&](const Replacement& replacement) {
          return replacement.from == task.node && replacement.held_back;
        });
    if (held_back) continue;
    missed += static_cast<size_t>(
        std::count_if(task.ranks.begin(), task.ranks.end(),
                      [](const RankStatus& rank) { return rank.away; }));
  }
  return missed;
}

Status CheckInPlace(const Job& job, int32_t size) {
  if (job.state != JobState::kRunning) return OkStatus();
  std::set<int32_t> silent;
  for (const RankStatus* rank : RanksOf(job)) {
    if (!rank->away && !rank->elastic) silent.insert(rank->rank);
  }
  if (!silent.empty()) {
    return FailedPrecondition(
        "job {} cannot be resized now: the program of {} has not said that it "
        "can train while ranks are away; {}",
        job.spec.name, RanksLabel(silent), HowToSaySo(job.spec));
  }
  const std::map<NodeName, int32_t> tasks = TasksOfNodes(job);
  const int32_t more = SizeInPlace(job, tasks, size);
  if (more == size) return OkStatus();
  int32_t less = size - 1;
  while (less >= job.spec.elastic_min_tasks &&
         SizeInPlace(job, tasks, less) != less) {
    --less;
  }
  return FailedPrecondition(
      "job {} cannot have {} tasks where it runs, because the tasks of a node "
      "stay together: it can have {}{}",
      job.spec.name, size,
      less >= job.spec.elastic_min_tasks ? fmt::format("{} or ", less) : "",
      more);
}

}  // namespace lockstep::server
