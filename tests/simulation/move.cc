#include "tests/simulation/move.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tests/simulation/timeline.h"

namespace lockstep::simulation {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// A commit from now on, or the next one of a point.
constexpr int64_t kNextCommits = 6;
constexpr int64_t kCommitNumbers = kNextCommits + kCommitPoints;

struct KindInfo {
  MoveKind kind;
  int weight;
  // {0}: node, {1}: job, {2}: number, {3}: time, {4}: other node.
  const char* sentence;
  int64_t numbers = 1;
  Duration least{};
  Duration most{};
};

constexpr std::array<KindInfo, kMoveKinds> kKinds = {{
    {MoveKind::kSubmit, 16, "ann submits job {1}"},
    {MoveKind::kCancel, 5, "ann cancels job {1}"},
    {MoveKind::kReprioritize, 4, "ann gives job {1} priority {2}", 5},
    {MoveKind::kAskCheckpoint, 6, "ann asks for a checkpoint of job {1}"},
    {MoveKind::kResize, 4, "ann wants {2} tasks of job {1}", 5},
    {MoveKind::kDelete, 7, "ann deletes job {1}"},
    {MoveKind::kDrain, 4, "root drains node {0}, grace {3}", 1, 0s, 9s},
    {MoveKind::kUndrain, 6, "root undrains node {0}"},
    {MoveKind::kForgetNode, 1, "root forgets node {0}"},
    {MoveKind::kStranger, 3, "a stranger cancels job {1}"},
    {MoveKind::kLoseRequest, 3, "the next request is lost"},
    {MoveKind::kLoseAnswer, 5, "the answer to the next request is lost"},
    {MoveKind::kDoubleRequest, 4, "the next request arrives twice"},
    {MoveKind::kLateRequest, 4, "the next request is late by {3}", 1, 1s, 20s},
    {MoveKind::kCrashCoordinator, 3, "the coordinator crashes, for {3}", 1,
     100ms, 20s},
    {MoveKind::kPauseCoordinator, 2, "the coordinator stands still for {3}", 1,
     10s, 90s},
    {MoveKind::kCrashBeforeCommit, 5, "the coordinator crashes before {2}",
     kCommitNumbers, 50ms, 5s},
    {MoveKind::kCrashAfterCommit, 5, "the coordinator crashes after {2}",
     kCommitNumbers, 50ms, 5s},
    {MoveKind::kFailCommit, 5, "{2} fails", kCommitNumbers},
    {MoveKind::kFullDisk, 2, "the coordinator's disk is full for {3}", 1, 500ms,
     8s},
    {MoveKind::kJumpCoordinatorClock, 1,
     "the date of the coordinator's host jumps by {2} minutes", 121},
    {MoveKind::kBreakStream, 5, "the stream of node {0} breaks"},
    {MoveKind::kCutUp, 3, "nothing from node {0} arrives for {3}", 1, 500ms,
     40s},
    {MoveKind::kCutDown, 3, "nothing arrives at node {0} for {3}", 1, 500ms,
     40s},
    {MoveKind::kCutBoth, 5, "node {0} is cut off for {3}", 1, 500ms, 90s},
    {MoveKind::kLateMessage, 8, "a message {2} node {0} is late by {3}", 2,
     100ms, 4s},
    {MoveKind::kDoubleMessage, 8, "a message {2} node {0} arrives twice", 2},
    {MoveKind::kSwapMessages, 8, "two messages {2} node {0} change places", 2},
    {MoveKind::kCrashDaemon, 4, "the daemon of node {0} crashes, for {3}", 1,
     50ms, 15s},
    {MoveKind::kCrashDaemonInAction, 6,
     "the daemon of node {0} crashes in its action {2} from now", 8, 50ms, 5s},
    {MoveKind::kPauseDaemon, 2, "the daemon of node {0} stands still for {3}",
     1, 1s, 30s},
    {MoveKind::kReboot, 3, "host {0} reboots within {3}", 1, 1s, 30s},
    {MoveKind::kPowerOff, 1, "host {0} has no power for {3}", 1, 20s, 200s},
    {MoveKind::kRefusePrepare, 3, "node {0} refuses the next gang"},
    {MoveKind::kCutData, 2, "hosts {0} and {4} do not reach each other for {3}",
     4, 1s, 40s},
    {MoveKind::kJumpNodeClock, 2, "the date of host {0} jumps by {2} minutes",
     121},
    {MoveKind::kKillRank, 6, "rank {2} of job {1} is killed", 4},
    {MoveKind::kFailRank, 5, "rank {2} of job {1} fails by itself", 4},
    {MoveKind::kFreezeRank, 2, "rank {2} of job {1} freezes for {3}", 4, 1s,
     60s},
    {MoveKind::kFailCheckpoint, 3,
     "rank {2} of job {1} cannot write its next part of a checkpoint", 4},
}};

const KindInfo& InfoOf(MoveKind kind) {
  return *std::find_if(kKinds.begin(), kKinds.end(),
                       [kind](const auto& info) { return info.kind == kind; });
}

const KindInfo& Draw(Dice* dice) {
  int64_t sum = 0;
  for (const KindInfo& info : kKinds) sum += info.weight;
  int64_t at = dice->Upto(sum);
  for (const KindInfo& info : kKinds) {
    if (at < info.weight) return info;
    at -= info.weight;
  }
  return kKinds.front();
}

bool IsOfMessages(MoveKind kind) {
  return kind == MoveKind::kLateMessage || kind == MoveKind::kDoubleMessage ||
         kind == MoveKind::kSwapMessages;
}

bool IsOfCommits(MoveKind kind) {
  return kind == MoveKind::kCrashBeforeCommit ||
         kind == MoveKind::kCrashAfterCommit || kind == MoveKind::kFailCommit;
}

bool IsOfClock(MoveKind kind) {
  return kind == MoveKind::kJumpCoordinatorClock ||
         kind == MoveKind::kJumpNodeClock;
}

}  // namespace

Plan DrawPlan(uint64_t seed) {
  Dice dice(Mix({seed, HashOf("plan")}));
  Plan plan;
  plan.seed = seed;
  plan.nodes = static_cast<int32_t>(dice.Between(2, 4));
  plan.slow = dice.Upto(3) == 0 ? 5 : 1;
  plan.gap = std::chrono::milliseconds(dice.Between(300, 2500)) * plan.slow;
  return plan;
}

std::vector<Move> DrawMoves(const Plan& plan, int count) {
  Dice dice(Mix({plan.seed, HashOf("moves")}));
  std::vector<Move> moves;
  Duration at{};
  int32_t jobs = 0;
  for (int i = 0; i < count; ++i) {
    at += Duration(dice.Upto(2 * plan.gap.count()));
    const KindInfo& info = i < 2 ? InfoOf(MoveKind::kSubmit) : Draw(&dice);
    Move move;
    move.at = at;
    move.kind = info.kind;
    move.node = static_cast<int32_t>(dice.Upto(plan.nodes));
    move.number = static_cast<int32_t>(dice.Upto(info.numbers));
    move.time =
        info.least + Duration(dice.Upto((info.most - info.least).count() + 1));
    if (info.kind == MoveKind::kSubmit) ++jobs;
    // The newest ones more often: the others have ended.
    const int64_t back = std::min(dice.Upto(4), dice.Upto(4));
    move.job = info.kind == MoveKind::kSubmit
                   ? jobs
                   : std::max<int32_t>(1, jobs - static_cast<int32_t>(back));
    moves.push_back(move);
  }
  return moves;
}

std::string NodeLabel(int32_t node) {
  return std::string(1, static_cast<char>('a' + node));
}

std::string JobLabel(int32_t job) { return fmt::format("j{}", job); }

std::optional<CommitPoint> PointOf(const Move& move) {
  if (move.number < kNextCommits) return std::nullopt;
  return static_cast<CommitPoint>(move.number - kNextCommits);
}

std::string Describe(const Move& move) {
  std::string number = fmt::format("{}", move.number);
  if (IsOfMessages(move.kind)) number = move.number == 0 ? "from" : "to";
  if (IsOfCommits(move.kind)) {
    const auto point = PointOf(move);
    number = point ? fmt::format("the next commit of a {}", Name(*point))
                   : fmt::format("commit {} from now", move.number + 1);
  }
  if (IsOfClock(move.kind)) number = fmt::format("{:+}", move.number - 60);
  return fmt::format(fmt::runtime(InfoOf(move.kind).sentence),
                     NodeLabel(move.node), JobLabel(move.job), number,
                     FormatDuration(move.time), NodeLabel(move.number));
}

}  // namespace lockstep::simulation
