#include "server/core/testing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server/core/recovery.h"
#include "server/core/restart.h"

namespace lockstep::server {

RoleSpec Role(TaskType type, int32_t count, Resources resources,
              int32_t ranks_per_task) {
  RoleSpec role;
  role.type = type;
  role.count = count;
  role.ranks_per_task = ranks_per_task;
  role.resources = std::move(resources);
  return role;
}

JobSpec NativeSpec(const JobName& name, int32_t tasks) {
  JobSpec spec = ProgramSpec(name, {Role(TaskType::kChief, 1)});
  if (tasks > 1) spec.roles.push_back(Role(TaskType::kWorker, tasks - 1));
  spec.kind = JobKind::kNative;
  spec.output_directory = "/out/" + name;
  return spec;
}

JobSpec ProgramSpec(const JobName& name, std::vector<RoleSpec> roles) {
  JobSpec spec;
  spec.name = name;
  spec.kind = JobKind::kProgram;
  spec.roles = std::move(roles);
  spec.argv = {"train"};
  return spec;
}

ExitStatus Code(int32_t code) {
  ExitStatus exit;
  exit.value = code;
  return exit;
}

ExitStatus Signal(int32_t signal) {
  ExitStatus exit;
  exit.how = ExitStatus::How::kSignal;
  exit.value = signal;
  return exit;
}

ExitStatus Raised(const std::string& message, const std::string& location) {
  ExitStatus exit = Code(1);
  exit.message = message;
  exit.location = location;
  return exit;
}

ExitStatus Victim(ExitStatus exit) {
  exit.victim = true;
  return exit;
}

Scene::Scene(JobSpec spec) {
  now.mono = MonoTime(std::chrono::hours(1));
  now.wall = FromUnixNanos(int64_t{1'767'225'600} * 1'000'000'000);
  job = NewJob(std::move(spec), "uid", "user/ann", now);
  view.fresh_key = std::string(32, 'k');
  view.state_since = now.mono;
}

// One hold for each node, and for each that is to replace one. A node that was
// replaced or released holds until it has stopped.
static bool HoldsItsPlaces(const Job& job) {
  std::set<NodeName> nodes = NodesOf(job);
  for (const Replacement& replacement : job.replacements) {
    if (replacement.released) nodes.erase(replacement.from);
    if (!replacement.to.empty()) nodes.insert(replacement.to);
  }
  for (const Spare& spare : job.spares) nodes.insert(spare.node);
  std::set<NodeName> held;
  for (const Hold& hold : job.holds) {
    if (!held.insert(hold.node).second) return false;
  }
  const auto ranks = RanksOf(job);
  const bool moves =
      std::all_of(ranks.begin(), ranks.end(),
                  [](const RankStatus* rank) { return rank->recoverable; });
  return held == nodes || (moves && std::includes(held.begin(), held.end(),
                                                  nodes.begin(), nodes.end()));
}

std::string BrokenRule(const Job& before, const Job& after) {
  if (IsFinal(before.state) && !(after == before)) return "a final job changed";
  if (after.generation < before.generation) return "a generation went back";
  if (after.generation > before.generation + 1) return "one was left out";
  if (IsFinal(after.state) && !after.holds.empty())
    return "final, yet it holds";
  for (const Hold& hold : after.holds) {
    if (hold.generation != after.generation) return "two generations hold";
  }
  if (IsActive(after.state) && after.state != JobState::kFinishing &&
      !HoldsItsPlaces(after)) {
    return "does not hold its places";
  }
  if (after.state == JobState::kFinishing && !after.outcome) {
    return "finishes without outcome";
  }
  if (!after.lineage.empty() &&
      after.lineage.back().generation != after.generation) {
    return "the lineage does not end with the generation";
  }
  if (before.generation == after.generation && before.cluster &&
      after.cluster != before.cluster && IsActive(after.state) &&
      after.recovery == before.recovery) {
    return "a cluster spec changed between recoveries";
  }
  if (before.generation == after.generation && !after.failing &&
      after.recovery < before.recovery && !IsFinal(after.state)) {
    return "a recovery went back";
  }
  if (after.recoveries < before.recoveries) return "a recovery was forgotten";
  for (const RankStatus* rank : RanksOf(after)) {
    if (after.recovery > before.recovery && rank->recovery >= after.recovery) {
      return "a recovery that a rank has joined already";
    }
  }
  if (before.cancel_requested && !after.cancel_requested) return "uncancelled";
  return "";
}

void Scene::Settle() {
  for (int round = 0;; ++round) {
    ASSERT_LT(round, 12) << "never settles: " << Name(job.state);
    for (const NodeName& node : NodesOf(job)) view.nodes[node];
    for (const Hold& hold : job.holds) view.nodes[hold.node];
    AwaitRestarts(job, view, now, &view.awaited_since);
    AwaitRecovery(job, view, now, &view.recovery);
    const Job next = Decide(job, view, timeouts, now);
    ASSERT_EQ(BrokenRule(job, next), "");
    if (next == job) return;
    // Counts like the coordinator.
    if (next.state != job.state || next.generation != job.generation ||
        next.cluster.has_value() != job.cluster.has_value() ||
        next.failing.has_value() != job.failing.has_value()) {
      view.state_since = now.mono;
    }
    if (next.generation != job.generation) view.all_started_since.reset();
    job = next;
  }
}

void Scene::Advance(Duration by) {
  now.mono += by;
  now.wall += by;
}

void Scene::Put(const std::vector<NodeName>& nodes) {
  std::vector<TaskPlacement> placement;
  for (const RoleSpec& role : job.spec.roles) {
    for (int32_t index = 0; index < role.count; ++index) {
      if (job.spec.rescale && placement.size() == nodes.size()) break;
      placement.push_back({role.type, index, nodes.at(placement.size()), {}});
    }
  }
  job = Place(job, placement, now);
  view.state_since = now.mono;
  view.all_started_since.reset();
  for (const NodeName& node : nodes) {
    view.nodes[node].state = NodeState::kReady;
    view.nodes[node].reported = true;
    view.nodes[node].address = "10.0.0." + std::to_string(view.nodes.size());
  }
}

std::vector<NodeName> Scene::Nodes() const {
  const std::set<NodeName> nodes = NodesOf(job);
  return {nodes.begin(), nodes.end()};
}

GangStatus& Scene::Gang(const NodeName& node) {
  GangStatus& gang = view.nodes.at(node).gangs[job.generation];
  if (gang.job.empty()) {
    gang.job = job.spec.name;
    gang.job_uid = job.uid;
    gang.generation = job.generation;
    for (const TaskStatus& task : job.tasks) {
      if (task.node != node) continue;
      for (const RankStatus& rank : task.ranks) {
        RankStatus fresh;
        fresh.rank = rank.rank;
        fresh.local_rank = rank.local_rank;
        gang.ranks.push_back(fresh);
      }
    }
  }
  return gang;
}

RankStatus& Scene::Rank(int32_t rank) {
  for (const NodeName& node : Nodes()) {
    for (RankStatus& status : Gang(node).ranks) {
      if (status.rank == rank) return status;
    }
  }
  ADD_FAILURE() << "no rank " << rank;
  static RankStatus none;
  return none;
}

void Scene::Prepared() {
  for (const NodeName& node : Nodes()) {
    GangStatus& gang = Gang(node);
    gang.phase = GangPhase::kPrepared;
    gang.ports.clear();
    for (const TaskStatus& task : job.tasks) {
      if (task.node != node) continue;
      gang.ports.push_back(7000 + static_cast<int32_t>(gang.ports.size()));
      for (const RankStatus& rank : task.ranks) {
        if (rank.rank != 0) continue;
        gang.master_port = 7999;
        gang.service_ports[std::string(kJaxService)] = 7998;
      }
    }
  }
}

void Scene::Refused(const NodeName& node, Cause cause) {
  Gang(node).phase = GangPhase::kRefused;
  Gang(node).refusal = std::move(cause);
}

void Scene::Started() {
  for (const NodeName& node : Nodes()) {
    Gang(node).phase = GangPhase::kLaunched;
    for (RankStatus& rank : Gang(node).ranks) rank.state = RankState::kStarted;
  }
  view.all_started_since = now.mono;
}

void Scene::Joined() {
  for (const NodeName& node : Nodes()) {
    for (RankStatus& rank : Gang(node).ranks) rank.state = RankState::kJoined;
  }
}

void Scene::Exited(int32_t rank, ExitStatus exit) {
  if (exit.end_time == WallTime{}) exit.end_time = now.wall;
  Rank(rank).state = RankState::kExited;
  Rank(rank).exit = std::move(exit);
}

void Scene::Stopped(const NodeName& node) {
  GangStatus& gang = Gang(node);
  for (RankStatus& rank : gang.ranks) {
    if (rank.exit || rank.state < RankState::kStarted) continue;
    rank.state = RankState::kExited;
    rank.exit = Victim(Signal(SIGTERM));
    rank.exit->end_time = now.wall;
  }
  gang.phase = GangPhase::kStopped;
}

void Scene::AllStopped() {
  for (const NodeName& node : Nodes()) Stopped(node);
}

void Scene::Run(const std::vector<NodeName>& nodes) {
  if (job.state == JobState::kQueued || job.state == JobState::kPlacing) {
    Put(nodes);
  }
  Prepared();
  Settle();
  Started();
  Settle();
  Joined();
  Settle();
  ASSERT_EQ(job.state, JobState::kRunning);
}

void PrintTo(JobState state, std::ostream* out) { *out << Name(state); }
void PrintTo(Reason reason, std::ostream* out) { *out << Name(reason); }
void PrintTo(Goal goal, std::ostream* out) { *out << Name(goal); }
void PrintTo(NodeState state, std::ostream* out) { *out << Name(state); }

}  // namespace lockstep::server
