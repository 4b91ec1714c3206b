#include "server/core/assignments.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/core/generation.h"
#include "server/core/images.h"
#include "server/core/moving.h"

namespace lockstep {
namespace {

const RoleSpec* RoleOf(const Job& job, TaskType type) {
  for (const RoleSpec& role : job.spec.roles) {
    if (role.type == type) return &role;
  }
  return nullptr;
}

GangSpec SpecFor(const Job& job, const NodeName& node) {
  GangSpec spec;
  spec.kind = job.spec.kind;
  spec.output_directory = job.spec.output_directory;
  spec.checkpoint = job.spec.checkpoint;
  spec.lineage = job.lineage;
  spec.attempt = job.attempt;
  spec.restart_count = job.restarts;
  spec.restart_budget = job.spec.restart_budget;
  spec.working_directory = job.spec.working_directory;
  spec.job_owner = job.owner;
  spec.packages = job.spec.packages;
  spec.runtime = job.spec.runtime;
  spec.inherited_environment = job.spec.inherited_environment;
  spec.services = ServicesOf(job.spec);
  for (const TaskStatus& task : job.tasks) {
    if (task.node != node) continue;
    const RoleSpec* role = RoleOf(job, task.type);
    if (role == nullptr) continue;
    LocalTask local;
    local.type = task.type;
    local.index = task.index;
    local.resources = role->resources;
    local.gpus = task.gpus;
    local.argv = role->argv.empty() ? job.spec.argv : role->argv;
    local.environment = job.spec.environment;
    for (const auto& [name, value] : role->environment) {
      local.environment[name] = value;
    }
    local.container = role->container;
    for (const RankStatus& rank : task.ranks) {
      local.restarts = std::max(local.restarts, rank.restarts);
      local.ranks.push_back({rank.rank, rank.local_rank, {}});
    }
    spec.tasks.push_back(std::move(local));
  }
  spec.images = SettledFor(job, spec.tasks);
  return spec;
}

// Ranks take it when they start; what they say then is for the next ones.
void SetReductionPlan(const Job& job, GangSpec* spec) {
  spec->reduction_plan_pinned = !job.spec.reduction_plan.empty();
  spec->reduction_plan = spec->reduction_plan_pinned ? job.spec.reduction_plan
                                                     : job.reduction_plan;
}

// The deciding rank ended well: the workers may end by themselves for a while;
// ps and evaluators never do, so they are stopped at once, on a node that they
// share with workers when these have ended.
bool MayEndByThemselves(const Job& job, const JobView& view,
                        const NodeName& node, const LifecycleTimeouts& timeouts,
                        Time now) {
  if (job.outcome != JobState::kSucceeded) return false;
  if (now.mono - view.state_since >= timeouts.completion_grace) return false;
  for (const TaskStatus& task : job.tasks) {
    if (task.node != node ||
        (task.type != TaskType::kChief && task.type != TaskType::kWorker)) {
      continue;
    }
    for (const RankStatus& rank : task.ranks) {
      if (rank.state != RankState::kExited) return true;
    }
  }
  return false;
}

Goal CurrentGoal(const Job& job, const JobView& view, const NodeName& node,
                 const LifecycleTimeouts& timeouts, Time now) {
  if (job.failing) return Goal::kStop;
  switch (job.state) {
    case JobState::kPreparing:
      return job.cluster ? Goal::kLaunch : Goal::kPrepare;
    case JobState::kForming:
      return Goal::kLaunch;
    case JobState::kRunning:
      return Goal::kGo;
    case JobState::kFinishing:
      return MayEndByThemselves(job, view, node, timeouts, now) ? Goal::kGo
                                                                : Goal::kStop;
    default:
      return Goal::kStop;
  }
}

Duration GraceOf(const Job& job, const JobView& view, const StopGraces& graces,
                 Time now) {
  if (job.failing && job.failing->reason == Reason::kNodeDrained) {
    const std::optional<Departure> departure = MustLeave(job, view);
    if (!departure) return graces.cancel;
    return now.wall < departure->deadline ? departure->grace : graces.failure;
  }
  if (job.failing) return graces.failure;
  if (job.outcome == JobState::kSucceeded) return graces.completion;
  if (job.outcome == JobState::kFailed) return graces.failure;
  return graces.cancel;
}

}  // namespace

std::vector<Assignment> DesiredAssignments(const Job& job, const JobView& view,
                                           const NodeName& node,
                                           const StopGraces& graces,
                                           const LifecycleTimeouts& timeouts,
                                           Time now) {
  std::map<Generation, Assignment> wanted;
  const auto base = [&](Generation generation, Goal goal) {
    Assignment a;
    a.job = job.spec.name;
    a.job_uid = job.uid;
    a.generation = generation;
    a.goal = goal;
    if (goal == Goal::kStop) {
      a.grace = GraceOf(job, view, graces, now);
      a.stop_message = job.failing ? job.failing->message : job.cause.message;
    }
    return a;
  };
  for (const Hold& hold : job.holds) {
    if (hold.node != node) continue;
    const bool current = hold.generation == job.generation;
    const Goal goal =
        current ? CurrentGoal(job, view, node, timeouts, now) : Goal::kStop;
    Assignment a = base(hold.generation, goal);
    if (goal < Goal::kStop) {
      a.spec = SpecFor(job, node);
      if (goal <= Goal::kLaunch) SetReductionPlan(job, &*a.spec);
      if (goal >= Goal::kLaunch) {
        a.cluster = job.cluster;
        a.job_key = job.job_key;
      }
      if (goal == Goal::kGo) a.directives = job.directives;
    }
    wanted[hold.generation] = std::move(a);
  }
  // What the node still has of generations whose end is stored may go.
  if (const auto it = view.nodes.find(node); it != view.nodes.end()) {
    for (const auto& [generation, gang] : it->second.gangs) {
      if (wanted.contains(generation)) continue;
      if (gang.phase == GangPhase::kStopped ||
          gang.phase == GangPhase::kRefused) {
        wanted[generation] = base(generation, Goal::kForget);
        continue;
      }
      // Given up while the node was away: another copy may run elsewhere, or
      // waits for this one to be gone.
      Assignment stop = base(generation, Goal::kStop);
      stop.grace = graces.failure;
      stop.stop_message =
          fmt::format("generation {} was given up while node {} was away",
                      generation, node);
      wanted[generation] = std::move(stop);
    }
  }
  std::vector<Assignment> result;
  for (auto& [generation, assignment] : wanted) {
    result.push_back(std::move(assignment));
  }
  return result;
}

Assignment DisownedAssignment(const GangStatus& gang) {
  Assignment a;
  a.job = gang.job;
  a.job_uid = gang.job_uid;
  a.generation = gang.generation;
  const bool over =
      gang.phase == GangPhase::kStopped || gang.phase == GangPhase::kRefused;
  a.goal = over ? Goal::kForget : Goal::kStop;
  a.grace = StopGraces{}.failure;
  a.stop_message = "the coordinator knows no such job";
  return a;
}

}  // namespace lockstep
