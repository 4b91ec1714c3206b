// The tasks of a lost or a drained node move to another one while the other
// ranks stay.
#include "server/core/replacing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server/core/assignments.h"
#include "server/core/recovery.h"
#include "server/core/replacing_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ReplacingTest : public ReplacingFixture {};

TEST_F(ReplacingTest, ALostNodeIsReplacedWhileTheOthersStay) {
  Lose("b");
  EXPECT_EQ(s_.job.state, JobState::kRunning);
  EXPECT_FALSE(s_.job.failing);
  EXPECT_TRUE(WantsPlaces(s_.job));
  EXPECT_TRUE(IsRecovering(s_.job));
  EXPECT_EQ(s_.job.recovery, 0u) << "the others wait";
  EXPECT_EQ(s_.job.events.back().message,
            "node b is lost; the other ranks hold their state until another "
            "node has rank 1");
  EXPECT_EQ(s_.job.cause.message,
            "node b is lost: rank 1 waits for a node with room");
  Place();
  s_.Settle();
  EXPECT_FALSE(WantsPlaces(s_.job));
  EXPECT_TRUE(Holds("e"));
  EXPECT_EQ(s_.job.cause.message, "node b is lost: node e prepares for rank 1");
  const Assignment told = Told("e");
  EXPECT_EQ(told.goal, Goal::kPrepare);
  ASSERT_EQ(told.spec->tasks.size(), 1u);
  EXPECT_EQ(told.spec->tasks[0].ranks[0].rank, 1);
  EXPECT_EQ(told.spec->tasks[0].ranks[0].restarts, 1);
  EXPECT_EQ(Told("a").recovery, 0u);

  const Job before = s_.job;
  Prepare("e", {1});
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_EQ(s_.job.recoveries, 1);
  EXPECT_THAT(s_.job.replacements, IsEmpty());
  EXPECT_EQ(s_.job.tasks[1].node, "e");
  EXPECT_EQ(s_.job.tasks[1].address, "10.0.0.99:8001");
  EXPECT_EQ(s_.job.cluster->tasks[1].node, "e");
  EXPECT_EQ(s_.job.cluster->tasks[1].address, "10.0.0.99:8001");
  EXPECT_EQ(s_.job.cluster->master_port, before.cluster->master_port);
  EXPECT_FALSE(Holds("b")) << "it is lost";
  EXPECT_EQ(s_.job.generation, 1u);
  EXPECT_EQ(s_.job.failures_without_progress, 0) << "no fault of the program";
  EXPECT_THAT(s_.job.events.back().message,
              HasSubstr("node b is lost; rank 1 is replaced on e while 3 ranks "
                        "hold their state (recovery 1; it uses up no try"));
  EXPECT_THAT(NodesToUpdate(&before, s_.job),
              ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_EQ(Told("e").goal, Goal::kGo);
  EXPECT_EQ(Told("e").recovery, 1u);
  EXPECT_EQ(Told("a").recovery, 1u);
  Join();
  EXPECT_FALSE(IsRecovering(s_.job));
  EXPECT_EQ(s_.job.cause, (Cause{Reason::kRunning, ""}));
}

TEST_F(ReplacingTest, WhatTheOldNodeStillHasIsStopped) {
  DrainNode("b", 10min);
  Place();
  Prepare("e", {1});
  ASSERT_EQ(s_.job.recovery, 1u);
  EXPECT_EQ(Told("b").goal, Goal::kStop);
  EXPECT_EQ(Told("b").stop_message, "its ranks have moved to another node");
  EXPECT_TRUE(Holds("b")) << "its process may still run";
  EXPECT_EQ(Told("e").goal, Goal::kPrepare) << "and the new one waits for that";
  EXPECT_EQ(Told("a").goal, Goal::kGo);
  // A late report of the old process does not count for the new one.
  s_.view.nodes["b"].gangs[1].ranks[0].state = RankState::kExited;
  s_.view.nodes["b"].gangs[1].ranks[0].exit = Victim(Signal(SIGTERM));
  s_.Settle();
  EXPECT_FALSE(RanksOf(s_.job)[1]->exit);
  s_.view.nodes["b"].gangs[1].phase = GangPhase::kStopped;
  const Job before = s_.job;
  s_.Settle();
  EXPECT_FALSE(Holds("b"));
  EXPECT_THAT(NodesToUpdate(&before, s_.job),
              ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_EQ(Told("e").goal, Goal::kGo);
  EXPECT_EQ(s_.job.state, JobState::kRunning);
}

TEST_F(ReplacingTest, ADrainedNodeTrainsUntilTheNewOneIsPrepared) {
  DrainNode("b", 10min);
  EXPECT_FALSE(IsRecovering(s_.job)) << "it trains";
  EXPECT_THAT(s_.job.directives, IsEmpty()) << "and need not save";
  EXPECT_EQ(s_.job.events.back().message,
            "node b is drained by user/ann: new kernel; rank 1 moves as soon "
            "as another node has prepared for it");
  Place();
  s_.Settle();
  EXPECT_EQ(Told("b").goal, Goal::kGo);
  Prepare("e", {1});
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_EQ(s_.job.failures_without_progress, 0);
  EXPECT_THAT(s_.job.uncharged_failures, IsEmpty()) << "it is no failure";
  EXPECT_EQ(s_.job.tasks[1].node, "e");
}

TEST_F(ReplacingTest, ADrainedNodeThatCannotBeReplacedIsLeftAsAWhole) {
  s_.job.spec.output_directory = "/out";
  DrainNode("b", 10min);
  s_.Advance(4min);
  s_.Settle();
  EXPECT_THAT(s_.job.directives, IsEmpty());
  s_.Advance(1min);
  s_.Settle();
  ASSERT_EQ(s_.job.directives.size(), 1u) << "half of its grace is over";
  EXPECT_EQ(s_.job.directives[0].kind, DirectiveKind::kStop);
  EXPECT_THAT(s_.job.replacements, IsEmpty());
}

TEST_F(ReplacingTest, ANodeThatTakesWorkAgainIsNotLeft) {
  DrainNode("b", 10min);
  Place();
  s_.Settle();
  ASSERT_TRUE(Holds("e"));
  s_.view.nodes["e"].gangs[1].phase = GangPhase::kPreparing;
  s_.view.nodes["b"].drain.reset();
  s_.Settle();
  EXPECT_THAT(s_.job.replacements, IsEmpty());
  EXPECT_EQ(Told("e").goal, Goal::kStop);
  s_.view.nodes["e"].gangs[1].phase = GangPhase::kStopped;
  s_.Settle();
  EXPECT_FALSE(Holds("e"));
  EXPECT_EQ(s_.job.recovery, 0u);
}

TEST_F(ReplacingTest, TwoDrainedNodesAreLeftOneByOne) {
  hosts_.push_back(Host("f", 8));
  DrainNode("b", 10min);
  DrainNode("c", 10min);
  Place();
  Prepare("f", {2});
  EXPECT_EQ(s_.job.recovery, 1u);
  Prepare("e", {1});
  EXPECT_EQ(s_.job.recovery, 1u) << "the first recovery is not over";
  Join();
  EXPECT_EQ(s_.job.recovery, 2u);
  Join();
  EXPECT_EQ(s_.job.tasks[1].node, "e");
  EXPECT_EQ(s_.job.tasks[2].node, "f");
}

TEST_F(ReplacingTest, ADrainedNodeWaitsForARankThatFailedElsewhere) {
  DrainNode("b", 10min);
  Place();
  s_.Exited(2, Code(1));
  Prepare("e", {1});
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_EQ(s_.job.failures_without_progress, 1) << "the failure counts";
  EXPECT_EQ(s_.job.tasks[1].node, "b");
  Join();
  EXPECT_EQ(s_.job.recovery, 2u);
  EXPECT_EQ(s_.job.tasks[1].node, "e");
}

// As every other: it is drained because of that, perhaps.
TEST_F(ReplacingTest, ADrainedNodeThatCoolsDownIsLeft) {
  s_.view.nodes["b"].cools = true;
  DrainNode("b", 10min);
  Place();
  Prepare("e", {1});
  EXPECT_FALSE(s_.job.failing);
  EXPECT_EQ(s_.job.recovery, 1u);
}

TEST_F(ReplacingTest, TwoLostNodesAreReplacedTogether) {
  hosts_.push_back(Host("f", 8));
  Lose("b");
  Lose("c");
  Place();
  Prepare("e", {1});
  EXPECT_EQ(s_.job.recovery, 0u);
  Prepare("f", {2});
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_EQ(s_.job.tasks[1].node, "e");
  EXPECT_EQ(s_.job.tasks[2].node, "f");
}

TEST_F(ReplacingTest, ARankThatFailsMeanwhileIsReplacedAtOnce) {
  Lose("b");
  s_.Exited(2, Signal(SIGKILL));
  s_.Settle();
  EXPECT_FALSE(s_.job.failing);
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_EQ(RanksOf(s_.job)[2]->restarts, 1);
  Place();
  Prepare("e", {1});
  EXPECT_EQ(s_.job.recovery, 2u);
  EXPECT_EQ(s_.job.tasks[1].node, "e");
}

TEST_F(ReplacingTest, WithoutAnyRankElsewhereTheGangRestarts) {
  for (const NodeName node : {"a", "b", "c", "d"}) {
    s_.view.nodes[node].state = NodeState::kLost;
  }
  s_.Settle();
  EXPECT_TRUE(s_.job.failing || s_.job.generation > 1 ||
              s_.job.state == JobState::kPlacing);
}

TEST_F(ReplacingTest, WithoutRoomTheGangRestartsAfterAWhile) {
  hosts_.clear();
  s_.view.nodes["b"].last_sign = s_.now.wall - 1min;
  Lose("b");
  Place();
  s_.Advance(6min);
  s_.Settle();
  EXPECT_FALSE(s_.job.failing);
  s_.Advance(2min);
  s_.Settle();
  ASSERT_TRUE(s_.job.failing) << "eight minutes from its last sign";
  EXPECT_EQ(s_.job.failing->reason, Reason::kNodeLost);
  EXPECT_EQ(s_.job.failing->message,
            "node b is lost, and no other node was ready for rank 1 within "
            "8 m 00 s");
  EXPECT_THAT(s_.job.replacements, IsEmpty());
  for (const NodeName node : {"a", "c", "d"}) s_.Stopped(node);
  s_.Settle();
  EXPECT_EQ(s_.job.state, JobState::kPlacing) << "it is no fault of the job";
}

TEST_F(ReplacingTest, TheJobSaysHowLongTheOthersHold) {
  hosts_.clear();
  s_.job.spec.hold = 1min;
  s_.view.nodes["b"].last_sign = s_.now.wall;
  Lose("b");
  s_.Advance(59s);
  s_.Settle();
  EXPECT_FALSE(s_.job.failing);
  s_.Advance(2s);
  s_.Settle();
  ASSERT_TRUE(s_.job.failing);
  EXPECT_THAT(s_.job.failing->message, HasSubstr("within 1 m 00 s"));
}

TEST_F(ReplacingTest, AJobThatDoesNotHoldRestartsAtOnce) {
  s_.job.spec.hold = 0s;
  s_.view.nodes["b"].last_sign = s_.now.wall - 1s;
  Lose("b");
  EXPECT_TRUE(s_.job.failing);
}

TEST_F(ReplacingTest, ANewNodeThatRefusesIsFollowedByAnother) {
  hosts_.push_back(Host("f", 16));
  Lose("b");
  Place();
  ASSERT_EQ(s_.job.replacements[0].to, "e");
  GangStatus gang;
  gang.job = "j";
  gang.job_uid = s_.job.uid;
  gang.generation = 1;
  gang.phase = GangPhase::kRefused;
  gang.refusal = {Reason::kPrepareRefused, "no such program"};
  s_.view.nodes["e"].gangs[1] = gang;
  s_.Settle();
  EXPECT_FALSE(s_.job.failing);
  EXPECT_EQ(s_.job.events.back().message,
            "node e: no such program; another node is to take rank 1");
  EXPECT_FALSE(Holds("e"));
  Place();
  EXPECT_EQ(s_.job.replacements[0].to, "f");
  Prepare("f", {1});
  EXPECT_EQ(s_.job.tasks[1].node, "f");
}

TEST_F(ReplacingTest, ANewNodeThatGetsNoMoreWorkIsGivenUp) {
  hosts_.push_back(Host("f", 16));
  Lose("b");
  Place();
  s_.Settle();
  Drain drain;
  drain.time = s_.now.wall;
  s_.view.nodes["e"].drain = drain;
  s_.Settle();
  EXPECT_TRUE(WantsPlaces(s_.job));
  hosts_.erase(hosts_.begin());
  Place();
  EXPECT_EQ(s_.job.replacements[0].to, "f");
}

// It dies a second time while it prepares.
TEST_F(ReplacingTest, ANodeThatCameBackEmptyAndIsLostGetsAnother) {
  s_.view.nodes["b"].gangs.clear();
  s_.Settle();
  ASSERT_EQ(s_.job.replacements[0].to, "b");
  Lose("b");
  EXPECT_TRUE(WantsPlaces(s_.job));
  Place();
  Prepare("e", {1});
  EXPECT_EQ(s_.job.tasks[1].node, "e");
}

// Two writers of the cause would commit for ever.
TEST_F(ReplacingTest, WithoutRoomNothingChanges) {
  hosts_.clear();
  Lose("b");
  s_.Exited(2, Code(1));
  s_.Settle();
  s_.Exited(2, Code(1));
  s_.Rank(2).restarts = RanksOf(s_.job)[2]->restarts;
  s_.Settle();
  const Job before = s_.job;
  Place();
  EXPECT_EQ(s_.job, before);
}

TEST_F(ReplacingTest, ATaskGoesBackToANodeThatHasForgottenIt) {
  DrainNode("b", 10min);
  Place();
  Prepare("e", {1});
  Join();
  s_.view.nodes["b"].drain.reset();
  s_.view.nodes["b"].gangs.clear();
  std::erase_if(s_.job.holds,
                [](const Hold& hold) { return hold.node == "b"; });
  Lose("e");
  hosts_ = {Host("b", 8)};
  know_ = {"b"};
  Place();
  EXPECT_TRUE(WantsPlaces(s_.job)) << "it has its files still";
  know_.clear();
  Place();
  EXPECT_FALSE(WantsPlaces(s_.job));
  EXPECT_TRUE(Holds("b"));
}

TEST_F(ReplacingTest, ANewNodeThatIsLostIsReplacedItself) {
  Lose("b");
  Place();
  s_.Settle();
  s_.view.nodes["e"].state = NodeState::kLost;
  s_.Settle();
  EXPECT_TRUE(WantsPlaces(s_.job));
  EXPECT_FALSE(Holds("e"));
  hosts_ = {Host("f", 8)};
  Place();
  Prepare("f", {1});
  EXPECT_EQ(s_.job.tasks[1].node, "f");
}

TEST_F(ReplacingTest, ANodeThatComesBackWithItsRanksKeepsThem) {
  Lose("b");
  s_.view.nodes["b"].state = NodeState::kReady;
  s_.Settle();
  EXPECT_THAT(s_.job.replacements, IsEmpty());
  EXPECT_EQ(s_.job.cause, (Cause{Reason::kRunning, ""}));
  EXPECT_EQ(s_.job.recovery, 0u);
}

// It was started anew.
TEST_F(ReplacingTest, ANodeThatComesBackEmptyReplacesItself) {
  s_.view.nodes["b"].takes_work = true;
  s_.view.nodes["b"].gangs.clear();
  s_.Settle();
  ASSERT_EQ(s_.job.replacements.size(), 1u);
  EXPECT_EQ(s_.job.replacements[0].to, "b");
  EXPECT_EQ(Told("b").goal, Goal::kPrepare);
  EXPECT_EQ(Told("b").spec->tasks.size(), 1u);
  Prepare("b", {1});
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_EQ(s_.job.tasks[1].former_nodes, std::vector<NodeName>{"b"})
      << "a log of its own";
  EXPECT_EQ(s_.job.tasks[1].node, "b");
  EXPECT_TRUE(Holds("b"));
  EXPECT_EQ(s_.job.holds.size(), 4u);
  EXPECT_EQ(Told("b").goal, Goal::kGo);
}

TEST_F(ReplacingTest,
       ANodeThatComesBackEmptyAfterAnotherWasFoundIsToldNothing) {
  Lose("b");
  Place();
  s_.view.nodes["b"].state = NodeState::kReady;
  s_.view.nodes["b"].gangs.clear();
  s_.Settle();
  ASSERT_EQ(s_.job.replacements.size(), 1u);
  EXPECT_EQ(s_.job.replacements[0].to, "e");
  EXPECT_TRUE(
      DesiredAssignments(s_.job, s_.view, "b", StopGraces{}, s_.now).empty());
  Prepare("e", {1});
  EXPECT_EQ(s_.job.tasks[1].node, "e");
  EXPECT_EQ(Told("b").goal, Goal::kStop) << "it must say that it has nothing";
  EXPECT_TRUE(Holds("b"));
  EXPECT_EQ(Told("e").goal, Goal::kPrepare);
  s_.view.nodes["b"].gangs[1].phase = GangPhase::kStopped;
  s_.Settle();
  EXPECT_FALSE(Holds("b"));
  EXPECT_EQ(Told("e").goal, Goal::kGo);
}

TEST_F(ReplacingTest, ARankThatMayNotStartAgainOnItsNodeMoves) {
  s_.view.nodes["b"].cools = true;
  s_.Settle();
  EXPECT_THAT(s_.job.replacements, IsEmpty()) << "its rank runs";
  s_.Exited(1, Signal(SIGKILL));
  s_.Settle();
  ASSERT_EQ(s_.job.replacements.size(), 1u);
  EXPECT_FALSE(s_.job.failing);
  EXPECT_THAT(s_.job.events.back().message,
              HasSubstr("killed by SIGKILL, and node b cools down"));
  Place();
  Prepare("e", {1});
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_EQ(s_.job.tasks[1].node, "e");
  EXPECT_EQ(RanksOf(s_.job)[1]->restarts, 1);
}

TEST_F(ReplacingTest, Rank0TakesTheMasterAddressWithIt) {
  Lose("a");
  Place();
  Prepare("e", {0});
  EXPECT_EQ(s_.job.tasks[0].node, "e");
  EXPECT_EQ(s_.job.cluster->master_address, "10.0.0.99");
  EXPECT_EQ(s_.job.cluster->master_port, 8999);
}

TEST_F(ReplacingTest, ANodeThatHadPartOfTheGenerationIsNotAskedAgain) {
  Lose("b");
  know_ = {"e"};
  Place();
  EXPECT_TRUE(WantsPlaces(s_.job));
  know_ = {};
  Place();
  ASSERT_TRUE(Holds("e"));
  // Its daemon ended it.
  s_.view.nodes["e"].gangs[1].phase = GangPhase::kStopped;
  s_.Settle();
  EXPECT_TRUE(WantsPlaces(s_.job));
  EXPECT_FALSE(Holds("e"));
}

TEST_F(ReplacingTest, TheBestFitIsTaken) {
  Lose("b");
  HostCapacity drained = Host("d1", 2);
  drained.ready = false;
  HostCapacity apart = Host("d2", 2);
  apart.apart["c"] = "they do not reach each other";
  HostCapacity own = Host("c", 64);
  hosts_ = {Host("e", 8), drained, apart, own, Host("f", 3), Host("g", 0.5)};
  Place();
  EXPECT_EQ(s_.job.replacements[0].to, "f");
  EXPECT_EQ(s_.job.holds.back().resources.cpus, 1);
}

TEST_F(ReplacingTest, AJobThatCannotRecoverRestartsAsAlways) {
  Scene plain(NativeSpec("k", 4));
  plain.Run({"a", "b", "c", "d"});
  plain.view.nodes["b"].state = NodeState::kLost;
  plain.Settle();
  EXPECT_TRUE(plain.job.failing);
  EXPECT_THAT(plain.job.replacements, IsEmpty());
}

}  // namespace
}  // namespace lockstep::server
