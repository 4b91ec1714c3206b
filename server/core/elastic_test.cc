// Ranks that are away while the others train.
#include "server/core/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "server/core/elastic_fixture.h"
#include "server/core/recovery.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ElasticTest : public ElasticFixture {};

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
               "a native one says so with SessionOptions::elastic, "
               "lockstep-train with --elastic"));
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
  std::vector<std::string> events;
  for (const Event& event : s_.job.events) events.push_back(event.message);
  EXPECT_THAT(events, Contains(HasSubstr("submit it with --elastic MIN")));
}

TEST_F(ElasticTest, WhereRankZeroEndsTheJobElasticWouldNotHelp) {
  s_.job.spec.elastic_min_tasks = 0;
  s_.job.spec.end_with = EndWith::kChief;
  Kill(0);
  EXPECT_EQ(s_.job.recovery, 1u);
  for (const Event& event : s_.job.events) {
    EXPECT_THAT(event.message, Not(HasSubstr("--elastic")));
  }
}

TEST_F(ElasticTest, WhereAProgramCannotTrainOnTheJobIsNotToAskForIt) {
  s_.job.spec.elastic_min_tasks = 0;
  s_.Rank(2).elastic = false;
  s_.job.tasks[2].ranks[0].elastic = false;
  Kill(1);
  EXPECT_EQ(s_.job.recovery, 1u);
  for (const Event& event : s_.job.events) {
    EXPECT_THAT(event.message, Not(HasSubstr("--elastic")));
  }
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

// In a job that is not elastic the second time is the last.
TEST_F(ElasticTest, ARankThatRaisesTheSameTwiceDoesNotEndTheJob) {
  const ExitStatus raised = Raised("KeyError: 'a'", "train.py:12");
  for (int i = 0; i < 2; ++i) {
    s_.Exited(1, raised);
    s_.Settle();
    ASSERT_FALSE(s_.job.failing) << i;
    EXPECT_EQ(Away(), std::vector<int32_t>{1});
    MembersJoin();
    s_.Advance(1min);
    s_.Settle();
    Start(1);
    Wait(1);
    MembersJoin();
    ASSERT_TRUE(Away().empty());
    s_.Advance(1min);
  }
}

TEST_F(ElasticTest, ALateStartOfARankThatIsAwayFailsNothing) {
  Kill(1);
  MembersJoin();
  s_.Advance(10min);
  s_.Settle();
  EXPECT_EQ(Stored(1).state, RankState::kPrepared);
  EXPECT_FALSE(s_.job.failing);
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
