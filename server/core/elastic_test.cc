// Ranks that are away while the others train.
#include "server/core/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server/core/held_back.h"
#include "server/core/moving.h"
#include "server/core/recovery.h"
#include "server/core/replacing_fixture.h"
#include "server/core/rescale.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

JobSpec Elastic(JobSpec spec, int32_t least) {
  spec.elastic_min_tasks = least;
  return spec;
}

// Four ranks on a, b, c and d, that train from two on; room on e.
class ElasticTest : public ReplacingFixture {
 protected:
  ElasticTest() : ReplacingFixture(Elastic(NativeSpec("j", 4), 2)) {
    SetElastic();
    s_.Settle();
  }

  void SetElastic() {
    for (const RankStatus* rank : RanksOf(s_.job)) {
      s_.Rank(rank->rank).elastic = true;
    }
  }
  void Kill(int32_t rank) {
    s_.Exited(rank, Signal(SIGKILL));
    s_.Settle();
  }
  const RankStatus& Stored(int32_t rank) const {
    return *RanksOf(s_.job)[static_cast<size_t>(rank)];
  }
  // The members have joined the newest recovery.
  void MembersJoin() {
    for (const RankStatus* rank : RanksOf(s_.job)) {
      if (rank->away) continue;
      RankStatus& status = s_.Rank(rank->rank);
      status.exit.reset();
      status.restarts = rank->restarts;
      status.state = RankState::kJoined;
      status.recovery = s_.job.recovery;
    }
    s_.Settle();
  }
  // The new process of the rank runs.
  RankStatus& Start(int32_t rank) {
    RankStatus& status = s_.Rank(rank);
    status = RankStatus();
    status.rank = rank;
    status.restarts = Stored(rank).restarts;
    status.state = RankState::kStarted;
    status.recoverable = true;
    status.elastic = true;
    s_.Gang(Task(rank).node).phase = GangPhase::kLaunched;
    s_.Settle();
    return s_.Rank(rank);
  }
  // It waits for a recovery in which it is a member.
  void Wait(int32_t rank) {
    s_.Rank(rank).parked = s_.job.recovery + 1;
    s_.Settle();
  }
  const TaskStatus& Task(int32_t rank) const {
    return s_.job.tasks[static_cast<size_t>(rank)];
  }
  std::vector<int32_t> Away() const { return AwayRanks(s_.job); }
};

TEST_F(ElasticTest, TheOthersTrainOnWithoutALostRank) {
  Kill(1);
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_THAT(Away(), ElementsAre(1));
  EXPECT_EQ(Stored(1).restarts, 1) << "it is started again meanwhile";
  EXPECT_EQ(s_.job.events.back().message,
            "rank 1 (worker 0 on b): killed by SIGKILL; 3 ranks train on "
            "without rank 1 (recovery 1; 1 of 3 failures without progress)");
  EXPECT_THAT(Told("a").away_ranks, ElementsAre(1));
  EXPECT_EQ(Told("a").recovery, 1u);
  EXPECT_TRUE(IsRecovering(s_.job));
  MembersJoin();
  EXPECT_FALSE(IsRecovering(s_.job)) << "rank 1 is not waited for";
  EXPECT_EQ(s_.job.cause,
            (Cause{Reason::kRunning, "3 of 4 ranks train; rank 1 is away"}));
  s_.Advance(1min);
  s_.Settle();
  EXPECT_EQ(s_.job.recovery, 1u);
}

TEST_F(ElasticTest, ARankWhoseProcessWaitsIsAMemberAgain) {
  Kill(1);
  MembersJoin();
  Start(1);
  EXPECT_EQ(s_.job.recovery, 1u) << "it imports";
  Wait(1);
  EXPECT_EQ(s_.job.recovery, 2u);
  EXPECT_THAT(Away(), IsEmpty());
  EXPECT_EQ(s_.job.events.back().message, "rank 1 is back (recovery 2)");
  EXPECT_THAT(Told("a").away_ranks, IsEmpty());
  EXPECT_EQ(Stored(1).restarts, 1) << "the process stays";
  EXPECT_TRUE(IsRecovering(s_.job));
  EXPECT_EQ(s_.job.failures_without_progress, 1) << "it is no failure";
  MembersJoin();
  EXPECT_FALSE(IsRecovering(s_.job));
  EXPECT_EQ(s_.job.cause, (Cause{Reason::kRunning, ""}));
}

TEST_F(ElasticTest, TheNextRankIsTheChiefWhileRankZeroIsAway) {
  EXPECT_EQ(ChiefRank(s_.job).rank, 0);
  Kill(0);
  EXPECT_THAT(Away(), ElementsAre(0));
  EXPECT_EQ(ChiefRank(s_.job).rank, 1);
  EXPECT_EQ(ChiefTask(s_.job).node, "b");
  MembersJoin();
  Start(0);
  Wait(0);
  EXPECT_THAT(Away(), IsEmpty());
  EXPECT_EQ(ChiefRank(s_.job).rank, 1) << "rank 0 does not train yet";
  MembersJoin();
  EXPECT_EQ(ChiefRank(s_.job).rank, 0);
}

TEST_F(ElasticTest, AProcessIsTheChiefUntilItKnowsOfAnother) {
  const auto chiefs = [this] {
    std::string nodes;
    for (const char* node : {"a", "b", "c", "d"}) {
      if (MayHaveChief(s_.job, node)) nodes += node;
    }
    return nodes;
  };
  EXPECT_EQ(chiefs(), "a");
  Kill(0);
  EXPECT_EQ(chiefs(), "ab");
  MembersJoin();
  EXPECT_EQ(chiefs(), "ab");
  Start(0);
  Wait(0);
  EXPECT_EQ(chiefs(), "ab");
  MembersJoin();
  EXPECT_EQ(chiefs(), "a");
  Kill(1);
  MembersJoin();
  EXPECT_EQ(chiefs(), "a");
}

TEST_F(ElasticTest, AJobMayStopOnRequestWhileRankZeroIsAway) {
  Kill(0);
  MembersJoin();
  s_.job.directives.push_back({1, DirectiveKind::kStop});
  for (const int32_t rank : {1, 2, 3}) {
    s_.Rank(rank).progress.committed_step = 5;
    s_.Rank(rank).progress.total_steps = 100;
    s_.Exited(rank, ExitStatus());
  }
  s_.Settle();
  EXPECT_FALSE(s_.job.outcome) << "it is not done";
  EXPECT_THAT(s_.job.events.back().message,
              HasSubstr("stopped after step 5, as requested"));
}

TEST_F(ElasticTest, ARankZeroWhoseExitEndsTheJobIsNeverAway) {
  s_.job.spec.end_with = EndWith::kChief;
  Kill(0);
  EXPECT_THAT(Away(), IsEmpty());
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_THAT(s_.job.events.back().message, HasSubstr("hold their state"));
}

TEST_F(ElasticTest, TheyTrainFromTheLeastNumberOfTasksOn) {
  Kill(1);
  MembersJoin();
  Kill(2);
  EXPECT_THAT(Away(), ElementsAre(1, 2));
  EXPECT_EQ(s_.job.recovery, 2u);
  MembersJoin();
  Kill(3);
  EXPECT_THAT(Away(), ElementsAre(1, 2)) << "one is fewer than two";
  EXPECT_EQ(s_.job.recovery, 3u) << "rank 3 is replaced";
  EXPECT_EQ(Stored(3).restarts, 1);
}

TEST_F(ElasticTest, AProgramThatCannotIsWaitedFor) {
  s_.Rank(2).elastic = false;
  s_.job.tasks[2].ranks[0].elastic = false;
  Kill(1);
  EXPECT_THAT(Away(), IsEmpty());
  std::vector<std::string> events;
  for (const Event& event : s_.job.events) events.push_back(event.message);
  EXPECT_THAT(
      events,
      Contains("the other ranks do not train on, as --elastic 2 wants: the "
               "program of rank 2 has not said that it can; "
               "lockstep.torch.Replica says so with elastic=True"));
}

TEST_F(ElasticTest, AProgramThatCannotRecoverRestartsAndSaysWhy) {
  for (int32_t rank = 0; rank < 4; ++rank) {
    RankStatus& stored = s_.job.tasks[static_cast<size_t>(rank)].ranks[0];
    for (RankStatus* status : {&s_.Rank(rank), &stored}) {
      status->recoverable = status->elastic = false;
    }
  }
  Kill(1);
  EXPECT_TRUE(s_.job.failing);
  std::vector<std::string> events;
  for (const Event& event : s_.job.events) events.push_back(event.message);
  EXPECT_THAT(events, Contains(HasSubstr("the program of ranks 0, 2, 3 has "
                                         "not said that it can")));
}

TEST_F(ElasticTest, AJobThatIsNotElasticIsWaitedFor) {
  s_.job.spec.elastic_min_tasks = 0;
  Kill(1);
  EXPECT_THAT(Away(), IsEmpty());
  EXPECT_EQ(s_.job.recovery, 1u);
}

TEST_F(ElasticTest, ALostNodeIsNotWaitedFor) {
  Lose("b");
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_THAT(Away(), ElementsAre(1));
  EXPECT_EQ(Stored(1).restarts, 0) << "there is no place yet";
  MembersJoin();
  EXPECT_FALSE(IsRecovering(s_.job));
  s_.Advance(9min);
  s_.Settle();
  EXPECT_FALSE(s_.job.failing) << "nothing is held";
  Place();
  ASSERT_EQ(s_.job.replacements.size(), 1u);
  EXPECT_EQ(s_.job.replacements[0].to, "e");
  EXPECT_EQ(s_.job.cause.message, "3 of 4 ranks train; rank 1 is away");
  Prepare("e", {1});
  EXPECT_EQ(s_.job.recovery, 2u) << "each one has one cluster spec";
  EXPECT_THAT(s_.job.events.back().message,
              HasSubstr("rank 1 is replaced on e while 3 ranks train on"));
  MembersJoin();
  EXPECT_FALSE(IsRecovering(s_.job));
  EXPECT_EQ(Task(1).node, "e");
  EXPECT_EQ(Stored(1).restarts, 1);
  EXPECT_THAT(Away(), ElementsAre(1));
  EXPECT_EQ(Told("e").goal, Goal::kGo);
  EXPECT_THAT(Told("e").away_ranks, ElementsAre(1));
  Start(1);
  Wait(1);
  EXPECT_EQ(s_.job.recovery, 3u);
  EXPECT_THAT(Away(), IsEmpty());
}

TEST_F(ElasticTest, WithAHoldOfNothingTheyTrainOn) {
  s_.job.spec.hold = Duration{};
  Lose("b");
  s_.Advance(1s);
  s_.Settle();
  EXPECT_FALSE(s_.job.failing);
  EXPECT_THAT(Away(), ElementsAre(1));
}

TEST_F(ElasticTest, ANodeThatIsBackReturnsItsProcess) {
  Lose("b");
  MembersJoin();
  s_.view.nodes["b"].state = NodeState::kReady;
  s_.Settle();
  EXPECT_THAT(s_.job.replacements, IsEmpty());
  EXPECT_THAT(Away(), ElementsAre(1));
  EXPECT_THAT(Told("b").away_ranks, ElementsAre(1));
  Wait(1);
  EXPECT_EQ(s_.job.recovery, 2u);
  EXPECT_THAT(Away(), IsEmpty());
  EXPECT_EQ(Stored(1).restarts, 0);
}

TEST_F(ElasticTest, ARankThatFailsWhileAwayCostsNothingAndWaits) {
  Kill(1);
  MembersJoin();
  const size_t events = s_.job.events.size();
  for (int round = 0; round < 6; ++round) {
    Start(1);
    const int32_t restarts = Stored(1).restarts;
    Kill(1);
    const Duration wait = round == 0 ? 0s : 1s * (1 << (round - 1));
    if (wait > Duration{}) {
      EXPECT_EQ(Stored(1).restarts, restarts) << round;
      s_.Advance(wait - 1ms);
      s_.Settle();
      EXPECT_EQ(Stored(1).restarts, restarts) << round;
      s_.Advance(1ms);
      s_.Settle();
    }
    EXPECT_EQ(Stored(1).restarts, restarts + 1) << round;
  }
  EXPECT_EQ(s_.job.recovery, 1u) << "the others do not stop for it";
  EXPECT_EQ(s_.job.failures_without_progress, 1);
  EXPECT_EQ(s_.job.events.size(), events + 3) << "not one for each";
  EXPECT_FALSE(s_.job.failing);
  Start(1);
  Wait(1);
  EXPECT_THAT(Away(), IsEmpty());
}

TEST_F(ElasticTest, RanksThatStartTogetherReturnTogether) {
  s_.Exited(1, Signal(SIGKILL));
  s_.Exited(2, Signal(SIGKILL));
  s_.Settle();
  EXPECT_THAT(Away(), ElementsAre(1, 2));
  MembersJoin();
  Start(1);
  Start(2);
  Wait(1);
  EXPECT_EQ(s_.job.recovery, 1u) << "rank 2 started as late";
  Wait(2);
  EXPECT_EQ(s_.job.recovery, 2u);
  EXPECT_THAT(Away(), IsEmpty());
}

TEST_F(ElasticTest, ARankThatDoesNotComeIsNotWaitedForToReturn) {
  s_.Exited(1, Signal(SIGKILL));
  s_.Exited(2, Signal(SIGKILL));
  s_.Settle();
  MembersJoin();
  Start(1);
  Start(2);
  Wait(1);
  s_.Advance(kReturnTogether);
  s_.Settle();
  EXPECT_THAT(Away(), ElementsAre(2));
  EXPECT_EQ(s_.job.events.back().message, "rank 1 is back (recovery 2)");
}

TEST_F(ElasticTest, AnotherLossTakesInWhoIsReady) {
  Kill(1);
  Start(1);
  // Before the members have joined.
  s_.Rank(1).parked = 2;
  s_.Exited(2, Signal(SIGKILL));
  s_.Advance(1s);
  s_.Settle();
  EXPECT_EQ(s_.job.recovery, 2u);
  EXPECT_THAT(Away(), ElementsAre(2));
  EXPECT_THAT(s_.job.events.back().message,
              HasSubstr("without rank 2; rank 1 is back"));
}

// The process of before was a member, and has dropped its state.
TEST_F(ElasticTest, ARankThatIsBackHoldsNoStateBeforeItHasJoined) {
  Lose("b");
  MembersJoin();
  s_.view.nodes["b"].state = NodeState::kReady;
  s_.Settle();
  Wait(1);
  ASSERT_EQ(s_.job.recovery, 2u);
  ASSERT_THAT(Away(), IsEmpty());
  ASSERT_EQ(Stored(1).state, RankState::kJoined) << "of the generation";
  for (const int32_t rank : {0, 2, 3}) s_.Exited(rank, Signal(SIGKILL));
  s_.Settle();
  EXPECT_EQ(s_.job.recovery, 2u);
  EXPECT_TRUE(s_.job.failing) << "no rank has the state";
}

TEST_F(ElasticTest, TheJobSucceedsWithoutARankThatIsAway) {
  Kill(1);
  MembersJoin();
  for (const int32_t rank : {0, 2, 3}) s_.Exited(rank, ExitStatus());
  s_.Settle();
  EXPECT_EQ(s_.job.outcome, JobState::kSucceeded);
}

// The last step was done when it was about to return.
TEST_F(ElasticTest, NorIsARankWaitedForThatHasNotTrainedAgain) {
  Kill(1);
  MembersJoin();
  Start(1);
  Wait(1);
  ASSERT_THAT(Away(), IsEmpty());
  for (const int32_t rank : {0, 2, 3}) s_.Exited(rank, ExitStatus());
  s_.Settle();
  EXPECT_FALSE(s_.job.failing) << s_.job.failing->message;
  EXPECT_EQ(s_.job.outcome, JobState::kSucceeded);
}

// The exits of the others are reported one after the other.
TEST_F(ElasticTest, AReturnThatComesAtTheLastStepFailsNothing) {
  Kill(1);
  MembersJoin();
  Start(1);
  Wait(1);
  for (const int32_t rank : {2, 3, 0}) {
    s_.Exited(rank, ExitStatus());
    s_.Settle();
    EXPECT_FALSE(s_.job.failing) << s_.job.failing->message;
    s_.Advance(1s);
    s_.Settle();
  }
  EXPECT_EQ(s_.job.outcome, JobState::kSucceeded);
}

// One has left for the return when another ends: it would wait for ever.
TEST_F(ElasticTest, AMemberThatLeftForAReturnDoesNotWaitForOneThatEnded) {
  Kill(1);
  MembersJoin();
  Start(1);
  Wait(1);
  s_.Rank(3).parked = 2;
  s_.Exited(2, ExitStatus());
  s_.Settle();
  EXPECT_TRUE(s_.job.failing);
}

// A save between two steps takes longer than a recovery may.
TEST_F(ElasticTest, ReadyRanksWaitUntilMembersEndTheirStep) {
  Kill(1);
  MembersJoin();
  Start(1);
  Wait(1);
  ASSERT_TRUE(IsRecovering(s_.job));
  s_.Advance(10min);
  s_.Settle();
  EXPECT_FALSE(s_.job.failing) << "no member has left its group";
  for (const int32_t rank : {0, 2, 3}) s_.Rank(rank).parked = 2;
  s_.Settle();
  s_.Advance(kLongestReturn + 1s);
  s_.Settle();
  EXPECT_TRUE(s_.job.failing) << "and not for ever";
}

TEST_F(ElasticTest, ARankThatCrashesAfterEachReturnWaitsLongerEachTime) {
  Kill(1);
  MembersJoin();
  for (int round = 0; round < 4; ++round) {
    Start(1);
    Wait(1);
    MembersJoin();
    ASSERT_THAT(Away(), IsEmpty());
    for (const int32_t rank : {0, 2, 3}) {
      s_.Rank(rank).progress.committed_step += 100;
    }
    s_.Settle();
    const int32_t restarts = Stored(1).restarts;
    Kill(1);
    ASSERT_THAT(Away(), ElementsAre(1));
    MembersJoin();
    s_.Advance(1s * (1 << round) - 1ms);
    s_.Settle();
    EXPECT_EQ(Stored(1).restarts, restarts) << round;
    s_.Advance(1ms);
    s_.Settle();
    EXPECT_EQ(Stored(1).restarts, restarts + 1) << round;
  }
  // It has trained for a while.
  Start(1);
  Wait(1);
  MembersJoin();
  s_.Advance(kSoon);
  for (const int32_t rank : {0, 2, 3}) {
    s_.Rank(rank).progress.committed_step += 100;
  }
  const int32_t restarts = Stored(1).restarts;
  Kill(1);
  EXPECT_EQ(Stored(1).restarts, restarts + 1) << "at once";
}

TEST_F(ElasticTest, ALateStartOfARankThatIsAwayFailsNothing) {
  Kill(1);
  MembersJoin();
  s_.Advance(10min);
  s_.Settle();
  EXPECT_EQ(Stored(1).state, RankState::kPrepared);
  EXPECT_FALSE(s_.job.failing);
}

TEST_F(ElasticTest, ARankThatIsAwayMayEndWithZero) {
  Kill(1);
  MembersJoin();
  Start(1);
  s_.Exited(1, ExitStatus());
  s_.Settle();
  EXPECT_EQ(Stored(1).restarts, 2) << "its part is not done";
  Lose("d");
  EXPECT_FALSE(s_.job.failing);
  EXPECT_THAT(Away(), ElementsAre(1, 3)) << "nodes are still replaced";
}

TEST_F(ElasticTest, ADrainedNodeOfRanksThatAreAwayHoldsUpNothing) {
  hosts_.clear();
  Kill(1);
  MembersJoin();
  DrainNode("b", 10min);
  s_.Advance(6min);
  s_.Settle();
  EXPECT_FALSE(s_.job.failing) << "nothing of it trains there";
  EXPECT_TRUE(CanRecover(s_.job, s_.view));
}

// Three of four are enough, and one of them is about to return.
TEST_F(ElasticTest, ReadyRanksCountWhenOthersAreLost) {
  s_.job.spec.elastic_min_tasks = 3;
  Kill(1);
  Start(1);
  s_.Rank(1).parked = 2;
  s_.view.nodes["c"].state = NodeState::kLost;
  s_.Settle();
  EXPECT_THAT(Away(), ElementsAre(2));
  MembersJoin();
  EXPECT_FALSE(IsRecovering(s_.job));
}

TEST_F(ElasticTest, TheJobKeepsItsRecoveries) {
  s_.Rank(0).progress.committed_step = 7;
  s_.Settle();
  const WallTime start = s_.now.wall;
  Kill(1);
  ASSERT_EQ(s_.job.in_place_recoveries.size(), 1u);
  EXPECT_FALSE(s_.job.in_place_recoveries[0].end_time);
  s_.Advance(120ms);
  MembersJoin();
  const InPlaceRecovery lost = s_.job.in_place_recoveries[0];
  EXPECT_EQ(lost.generation, s_.job.generation);
  EXPECT_EQ(lost.number, 1u);
  EXPECT_EQ(lost.start_time, start);
  EXPECT_EQ(lost.end_time, start + 120ms);
  EXPECT_EQ(lost.cause,
            (Cause{Reason::kRankSignal,
                   "rank 1 (worker 0 on b): killed by SIGKILL; 3 ranks train "
                   "on without rank 1"}));
  EXPECT_THAT(lost.replaced_ranks, ElementsAre(1));
  EXPECT_THAT(lost.away_ranks, ElementsAre(1));
  EXPECT_THAT(lost.returned_ranks, IsEmpty());
  EXPECT_EQ(lost.step, 7);
  Start(1);
  Wait(1);
  MembersJoin();
  s_.Advance(1min);
  s_.Settle();
  ASSERT_EQ(s_.job.in_place_recoveries.size(), 2u);
  EXPECT_EQ(s_.job.in_place_recoveries[0], lost);
  const InPlaceRecovery& back = s_.job.in_place_recoveries[1];
  EXPECT_EQ(back.cause, (Cause{Reason::kRecovering, "rank 1 is back"}));
  EXPECT_THAT(back.replaced_ranks, IsEmpty());
  EXPECT_THAT(back.away_ranks, IsEmpty());
  EXPECT_THAT(back.returned_ranks, ElementsAre(1));
  EXPECT_EQ(back.end_time, back.start_time);
  for (uint32_t i = 2; i < 2 + kMaxInPlaceRecoveries; ++i) {
    s_.Advance(20s);
    s_.Rank(0).progress.committed_step = 7 + i;
    Kill(i % 2 == 0 ? 2 : 3);
    MembersJoin();
    Start(i % 2 == 0 ? 2 : 3);
    Wait(i % 2 == 0 ? 2 : 3);
    MembersJoin();
  }
  EXPECT_EQ(s_.job.in_place_recoveries.size(), kMaxInPlaceRecoveries);
  EXPECT_EQ(s_.job.in_place_recoveries.back().number, s_.job.recovery);
}

// No other node has room: rather than to move as a whole, the job trains on
// without the node, and the node is empty.
TEST_F(ElasticTest, ADrainedNodeIsLeftAndComesBack) {
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

TEST_F(ElasticTest, SeveralDrainedNodesAreLeftWhileEnoughTasksAreLeft) {
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

TEST_F(ElasticTest, DrainedNodesThatLeaveTooFewAreLeftAsAWhole) {
  hosts_.clear();
  for (const char* node : {"b", "c", "d"}) DrainNode(node, 1min);
  s_.Advance(31s);
  s_.Settle();
  EXPECT_THAT(Away(), IsEmpty());
  EXPECT_TRUE(IsAskedToStop(s_.job));
}

TEST_F(ElasticTest, AUserMayWantFewerTasksForAWhile) {
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
TEST_F(ElasticTest, ANodeThatIsHeldBackIsNoSpare) {
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

// Two nodes come back: the others stop once for both.
TEST_F(ElasticTest, RanksOfSeveralNodesMoveTogether) {
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
  Prepare("c", {2});
  EXPECT_EQ(s_.job.recovery, 2u);
  MembersJoin();
  Prepare("d", {3});
  EXPECT_EQ(s_.job.recovery, 3u);
}

TEST_F(ElasticTest, TheNodeOfTheChiefThatEndsTheJobIsNotHeldBack) {
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

TEST_F(ElasticTest, ALostNodeIsTheOneThatIsNotWanted) {
  hosts_.clear();
  Lose("b");
  MembersJoin();
  s_.job = *ResizeTo(s_.job, 3, "user/ann", s_.now);
  s_.Settle();
  EXPECT_THAT(Away(), ElementsAre(1));
  EXPECT_FALSE(WantsPlaces(s_.job));
}

TEST_F(ElasticTest, WhatCannotBeResizedSaysWhy) {
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

// The chief's success is the job's, whatever a rank does that is away.
TEST_F(ElasticTest, TheChiefEndsAJobWhoseRankFailsWhileItIsAway) {
  s_.job.spec.end_with = EndWith::kChief;
  Kill(1);
  MembersJoin();
  Start(1);
  Kill(1);
  Start(1);
  Kill(1);
  ASSERT_TRUE(Stored(1).exit) << "it waits";
  s_.Advance(10s);
  s_.Exited(0, ExitStatus());
  s_.Settle();
  EXPECT_EQ(s_.job.outcome, JobState::kSucceeded);
}

TEST_F(ElasticTest, AReturnedRankThatTrainedMustEnd) {
  Kill(1);
  MembersJoin();
  Start(1);
  Wait(1);
  MembersJoin();
  for (const int32_t rank : {0, 2, 3}) s_.Exited(rank, ExitStatus());
  s_.Settle();
  EXPECT_FALSE(s_.job.outcome);
  s_.Exited(1, ExitStatus());
  s_.Settle();
  EXPECT_EQ(s_.job.outcome, JobState::kSucceeded);
}

// A crash loop of a member: the wait of a retry is the rank's own.
TEST_F(ElasticTest, TheOthersDoNotHoldDuringTheWaitOfARetry) {
  Kill(1);
  MembersJoin();
  Start(1);
  Wait(1);
  MembersJoin();
  Kill(1);
  EXPECT_EQ(s_.job.recovery, 3u);
  EXPECT_THAT(Away(), ElementsAre(1));
  EXPECT_EQ(Stored(1).restarts, 1) << "it waits";
  MembersJoin();
  EXPECT_FALSE(IsRecovering(s_.job));
  s_.Advance(2s);
  s_.Settle();
  EXPECT_EQ(Stored(1).restarts, 2);
  EXPECT_EQ(s_.job.recovery, 3u);
}

}  // namespace
}  // namespace lockstep::server
