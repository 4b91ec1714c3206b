// Nodes that an elastic job leaves while its others train.
#include "server/core/departing_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "server/core/elastic_fixture.h"
#include "server/core/held_back.h"
#include "server/core/moving.h"
#include "server/core/recovery.h"
#include "server/core/rescale.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DepartingNodesTest : public ElasticFixture {};

TEST_F(DepartingNodesTest, ADrainedNodeOfRanksThatAreAwayHoldsUpNothing) {
  hosts_.clear();
  Kill(1);
  MembersJoin();
  DrainNode("b", 10min);
  s_.Advance(6min);
  s_.Settle();
  EXPECT_FALSE(s_.job.failing) << "nothing of it trains there";
  EXPECT_TRUE(CanRecover(s_.job, s_.view));
}

// No other node has room: rather than to move as a whole, the job trains on
// without the node, and the node is empty.
TEST_F(DepartingNodesTest, ADrainedNodeIsLeftAndComesBack) {
  hosts_.clear();
  DrainNode("c", 2min);
  Place();
  s_.Advance(59s);
  s_.Settle();
  EXPECT_EQ(s_.job.recovery, 0u) << "another node may still have room";
  s_.Advance(1s);
  s_.Settle();
  EXPECT_THAT(Away(), ElementsAre(2));
  EXPECT_EQ(s_.job.failures_without_progress, 0);
  EXPECT_EQ(s_.job.events.back().message,
            "node c is drained by user/ann: new kernel; 3 ranks train on "
            "without rank 2 (recovery 1)");
  MembersJoin();
  EXPECT_EQ(Told("c").goal, Goal::kStop);
  EXPECT_EQ(Told("a").goal, Goal::kGo);
  EXPECT_TRUE(Holds("c")) << "its processes run still";
  // The drain ends before the node has stopped them.
  s_.view.nodes["c"].drain.reset();
  s_.Settle();
  EXPECT_EQ(Told("c").goal, Goal::kStop);
  s_.Exited(2, ExitStatus());
  s_.Gang("c").phase = GangPhase::kStopped;
  s_.Settle();
  EXPECT_FALSE(Holds("c"));
  EXPECT_FALSE(s_.job.failing);
  EXPECT_EQ(Told("c").goal, Goal::kForget);
  s_.view.nodes["c"].gangs.clear();
  s_.Advance(10min);
  s_.Settle();
  EXPECT_FALSE(s_.job.failing);
  EXPECT_FALSE(s_.job.outcome);
  EXPECT_FALSE(IsRecovering(s_.job));
  // It has room again.
  hosts_ = {Host("c", 8)};
  Place();
  EXPECT_TRUE(Holds("c"));
  EXPECT_EQ(Told("c").goal, Goal::kPrepare);
  Prepare("c", {2});
  EXPECT_EQ(Stored(2).restarts, 1);
  EXPECT_EQ(Told("c").goal, Goal::kGo);
  MembersJoin();
  Start(2);
  Wait(2);
  EXPECT_THAT(Away(), IsEmpty());
  MembersJoin();
  EXPECT_FALSE(IsRecovering(s_.job));
  EXPECT_THAT(s_.job.replacements, IsEmpty());
}

TEST_F(DepartingNodesTest, SeveralDrainedNodesAreLeftWhileEnoughTasksAreLeft) {
  hosts_.clear();
  DrainNode("b", 1min);
  DrainNode("c", 1min);
  s_.Advance(31s);
  s_.Settle();
  EXPECT_THAT(Away(), ElementsAre(1, 2));
  EXPECT_EQ(s_.job.recovery, 1u);
  MembersJoin();
  // One is fewer than two: it moves as a whole.
  DrainNode("d", 1min);
  s_.Advance(31s);
  s_.Settle();
  EXPECT_THAT(Away(), ElementsAre(1, 2));
  EXPECT_TRUE(IsAskedToStop(s_.job));
}

TEST_F(DepartingNodesTest, DrainedNodesThatLeaveTooFewAreLeftAsAWhole) {
  hosts_.clear();
  for (const char* node : {"b", "c", "d"}) DrainNode(node, 1min);
  s_.Advance(31s);
  s_.Settle();
  EXPECT_THAT(Away(), IsEmpty());
  EXPECT_TRUE(IsAskedToStop(s_.job));
}

TEST_F(DepartingNodesTest, AUserMayWantFewerTasksForAWhile) {
  hosts_.clear();
  s_.job = *ResizeTo(s_.job, 2, "user/ann", s_.now);
  s_.Settle();
  EXPECT_THAT(Away(), ElementsAre(2, 3));
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_EQ(s_.job.failures_without_progress, 0);
  EXPECT_EQ(s_.job.events.back().message,
            "2 tasks are wanted; 2 ranks train on without ranks 2, 3 "
            "(recovery 1)");
  MembersJoin();
  for (const char* node : {"c", "d"}) {
    EXPECT_EQ(Told(node).goal, Goal::kStop);
  }
  for (const int32_t rank : {2, 3}) {
    s_.Exited(rank, Signal(SIGTERM));
    s_.Gang(Task(rank).node).phase = GangPhase::kStopped;
  }
  s_.Settle();
  EXPECT_FALSE(Holds("c"));
  EXPECT_FALSE(Holds("d"));
  for (const char* node : {"c", "d"}) s_.view.nodes[node].gangs.clear();
  hosts_ = {Host("c", 8)};
  s_.Advance(1h);
  s_.Settle();
  EXPECT_FALSE(WantsPlaces(s_.job)) << "there is room, and it is not wanted";
  EXPECT_EQ(MissedRanks(s_.job), 0u);
  EXPECT_FALSE(s_.job.failing);
  EXPECT_EQ(s_.job.recovery, 1u);
  s_.job = *ResizeTo(s_.job, 3, "user/ann", s_.now);
  s_.Settle();
  ASSERT_TRUE(WantsPlaces(s_.job));
  // Only where rank 2 was is there room.
  Place();
  EXPECT_TRUE(Holds("c"));
  s_.Settle();
  EXPECT_FALSE(WantsPlaces(s_.job));
  Prepare("c", {2});
  EXPECT_EQ(s_.job.events.back().message,
            "3 tasks are wanted; rank 2 is replaced on c while 2 ranks train "
            "on (recovery 2)");
  MembersJoin();
  Start(2);
  Wait(2);
  EXPECT_THAT(Away(), ElementsAre(3));
  MembersJoin();
  EXPECT_EQ(s_.job.cause.message, "3 of 4 ranks train; rank 3 is away");
  EXPECT_EQ(MissedRanks(s_.job), 0u);
  s_.job = *ResizeTo(s_.job, 4, "user/ann", s_.now);
  EXPECT_EQ(s_.job.wanted_tasks, 0);
  s_.Settle();
  EXPECT_TRUE(WantsPlaces(s_.job));
  EXPECT_EQ(MissedRanks(s_.job), 1u);
}

// A node that a user has set free is not taken again as a spare.
TEST_F(DepartingNodesTest, ANodeThatIsHeldBackIsNoSpare) {
  s_.job.spec.spares = 1;
  hosts_.clear();
  s_.job = *ResizeTo(s_.job, 3, "user/ann", s_.now);
  s_.Settle();
  MembersJoin();
  s_.Exited(3, Signal(SIGTERM));
  s_.Gang("d").phase = GangPhase::kStopped;
  s_.Settle();
  s_.view.nodes["d"].gangs.clear();
  hosts_ = {Host("d", 8)};
  Place();
  EXPECT_THAT(s_.job.spares, IsEmpty());
  EXPECT_FALSE(Holds("d"));
  // When another node is lost, its rank is the one that is not wanted.
  Lose("b");
  EXPECT_THAT(Away(), ElementsAre(1, 3));
  MembersJoin();
  ASSERT_TRUE(WantsPlaces(s_.job));
  Place();
  EXPECT_TRUE(Holds("d"));
  s_.Settle();
  Prepare("d", {3});
  MembersJoin();
  Start(3);
  Wait(3);
  EXPECT_THAT(Away(), ElementsAre(1));
  MembersJoin();
  EXPECT_FALSE(WantsPlaces(s_.job));
}

// Others may have it by now.
TEST_F(DepartingNodesTest, AGangThatRestartsIsPlacedAnewWhereANodeWasSetFree) {
  hosts_.clear();
  s_.job = *ResizeTo(s_.job, 3, "user/ann", s_.now);
  s_.Settle();
  MembersJoin();
  s_.Exited(3, Signal(SIGTERM));
  s_.Gang("d").phase = GangPhase::kStopped;
  s_.Settle();
  ASSERT_FALSE(Holds("d"));
  for (const int32_t rank : {0, 1, 2}) s_.Exited(rank, Signal(SIGKILL));
  s_.Settle();
  ASSERT_TRUE(s_.job.failing);
  s_.AllStopped();
  s_.Settle();
  EXPECT_EQ(s_.job.state, JobState::kPlacing);
  EXPECT_THAT(s_.job.holds, IsEmpty());
}

TEST_F(DepartingNodesTest, AJobThatEndsGivesBackWhatWasToComeBack) {
  hosts_.clear();
  s_.job = *ResizeTo(s_.job, 3, "user/ann", s_.now);
  s_.Settle();
  MembersJoin();
  s_.Exited(3, Signal(SIGTERM));
  s_.Gang("d").phase = GangPhase::kStopped;
  s_.Settle();
  s_.view.nodes["d"].gangs.clear();
  s_.job = *ResizeTo(s_.job, 4, "user/ann", s_.now);
  s_.Settle();
  hosts_ = {Host("d", 8)};
  Place();
  ASSERT_TRUE(Holds("d"));
  for (const int32_t rank : {0, 1, 2}) s_.Exited(rank, ExitStatus());
  s_.Settle();
  ASSERT_EQ(s_.job.outcome, JobState::kSucceeded);
  EXPECT_EQ(Told("d").goal, Goal::kStop) << "it says that it has nothing";
}

// Two nodes come back: the others stop once for both.
TEST_F(DepartingNodesTest, RanksOfSeveralNodesMoveTogether) {
  hosts_.clear();
  s_.job = *ResizeTo(s_.job, 2, "user/ann", s_.now);
  s_.Settle();
  MembersJoin();
  for (const int32_t rank : {2, 3}) {
    s_.Exited(rank, ExitStatus());
    s_.Gang(Task(rank).node).phase = GangPhase::kStopped;
  }
  s_.Settle();
  for (const char* node : {"c", "d"}) s_.view.nodes[node].gangs.clear();
  s_.job = *ResizeTo(s_.job, 4, "user/ann", s_.now);
  s_.Settle();
  hosts_ = {Host("c", 8), Host("d", 8)};
  Place();
  ASSERT_TRUE(Holds("c") && Holds("d"));
  Report("c", {2});
  Prepare("d", {3});
  EXPECT_EQ(s_.job.recovery, 2u);
  EXPECT_EQ(Stored(2).restarts, 1);
  EXPECT_EQ(Stored(3).restarts, 1);
  EXPECT_THAT(s_.job.replacements, IsEmpty());
}

TEST_F(DepartingNodesTest, TheNodeOfTheChiefThatEndsTheJobIsNotHeldBack) {
  s_.job.spec.end_with = EndWith::kChief;
  for (const size_t task : {2, 3}) s_.job.tasks[task].node = "c";
  s_.job.tasks[1].node = "b";
  s_.job.spec.elastic_min_tasks = 1;
  // a has rank 0, b one task, c two.
  const auto resized = [this](int32_t tasks) {
    return std::string(
        Message(ResizeTo(s_.job, tasks, "user/ann", s_.now).status()));
  };
  EXPECT_EQ(resized(3), "");
  s_.job.tasks[1].node = "c";
  EXPECT_THAT(resized(3), HasSubstr("it can have 1 or 4"));
}

TEST_F(DepartingNodesTest, ALostNodeIsTheOneThatIsNotWanted) {
  hosts_.clear();
  Lose("b");
  MembersJoin();
  s_.job = *ResizeTo(s_.job, 3, "user/ann", s_.now);
  s_.Settle();
  EXPECT_THAT(Away(), ElementsAre(1));
  EXPECT_FALSE(WantsPlaces(s_.job));
}

TEST_F(DepartingNodesTest, WhatCannotBeResizedSaysWhy) {
  const auto refused = [this](int32_t tasks) {
    const auto resized = ResizeTo(s_.job, tasks, "user/ann", s_.now);
    return std::string(Message(resized.status()));
  };
  EXPECT_THAT(refused(1), HasSubstr("may have 2 to 4 tasks"));
  EXPECT_THAT(refused(5), HasSubstr("may have 2 to 4 tasks"));
  // Two share a node.
  s_.job.tasks[3].node = s_.job.tasks[2].node;
  EXPECT_EQ(refused(3), "") << "b can be left";
  s_.job.tasks[0].node = s_.job.tasks[1].node;
  EXPECT_EQ(refused(3),
            "job j cannot have 3 tasks where it runs, because the tasks of a "
            "node stay together: it can have 2 or 4");
  s_.job.tasks[2].ranks[0].elastic = false;
  EXPECT_THAT(refused(2), HasSubstr("the program of rank 2 has not said"));
  s_.job.spec.elastic_min_tasks = 0;
  EXPECT_THAT(refused(2), HasSubstr("a fixed size of 4 tasks"));
}

}  // namespace
}  // namespace lockstep::server
