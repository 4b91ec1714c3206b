#include "server/core/assignments.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/core/elastic.h"
#include "server/core/ending.h"
#include "server/core/generation.h"
#include "server/core/images.h"
#include "server/core/job_roles.h"
#include "server/core/moving.h"
#include "server/core/replacing.h"
#include "server/core/reports.h"
#include "server/core/spares.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

// Ranks use it at their start; later reports are for the next generation, and
// for ranks that are replaced.
void SetReductionPlan(const Job& job, GangSpec* spec) {
  spec->reduction_plan_pinned = !job.spec.reduction_plan.empty();
  spec->reduction_plan = spec->reduction_plan_pinned ? job.spec.reduction_plan
                                                     : job.reduction_plan;
}

// A generation's own checkpoints are not required at its start.
std::optional<Checkpoint> KnownCheckpoint(const Job& job) {
  if (!job.last_checkpoint ||
      job.last_checkpoint->generation >= job.generation) {
    return std::nullopt;
  }
  return job.last_checkpoint;
}

// The parts that the assignments of all nodes share.
bool SameForAll(const Job& a, const Job& b) {
  return a.state == b.state && a.generation == b.generation &&
         a.failing == b.failing && a.outcome == b.outcome &&
         a.cancel_requested == b.cancel_requested && a.cause == b.cause &&
         a.cluster.has_value() == b.cluster.has_value() &&
         a.job_key == b.job_key && a.directives == b.directives &&
         a.attempt == b.attempt && a.restarts == b.restarts &&
         a.lineage == b.lineage && a.images == b.images &&
         a.output_identity == b.output_identity && a.restore == b.restore &&
         KnownCheckpoint(a) == KnownCheckpoint(b) && a.recovery == b.recovery &&
         a.reduction_plan == b.reduction_plan && a.uid == b.uid &&
         a.replacements == b.replacements && a.spares == b.spares &&
         a.owner == b.owner && a.spec == b.spec &&
         a.tasks.size() == b.tasks.size();
}

void AddNodesOf(const Job& job, std::set<NodeName>* nodes) {
  for (const TaskStatus& task : job.tasks) nodes->insert(task.node);
  for (const Hold& hold : job.holds) nodes->insert(hold.node);
}

}  // namespace

Assigner::Assigner(const Job& job, const JobPlaces& places, const JobView& view,
                   const StopGraces& graces, Time now)
    : job_(job), places_(places), view_(view), graces_(graces), now_(now) {
  if (job.failing && job.failing->reason == Reason::kNodeDrained) {
    departure_ = MustLeave(job, view);
  }
  if (job.outcome == JobState::kSucceeded &&
      MayRunOn(job, now.mono - view.state_since, now.wall)) {
    const auto drained = MustLeave(job, view);
    may_run_on_ = !drained || now.wall < drained->deadline;
  }
}

void Assigner::AddTask(const TaskStatus& task, GangSpec* spec) const {
  const RoleSpec* role = RoleOf(job_, task.type);
  if (role == nullptr) return;
  LocalTask local;
  local.type = task.type;
  local.index = task.index;
  local.resources = role->resources;
  local.gpus = task.gpus;
  local.argv = role->argv.empty() ? job_.spec.argv.get() : role->argv;
  local.environment = job_.spec.environment;
  for (const auto& [name, value] : role->environment) {
    local.environment[name] = value;
  }
  local.container = role->container;
  for (const RankStatus& rank : task.ranks) {
    local.restarts = std::max(local.restarts, rank.restarts);
    local.ranks.push_back({rank.rank, rank.local_rank, {}, 0, rank.restarts});
  }
  spec->tasks.push_back(std::move(local));
}

// The tasks of `from` as another node is to start them, with its GPUs.
void Assigner::AddTasksLike(const NodeName& from,
                            const std::vector<std::vector<int32_t>>& gpus,
                            GangSpec* spec) const {
  size_t added = 0;
  for (const size_t index : places_.TasksOn(from)) {
    if (added == gpus.size()) return;
    TaskStatus task = job_.tasks[index];
    task.gpus = gpus[added++];
    for (RankStatus& rank : task.ranks) ++rank.restarts;
    AddTask(task, spec);
  }
}

GangSpec Assigner::SpecFor(const NodeName& node) const {
  const Job& job = job_;
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
  spec.stall_after = job.spec.stall_after;
  spec.progress_pattern = job.spec.progress_pattern;
  spec.fence = view_.fence;
  spec.warm_starts = job.spec.warm_starts;
  spec.services = ServicesOf(job.spec);
  const bool is_program = job.spec.kind == JobKind::kProgram;
  if (const Replacement* replacement = ReplacementOn(job, node)) {
    AddTasksLike(replacement->from, replacement->gpus, &spec);
    if (job.spec.spares > 0) spec.warm_starts = is_program;
  } else if (const Spare* spare = SpareOn(job, node)) {
    AddTasksLike(spare->like, spare->gpus, &spec);
    spec.warm_starts = is_program;
  } else {
    for (const size_t index : places_.TasksOn(node)) {
      AddTask(job.tasks[index], &spec);
    }
  }
  spec.images = SettledFor(job, spec.tasks);
  spec.output_identity = job.output_identity;
  spec.known_checkpoint = KnownCheckpoint(job);
  spec.restore = job.restore;
  return spec;
}

// The job has succeeded. Ranks of the group may run on for a while. Evaluators
// stop at once, or, on a node with ranks of the group, when these have ended.
bool Assigner::MayEndByThemselves(const NodeName& node) const {
  if (!may_run_on_) return false;
  for (const size_t index : places_.TasksOn(node)) {
    const TaskStatus& task = job_.tasks[index];
    if (!IsOfGroup(task.type)) continue;
    for (const RankStatus& rank : task.ranks) {
      if (rank.state != RankState::kExited) return true;
    }
  }
  return false;
}

// Ranks that have moved here start when nothing is left where they were: there
// are never two processes of one rank.
bool Assigner::MustWaitForOldRanks(const NodeName& node) const {
  if (job_.recovery == 0) return false;
  const GangStatus* gang = GangOf(view_, node, job_.generation);
  return gang != nullptr && gang->phase < GangPhase::kLaunched &&
         std::any_of(job_.holds.begin(), job_.holds.end(),
                     [&](const Hold& hold) {
                       return hold.generation == job_.generation &&
                              !HasPartIn(job_, places_, hold.node);
                     });
}

Goal Assigner::CurrentGoal(const NodeName& node) const {
  if (job_.failing || !HasPartIn(job_, places_, node)) return Goal::kStop;
  if (ReplacementOn(job_, node) != nullptr || SpareOn(job_, node) != nullptr) {
    return Goal::kPrepare;
  }
  switch (job_.state) {
    case JobState::kPreparing:
      return job_.cluster ? Goal::kLaunch : Goal::kPrepare;
    case JobState::kForming:
      return Goal::kLaunch;
    case JobState::kRunning:
      return MustWaitForOldRanks(node) ? Goal::kPrepare : Goal::kGo;
    case JobState::kFinishing:
      return MayEndByThemselves(node) ? Goal::kGo : Goal::kStop;
    default:
      return Goal::kStop;
  }
}

bool Assigner::HasLeft(const NodeName& node) const {
  return std::any_of(
      job_.tasks.begin(), job_.tasks.end(), [&](const TaskStatus& task) {
        const auto& before = task.former_nodes;
        return std::count(before.begin(), before.end(), node) > 0;
      });
}

// The node came back without its ranks, and they go to another node: it is to
// do nothing. One that is released says that it has nothing.
bool Assigner::IsReplacedWhileEmpty(const NodeName& node) const {
  const Replacement* replacement = ReplacementOf(job_, node);
  return replacement != nullptr && replacement->to != node &&
         !replacement->released && HasNoReport(view_, node, job_.generation);
}

Duration Assigner::Grace() const {
  if (job_.failing && job_.failing->reason == Reason::kNodeDrained) {
    if (!departure_) return graces_.cancel;
    return now_.wall < departure_->deadline ? departure_->grace
                                            : graces_.failure;
  }
  if (job_.failing && job_.failing->reason == Reason::kResized) {
    return graces_.cancel;
  }
  if (job_.failing) return graces_.failure;
  if (job_.outcome == JobState::kSucceeded) return graces_.completion;
  if (job_.outcome == JobState::kFailed) return graces_.failure;
  return graces_.cancel;
}

Assignment Assigner::Make(Generation generation, Goal goal) const {
  Assignment a;
  a.job = job_.spec.name;
  a.job_uid = job_.uid;
  a.generation = generation;
  a.goal = goal;
  if (goal == Goal::kStop) {
    a.grace = Grace();
    a.stop_message = job_.failing ? job_.failing->message : job_.cause.message;
  }
  return a;
}

std::vector<Assignment> Assigner::For(const NodeName& node) const {
  std::map<Generation, Assignment> wanted;
  for (const size_t index : places_.HoldsOn(node)) {
    const Hold& hold = job_.holds[index];
    const bool current = hold.generation == job_.generation;
    if (const auto it = view_.nodes.find(node);
        current && it != view_.nodes.end() &&
        (it->second.unseen || IsReplacedWhileEmpty(node))) {
      continue;
    }
    const Goal goal = current ? CurrentGoal(node) : Goal::kStop;
    Assignment a = Make(hold.generation, goal);
    if (current && !job_.failing && !job_.outcome &&
        !HasPartIn(job_, places_, node)) {
      a.grace = graces_.failure;
      a.stop_message = HasLeft(node) ? "its ranks have moved to another node"
                                     : "another node takes the ranks";
    }
    a.keep_evidence = current && goal == Goal::kStop && job_.failing &&
                      FailedByItsRanks(job_.failing->reason);
    if (goal < Goal::kStop) {
      a.spec = SpecFor(node);
      if (goal <= Goal::kLaunch || job_.recovery > 0) {
        SetReductionPlan(job_, &*a.spec);
      }
      if (goal >= Goal::kLaunch) a.job_key = job_.job_key;
      if (goal == Goal::kGo) {
        a.directives = job_.directives;
        if (current) {
          a.evidence = view_.evidence_asked;
          a.recovery = job_.recovery;
          a.away_ranks = AwayRanks(job_);
        }
      }
    }
    wanted[hold.generation] = std::move(a);
  }
  // The node may forget generations whose end is stored.
  if (const auto it = view_.nodes.find(node); it != view_.nodes.end()) {
    for (const auto& [generation, gang] : it->second.gangs) {
      if (wanted.contains(generation)) continue;
      if (gang.phase == GangPhase::kStopped ||
          gang.phase == GangPhase::kRefused) {
        wanted[generation] = Make(generation, Goal::kForget);
        continue;
      }
      // Ended while the node was away. Another copy may run elsewhere or wait
      // for this one to stop.
      Assignment stop = Make(generation, Goal::kStop);
      stop.grace = graces_.failure;
      stop.stop_message =
          generation == job_.generation && HasLeft(node)
              ? std::string("its ranks have moved to another node")
              : fmt::format(
                    "generation {} was ended while node {} was disconnected",
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

std::set<NodeName> NodesToUpdate(const Job* before, const Job& after) {
  std::set<NodeName> nodes;
  if (before == nullptr || !SameForAll(*before, after)) {
    AddNodesOf(after, &nodes);
    if (before != nullptr) AddNodesOf(*before, &nodes);
    return nodes;
  }
  for (size_t i = 0; i < after.tasks.size(); ++i) {
    if (before->tasks[i] == after.tasks[i]) continue;
    nodes.insert(before->tasks[i].node);
    nodes.insert(after.tasks[i].node);
    // Those that prepare for it.
    for (const Replacement& replacement : after.replacements) {
      if (replacement.from == after.tasks[i].node) nodes.insert(replacement.to);
    }
    for (const Spare& spare : after.spares) {
      if (spare.like == after.tasks[i].node) nodes.insert(spare.node);
    }
  }
  // Holds keep their order; the skipped ones of `before` are gone.
  auto kept = after.holds.begin();
  for (const Hold& hold : before->holds) {
    if (kept != after.holds.end() && *kept == hold) {
      ++kept;
    } else {
      nodes.insert(hold.node);
    }
  }
  for (; kept != after.holds.end(); ++kept) nodes.insert(kept->node);
  // Ranks that have moved may wait for the release of their old node.
  if (after.recovery > 0 && before->holds != after.holds) {
    AddNodesOf(after, &nodes);
  }
  return nodes;
}

std::vector<Assignment> DesiredAssignments(const Job& job, const JobView& view,
                                           const NodeName& node,
                                           const StopGraces& graces, Time now) {
  const JobPlaces places(job);
  std::vector<Assignment> wanted =
      Assigner(job, places, view, graces, now).For(node);
  for (Assignment& assignment : wanted) {
    if (Assigner::HasCluster(assignment)) assignment.cluster = job.cluster;
  }
  return wanted;
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
  a.stop_message = "the coordinator has no such job";
  return a;
}

}  // namespace lockstep::server
