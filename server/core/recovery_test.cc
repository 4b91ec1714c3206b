// Lost ranks are replaced while the others keep their state.
#include "server/core/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>

#include "server/core/assignments.h"
#include "server/core/recovery_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""ns;
using testing::ElementsAre;
using testing::HasSubstr;

Stall StallOf(int32_t rank) {
  Stall stall;
  stall.rank = rank;
  stall.phase = "compute";
  stall.step = 7;
  stall.still = 12s;
  stall.deadline = 5s;
  stall.limit = 5s;
  stall.waiting = 3;
  return stall;
}

TEST(RecoveryTest, ALostRankIsReplacedWhileTheOthersStay) {
  Scene s = Recoverable();
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  EXPECT_FALSE(s.job.failing);
  EXPECT_EQ(s.job.generation, 1u);
  EXPECT_EQ(s.job.recovery, 1u);
  EXPECT_EQ(s.job.recoveries, 1);
  EXPECT_EQ(s.job.restarts, 0);
  EXPECT_EQ(s.job.recovery_start, s.now.wall);
  EXPECT_EQ(s.job.failures_without_progress, 1);
  EXPECT_EQ(Stored(s, 1).restarts, 1);
  EXPECT_EQ(Stored(s, 1).state, RankState::kPrepared);
  EXPECT_FALSE(Stored(s, 1).exit);
  EXPECT_EQ(Stored(s, 0).restarts, 0);
  EXPECT_EQ(s.job.events.back().reason, Reason::kRecovering);
  EXPECT_EQ(s.job.events.back().message,
            "rank 1 (worker 0 on b): killed by SIGKILL; it is replaced while 3 "
            "ranks hold their state (recovery 1; 1 of 3 failures without "
            "progress)");
  EXPECT_EQ(s.job.cause,
            (Cause{Reason::kRecovering, "recovery 1: rank 1 is replaced"}));
  EXPECT_TRUE(IsRecovering(s.job));
  // What is said of the old process is over.
  const Job before = s.job;
  s.Advance(1s);
  s.Settle();
  EXPECT_EQ(s.job, before);
  ComeBack(&s, 1);
  EXPECT_TRUE(IsRecovering(s.job));
  const size_t events = s.job.events.size();
  Join(&s);
  EXPECT_FALSE(IsRecovering(s.job));
  EXPECT_EQ(s.job.cause, (Cause{Reason::kRunning, ""}));
  EXPECT_EQ(s.job.events.size(), events) << "rank 0 says that it is over";
}

TEST(RecoveryTest, TheNodesAreToldOfTheRankAlone) {
  Scene s = Recoverable();
  s.job.reduction_plan = "plan";
  s.Settle();
  const auto told = [&](const NodeName& node) {
    return DesiredAssignments(s.job, s.view, node, StopGraces{}, s.now).front();
  };
  EXPECT_EQ(told("b").recovery, 0u);
  EXPECT_EQ(told("b").spec->reduction_plan, "");
  const Job before = s.job;
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  EXPECT_THAT(NodesToUpdate(&before, s.job), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(told("b").goal, Goal::kGo);
  EXPECT_EQ(told("b").recovery, 1u);
  EXPECT_EQ(told("b").spec->tasks[0].ranks[0].restarts, 1);
  EXPECT_EQ(told("b").spec->reduction_plan, "plan");
  EXPECT_EQ(told("a").recovery, 1u);
  EXPECT_EQ(told("a").spec->tasks[0].ranks[0].restarts, 0);
}

TEST(RecoveryTest, OthersRestartTheGang) {
  const auto fails = [](const std::function<void(Scene*)>& happens) {
    Scene s = Recoverable();
    happens(&s);
    s.Settle();
    return s.job.failing.has_value() && s.job.recovery == 0;
  };
  EXPECT_FALSE(fails([](Scene* s) { s->Exited(1, Code(1)); }));
  EXPECT_TRUE(fails([](Scene* s) {
    s->job.tasks[2].ranks[0].recoverable = false;
    s->Rank(2).recoverable = false;
    s->Exited(1, Code(1));
  })) << "one cannot recover";
  EXPECT_TRUE(fails([](Scene* s) {
    s->Exited(0, Code(0));
    s->Exited(1, Code(1));
  })) << "one is done";
  EXPECT_TRUE(fails([](Scene* s) {
    for (int32_t rank = 0; rank < 4; ++rank) s->Exited(rank, Code(1));
  })) << "none is left";
  EXPECT_TRUE(fails([](Scene* s) { s->Exited(1, Code(127)); })) << "fatal";
  EXPECT_TRUE(fails([](Scene* s) { s->Exited(1, Code(42)); })) << "requested";
  EXPECT_TRUE(fails([](Scene* s) {
    ExitStatus exit = Code(1);
    exit.reason = Reason::kPortTaken;
    s->Exited(1, exit);
  })) << "a port";
  EXPECT_TRUE(fails([](Scene* s) {
    ExitStatus exit = Code(1);
    exit.reason = Reason::kDiverged;
    s->Exited(1, exit);
  })) << "which state is right?";
  EXPECT_TRUE(fails([](Scene* s) { s->view.stall = StallOf(-1); }))
      << "all ranks wait";
}

// It said that all of its ranks have ended before it was told to restart one.
TEST(RecoveryTest, ANodeThatIsToRestartARankIsNotFree) {
  Scene s = Recoverable();
  s.Exited(1, Signal(SIGKILL));
  s.Gang("b").phase = GangPhase::kStopped;
  s.Settle();
  ASSERT_EQ(s.job.recovery, 1u);
  s.view.nodes["b"].restarting = true;
  s.Exited(2, Code(127));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  for (const NodeName node : {"a", "c", "d"}) s.Stopped(node);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  EXPECT_EQ(s.job.holds.size(), 4u);
  s.view.nodes["b"].restarting = false;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
}

// Only the rank that has the state is gone.
TEST(RecoveryTest, NoReplacementHoldsTheState) {
  Scene s(NativeSpec("j", 2));
  s.Run({"a", "b"});
  for (int32_t rank = 0; rank < 2; ++rank) s.Rank(rank).recoverable = true;
  s.Settle();
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  ComeBack(&s, 1);
  ASSERT_EQ(s.job.recovery, 1u);
  s.Exited(0, Signal(SIGKILL));
  s.Settle();
  EXPECT_TRUE(s.job.failing);
}

TEST(RecoveryTest, AFrozenRankIsReplaced) {
  Scene s = Recoverable();
  s.view.stall = StallOf(2);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  EXPECT_EQ(s.job.recovery, 1u) << "once, while the recovery is under way";
  EXPECT_EQ(Stored(s, 2).restarts, 1);
  EXPECT_THAT(s.job.events.back().message,
              HasSubstr("rank 2 (worker 1 on c) has stalled in compute"));
  s.view.stall.reset();
  ComeBack(&s, 2);
  Join(&s);
  EXPECT_FALSE(IsRecovering(s.job));
}

TEST(RecoveryTest, RanksThatParkWithoutALossFormAgain) {
  Scene s = Recoverable();
  s.Rank(0).parked = 1;
  s.Rank(3).parked = 1;
  s.Settle();
  s.Settle();
  s.Advance(2s - 1ns);
  s.Settle();
  EXPECT_EQ(s.job.recovery, 0u);
  s.Advance(1ns);
  s.Settle();
  EXPECT_EQ(s.job.recovery, 1u);
  EXPECT_EQ(s.job.failures_without_progress, 0);
  EXPECT_EQ(s.job.events.back().message,
            "ranks 0, 3 lost a peer, although no rank has ended; a new "
            "communicator is formed while 4 ranks hold their state (recovery "
            "1; it uses up no try, 1 of 10 such failures an hour)");
  EXPECT_EQ(s.job.cause.message,
            "recovery 1: the ranks form a new communicator");
  for (int32_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(Stored(s, rank).restarts, 0);
  Join(&s);
  EXPECT_FALSE(IsRecovering(s.job));
}

// Its ranks may have ended.
TEST(RecoveryTest, ASilentNodeIsWaitedFor) {
  Scene s = Recoverable();
  s.Rank(0).parked = 1;
  s.view.nodes["b"].state = NodeState::kUnknown;
  s.Settle();
  s.Advance(1min);
  s.Settle();
  EXPECT_EQ(s.job.recovery, 0u);
  s.view.nodes["b"].state = NodeState::kReady;
  s.Settle();
  s.Advance(2s);
  s.Settle();
  EXPECT_EQ(s.job.recovery, 1u);
}

TEST(RecoveryTest, AReplacementThatDoesNotStartFailsTheGeneration) {
  Scene s = Recoverable();
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  s.Advance(120s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->message,
            "rank 1 (worker 0 on b) did not restart within 2 m 00 s");
}

TEST(RecoveryTest, ASlowRecoveryOfAllRanksBlamesNone) {
  Scene s = Recoverable();
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  ComeBack(&s, 1);
  for (const int32_t rank : {0, 1, 2, 3}) s.Rank(rank).parked = 1;
  s.Settle();
  s.Advance(31s);
  s.Settle();
  EXPECT_EQ(s.job.cause.message,
            "recovery 1 has not ended after 30.0 s: all ranks are there, and "
            "have not joined; see `lockstep jobs why j`");
}

TEST(RecoveryTest, RanksThatDoNotJoinFailTheGeneration) {
  Scene s = Recoverable();
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  s.Advance(100s);
  ComeBack(&s, 1);
  s.Settle();
  for (const int32_t rank : {0, 2, 3}) s.Rank(rank).parked = 1;
  s.Settle();
  s.Advance(30s);
  s.Settle();
  EXPECT_EQ(s.job.cause.message, "recovery 1: rank 1 is replaced");
  s.Advance(1ns);
  s.Settle();
  const size_t events = s.job.events.size();
  s.Advance(2min - 30s - 1ns);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  EXPECT_EQ(s.job.cause.message,
            "recovery 1 has not ended after 30.0 s: rank 1 has not joined");
  EXPECT_EQ(s.job.events.back().message, s.job.cause.message);
  EXPECT_EQ(s.job.events.size(), events) << "once";
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->message,
            "recovery 1 has not ended after 2 m 00 s: rank 1 has not joined");
  s.AllStopped();
  s.Settle();
  s.Advance(2s);
  s.Settle();
  s.Put({"a", "b", "c", "d"});
  EXPECT_EQ(s.job.generation, 2u);
  EXPECT_EQ(s.job.recovery, 0u);
  EXPECT_EQ(s.job.recoveries, 1);
  EXPECT_FALSE(Stored(s, 0).recoverable);
}

// The others had done the last step when it was killed.
TEST(RecoveryTest, ARankThatIsReplacedAfterTheLastStepRestartsTheGang) {
  Scene s = Recoverable();
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  ASSERT_EQ(s.job.recovery, 1u);
  for (const int32_t rank : {0, 2, 3}) s.Exited(rank, Code(0));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(
      s.job.failing->message,
      "rank 1 waits for recovery 1, and ranks 0, 2, 3 have exited with 0");
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.failures_without_progress, 1) << "of the killed rank alone";
}

// A program's signs of progress do not tell which rank is the cause.
TEST(RecoveryTest, AFrozenRankOfAProgramIsTheOneThatEvidenceNames) {
  const auto stalled = [](std::optional<std::set<int32_t>> causes) {
    Scene s(ProgramSpec(
        "j", {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 2)}));
    s.Put({"a", "b", "c"});
    s.Prepared();
    s.Settle();
    s.Started();
    for (int32_t rank = 0; rank < 3; ++rank) s.Rank(rank).recoverable = true;
    s.Settle();
    s.view.stall = StallOf(0);
    s.view.stall_causes = std::move(causes);
    s.Settle();
    return s.job;
  };
  const Job named = stalled(std::set<int32_t>{1});
  EXPECT_FALSE(named.failing);
  EXPECT_EQ(named.recovery, 1u);
  EXPECT_EQ(RanksOf(named)[1]->restarts, 1);
  EXPECT_EQ(RanksOf(named)[0]->restarts, 0);
  EXPECT_TRUE(stalled(std::nullopt).failing) << "it was not judged in time";
  EXPECT_TRUE(stalled(std::set<int32_t>()).failing) << "none is named";
  EXPECT_TRUE(stalled(std::set<int32_t>{0, 1, 2}).failing) << "none is left";
}

// Of a new process it is not known whether it has the state already.
TEST(RecoveryTest, ANewProcessOfAProgramSurvivesOnceItHasJoined) {
  for (const bool joined : {true, false}) {
    Scene s(ProgramSpec("j", {Role(TaskType::kWorker, 2)}));
    s.Run({"a", "b"});
    for (const int32_t rank : {0, 1}) s.Rank(rank).recoverable = true;
    s.Settle();
    s.Exited(1, Signal(SIGKILL));
    s.Settle();
    ASSERT_EQ(s.job.recovery, 1u);
    ComeBack(&s, 1);
    s.Rank(0).recovery = 1;
    s.Rank(1).recoverable = true;
    if (joined) s.Rank(1).recovery = 1;
    s.Settle();
    s.Exited(0, Signal(SIGKILL));
    s.Settle();
    EXPECT_EQ(s.job.failing.has_value(), !joined);
  }
}

// One that waits to be replaced would be waited for, for ever.
TEST(RecoveryTest, ARankThatWaitsIsACauseWhenTheGangMustRestart) {
  Scene s = Recoverable();
  LoseOne(&s);
  s.Exited(1, Code(3));
  s.Settle();
  ASSERT_FALSE(s.job.failing);
  // Too late to replace the node.
  Drain drain;
  drain.grace = 60s;
  drain.time = s.now.wall - 40s;
  s.view.nodes["c"].drain = drain;
  s.Settle();
  EXPECT_TRUE(s.job.failing);
}

TEST(RecoveryTest, AFatalFailureIsTheCauseWhileAnotherRankWaits) {
  Scene s = Recoverable();
  LoseOne(&s);
  s.Exited(1, Code(3));
  s.Settle();
  ASSERT_FALSE(s.job.failing);
  s.Advance(1s);
  s.Exited(2, Code(127));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_THAT(s.job.failing->message, HasSubstr("rank 2"));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
}

TEST(RecoveryTest, WhatAnEarlierProcessSaidIsNotTheNewOnes) {
  Scene s = Recoverable();
  s.Rank(1).parked = 1;
  s.Settle();
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  EXPECT_EQ(Stored(s, 1).parked, 0u);
  // Late, of the process before.
  s.Rank(1).recovery = 1;
  s.Settle();
  EXPECT_EQ(Stored(s, 1).recovery, 0u);
  // What a node says later is never less.
  ComeBack(&s, 1);
  Join(&s);
  s.Rank(0).recovery = 0;
  s.Settle();
  EXPECT_EQ(Stored(s, 0).recovery, 1u);
}

// A program whose ranks say nothing restarts as a whole.
TEST(RecoveryTest, RanksOfAProgramAreReplacedIfAllAreRecoverable) {
  for (const bool recoverable : {true, false}) {
    Scene s(ProgramSpec(
        "p", {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 2)}));
    s.Run({"a", "b", "c"});
    for (int32_t rank = 0; rank < 3; ++rank) {
      s.Rank(rank).recoverable = recoverable || rank > 0;
    }
    s.Settle();
    s.Exited(1, Signal(SIGKILL));
    s.Settle();
    EXPECT_EQ(s.job.failing.has_value(), !recoverable);
    if (!recoverable) continue;
    EXPECT_EQ(s.job.recovery, 1u);
    EXPECT_EQ(Stored(s, 1).restarts, 1);
    EXPECT_EQ(Stored(s, 0).restarts, 0);
    ComeBack(&s, 1);
    EXPECT_TRUE(IsRecovering(s.job));
    for (int32_t rank = 0; rank < 3; ++rank) {
      s.Rank(rank).recoverable = true;
      s.Rank(rank).recovery = 1;
    }
    s.Settle();
    EXPECT_FALSE(IsRecovering(s.job));
    // A committed step since then restores the tries.
    for (int32_t kills = 1; kills <= 5; ++kills) {
      s.Rank(0).progress.committed_step = kills;
      s.Exited(2, Signal(SIGKILL));
      s.Settle();
      ASSERT_FALSE(s.job.failing);
      EXPECT_EQ(s.job.failures_without_progress, 1);
      ComeBack(&s, 2);
      for (int32_t rank = 0; rank < 3; ++rank) {
        s.Rank(rank).recoverable = true;
        s.Rank(rank).recovery = s.job.recovery;
      }
      s.Settle();
    }
  }
}

}  // namespace
}  // namespace lockstep::server
