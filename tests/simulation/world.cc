#include "tests/simulation/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

namespace lockstep::simulation {
namespace {

using std::chrono_literals::operator""s;

constexpr int kMoves = 400;
// Within this time everything ends once all is well: a rank may freeze for a
// minute, and a job waits between its tries.
constexpr Duration kLongestEnd = std::chrono::hours(1);

}  // namespace

Trial DrawTrial(uint64_t seed, Bug bug) {
  Trial run;
  run.plan = DrawPlan(seed);
  run.moves = DrawMoves(run.plan, kMoves);
  run.bug = bug;
  return run;
}

Outcome Play(const Trial& run, bool tell) { return World(run, tell).Play(); }

World::World(const Trial& run, bool tell)
    : run_(run),
      time_(run.plan.seed),
      story_(&time_),
      checker_(&time_, &story_),
      store_(run.bug, &checker_),
      control_(run.plan, &time_, &story_, &checker_, &store_,
               [this] { network_.OnCoordinatorLost(); }),
      network_(&time_, &story_, &checker_, &control_),
      training_(run.bug, &time_, &story_, &checker_),
      users_(run.bug, run.plan, &time_, &story_, &checker_, &control_) {
  if (tell) story_.Begin();
  checker_.SetStore(&store_);
  for (int32_t i = 0; i < run.plan.nodes; ++i) {
    Node::Parts parts;
    parts.plan = run.plan;
    parts.bug = run.bug;
    parts.index = i;
    parts.time = &time_;
    parts.story = &story_;
    parts.checker = &checker_;
    parts.control = &control_;
    parts.network = &network_;
    parts.training = &training_;
    parts.all = &nodes_;
    nodes_.push_back(std::make_unique<Node>(parts));
    network_.Add(nodes_.back().get());
  }
}

Outcome World::Play() {
  control_.Begin();
  for (const auto& node : nodes_) node->Begin();
  Trouble();
  Heal();
  while (!IsStopped() && (!IsOver() || time_.events() < kEvents)) {
    if (time_.passed() - healed_ > kLongestEnd || !time_.Step()) break;
  }
  if (!IsStopped()) CheckEnd();
  Outcome outcome;
  outcome.violation = checker_.violation();
  outcome.events = time_.events();
  outcome.digest = time_.digest();
  outcome.passed = time_.passed();
  outcome.healed = healed_;
  outcome.coverage = checker_.coverage();
  outcome.story = story_.lines();
  return outcome;
}

void World::Trouble() {
  for (size_t i = 0; i < run_.moves.size(); ++i) {
    const Move& move = run_.moves[i];
    time_.At(Timeline::kStart + move.at, [this, &move] {
      if (healing_) return;
      LOCKSTEP_TELL(&story_, "{}", Describe(move));
      // By its time, so that it has the same name without the others.
      Apply(move, move.at.count());
    });
  }
  while (!IsStopped() && (run_.heal_at ? time_.passed() < *run_.heal_at
                                       : time_.events() < kTroubledEvents)) {
    if (!time_.Step()) return;
  }
}

void World::Heal() {
  healing_ = true;
  healed_ = time_.passed();
  LOCKSTEP_TELL(&story_, "all is made well again");
  store_.SetFull(false);
  store_.Arm(CommitFault::kNone, 0, std::nullopt);
  control_.Heal();
  users_.Heal();
  for (const auto& node : nodes_) node->Heal();
  network_.Heal();
  checker_.OnCalm(std::max(time_.now(), control_.awake()));
  Undrain();
}

// Again and again: a late command may drain a node once more.
void World::Undrain() {
  for (int32_t i = 0; i < run_.plan.nodes; ++i) {
    const auto node = store_.nodes().find(NodeLabel(i));
    if (node == store_.nodes().end() || !node->second.drain) continue;
    Move undrain;
    undrain.kind = MoveKind::kUndrain;
    undrain.node = i;
    users_.Order(undrain, -1 - ++undrains_);
  }
  time_.After(15s, [this] { Undrain(); });
}

bool World::IsOver() const {
  if (!control_.up() || users_.waiting() > 0 || !checker_.live().empty()) {
    return false;
  }
  for (const auto& [name, job] : store_.jobs()) {
    if (!IsFinal(job->state)) return false;
  }
  return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node->welcomed() && node->core()->gangs().empty();
  });
}

void World::CheckEnd() {
  if (!checker_.live().empty()) {
    const LiveRank& rank = checker_.live().begin()->second;
    checker_.Break(
        Invariant::kS7,
        fmt::format("at the end rank {} of job {} g{} lives on node "
                    "{}",
                    rank.rank, rank.job, rank.generation, rank.node));
  }
  for (const auto& [name, job] : store_.jobs()) {
    if (IsFinal(job->state)) continue;
    checker_.Break(Invariant::kS9,
                   fmt::format("at the end job {} is {}: {}", name,
                               lockstep::Name(job->state), job->cause.message));
  }
  for (const auto& node : nodes_) {
    if (!node->welcomed()) {
      checker_.Break(
          Invariant::kS9,
          fmt::format("at the end node {} has no Welcome", node->name()));
    } else if (!node->core()->gangs().empty()) {
      const auto& [key, gang] = *node->core()->gangs().begin();
      checker_.Break(Invariant::kS7,
                     fmt::format("at the end node {} keeps job {} g{}, {}",
                                 node->name(), key.job, key.generation,
                                 lockstep::Name(gang.status.phase)));
    }
  }
  if (users_.waiting() > 0) {
    checker_.Break(Invariant::kS9,
                   fmt::format("{} commands have no answer", users_.waiting()));
  }
  if (!control_.WatcherIsCurrent()) {
    checker_.Break(Invariant::kS9, "the watcher was not woken");
  }
}

// ---- Moves ------------------------------------------------------------------

void World::Apply(const Move& move, int64_t number) {
  if (move.kind <= MoveKind::kStranger) return users_.Order(move, number);
  if (move.kind <= MoveKind::kLateRequest) return users_.Arm(move);
  if (move.kind <= MoveKind::kJumpCoordinatorClock) return ApplyToControl(move);
  if (move.kind <= MoveKind::kJumpNodeClock) return ApplyToNode(move);
  ApplyToRank(move);
}

void World::ApplyToControl(const Move& move) {
  switch (move.kind) {
    case MoveKind::kCrashCoordinator:
      return control_.Crash(move.time);
    case MoveKind::kPauseCoordinator:
      return control_.Pause(move.time);
    case MoveKind::kCrashBeforeCommit:
      return store_.Arm(CommitFault::kCrashBefore, move.number, PointOf(move));
    case MoveKind::kCrashAfterCommit:
      return store_.Arm(CommitFault::kCrashAfter, move.number, PointOf(move));
    case MoveKind::kFailCommit:
      return store_.Arm(CommitFault::kFail, move.number, PointOf(move));
    case MoveKind::kFullDisk:
      store_.SetFull(true);
      return time_.After(move.time, [this] { store_.SetFull(false); });
    default:
      return control_.JumpClock(std::chrono::minutes(move.number - 60));
  }
}

void World::ApplyToNode(const Move& move) {
  Node* const node = nodes_[static_cast<size_t>(move.node)].get();
  const Way way = move.number == 0 ? Way::kUp : Way::kDown;
  switch (move.kind) {
    case MoveKind::kBreakStream:
      return network_.Break(move.node);
    case MoveKind::kCutUp:
      return network_.Cut(move.node, Way::kUp, move.time);
    case MoveKind::kCutDown:
      return network_.Cut(move.node, Way::kDown, move.time);
    case MoveKind::kCutBoth:
      network_.Cut(move.node, Way::kUp, move.time);
      return network_.Cut(move.node, Way::kDown, move.time);
    case MoveKind::kLateMessage:
      return network_.Arm(move.node, way, Network::Trouble::kLate, move.time);
    case MoveKind::kDoubleMessage:
      return network_.Arm(move.node, way, Network::Trouble::kDouble, {});
    case MoveKind::kSwapMessages:
      return network_.Arm(move.node, way, Network::Trouble::kSwap, {});
    case MoveKind::kCrashDaemon:
      return node->CrashDaemon(move.time);
    case MoveKind::kCrashDaemonInAction:
      return node->CrashInAction(move.number);
    case MoveKind::kPauseDaemon:
      return node->PauseDaemon(move.time);
    case MoveKind::kReboot:
    case MoveKind::kPowerOff:
      return node->LosePower(move.time);
    case MoveKind::kRefusePrepare:
      return node->RefuseNext();
    case MoveKind::kCutData:
      if (move.number == move.node || move.number >= run_.plan.nodes) return;
      return training_.CutData(move.node, move.number, move.time);
    default:
      return node->host()->JumpClock(std::chrono::minutes(move.number - 60));
  }
}

void World::ApplyToRank(const Move& move) {
  std::vector<std::pair<int64_t, NodeName>> found;
  for (const auto& [pid, rank] : checker_.live()) {
    if (rank.job == JobLabel(move.job)) found.emplace_back(pid, rank.node);
  }
  if (found.empty()) return;
  const auto& [pid, name] =
      found[static_cast<size_t>(move.number) % found.size()];
  Host* const host = nodes_[static_cast<size_t>(name[0] - 'a')]->host();
  switch (move.kind) {
    case MoveKind::kKillRank:
      return host->End(pid, KilledBySignal(SIGKILL, ""));
    case MoveKind::kFailRank: {
      static constexpr int32_t kCodes[] = {1, 3, 42, 2};
      ExitStatus exit;
      exit.value = kCodes[move.number];
      return host->End(pid, exit);
    }
    case MoveKind::kFreezeRank:
      return training_.Freeze(pid, move.time);
    default:
      return training_.FailCheckpoint(pid);
  }
}

}  // namespace lockstep::simulation
