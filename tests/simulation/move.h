// What a run consists of: commands and faults, each at its time. All else
// follows from them and the seed.
#ifndef LOCKSTEP_TESTS_SIMULATION_MOVE_H_
#define LOCKSTEP_TESTS_SIMULATION_MOVE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "tests/simulation/sim_store.h"

namespace lockstep::simulation {

enum class MoveKind : uint8_t {
  // Commands.
  kSubmit,
  kCancel,
  kReprioritize,
  kAskCheckpoint,
  kResize,
  kDelete,
  kDrain,
  kUndrain,
  kForgetNode,
  kStranger,
  // The next request of the user.
  kLoseRequest,
  kLoseAnswer,
  kDoubleRequest,
  kLateRequest,
  // The coordinator.
  kCrashCoordinator,
  kPauseCoordinator,
  kCrashBeforeCommit,
  kCrashAfterCommit,
  kFailCommit,
  kFullDisk,
  kJumpCoordinatorClock,
  // A node's stream.
  kBreakStream,
  kCutUp,
  kCutDown,
  kCutBoth,
  kLateMessage,
  kDoubleMessage,
  kSwapMessages,
  // A host.
  kCrashDaemon,
  kCrashDaemonInAction,
  kPauseDaemon,
  kReboot,
  kPowerOff,
  kRefusePrepare,
  kCutData,
  kJumpNodeClock,
  // A rank.
  kKillRank,
  kFailRank,
  kFreezeRank,
  kFailCheckpoint,
};
inline constexpr int kMoveKinds =
    static_cast<int>(MoveKind::kFailCheckpoint) + 1;

struct Move {
  // Since the beginning.
  Duration at{};
  MoveKind kind = MoveKind::kSubmit;
  // A node; of kCutData with `number` as the other one.
  int32_t node = 0;
  // A job: kSubmit's own, or any that there is by then.
  int32_t job = 0;
  // A rank, a commit, an action or a code.
  int32_t number = 0;
  Duration time{};
};

// The size of a small cluster, its periods, and how fast things happen.
struct Plan {
  uint64_t seed = 0;
  int32_t nodes = 3;
  // Everything that counts in leases and beats is this much longer.
  int32_t slow = 1;
  // Mean time between two moves.
  Duration gap = std::chrono::seconds(1);
};
Plan DrawPlan(uint64_t seed);

// `count` moves in order of time.
std::vector<Move> DrawMoves(const Plan& plan, int count);

std::string NodeLabel(int32_t node);  // "a"
std::string JobLabel(int32_t job);    // "j7"
// Of a fault of a commit: which kind is meant; nullopt: any, after `number`
// others.
std::optional<CommitPoint> PointOf(const Move& move);
// One sentence.
std::string Describe(const Move& move);

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_MOVE_H_
