// Who speaks for an elastic job, and what ends it, while ranks are away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "server/core/elastic.h"
#include "server/core/elastic_fixture.h"
#include "server/core/moving.h"
#include "server/core/recovery.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ElasticEndTest : public ElasticFixture {};

TEST_F(ElasticEndTest, TheNextRankIsTheChiefWhileRankZeroIsAway) {
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

TEST_F(ElasticEndTest, AProcessIsTheChiefUntilItKnowsOfAnother) {
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

TEST_F(ElasticEndTest, AJobMayStopOnRequestWhileRankZeroIsAway) {
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

class ElasticProgramTest : public ElasticFixture {
 protected:
  ElasticProgramTest()
      : ElasticFixture(ProgramSpec("j", {Role(TaskType::kWorker, 4)})) {}
};

// Which step the ranks of a program stop after is known from their chief.
TEST_F(ElasticProgramTest, TheChiefsNodeSaysThatTheyHaveAgreedToStop) {
  for (const char* said : {"a", "b"}) {
    Kill(0);
    MembersJoin();
    s_.job.directives = {{1, DirectiveKind::kStop}};
    s_.Gang("a").directive_done = s_.Gang("b").directive_done = 0;
    s_.Gang(said).directive_done = 1;
    s_.job.tasks[1].ranks[0].exit = ExitStatus();
    EXPECT_EQ(HasStoppedOnRequest(s_.job, s_.view), std::string(said) == "b");
    s_.job.tasks[1].ranks[0].exit.reset();
  }
}

TEST_F(ElasticEndTest, ARankZeroWhoseExitEndsTheJobIsNeverAway) {
  s_.job.spec.end_with = EndWith::kChief;
  Kill(0);
  EXPECT_THAT(Away(), IsEmpty());
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_THAT(s_.job.events.back().message, HasSubstr("hold their state"));
}

TEST_F(ElasticEndTest, TheJobSucceedsWithoutARankThatIsAway) {
  Kill(1);
  MembersJoin();
  for (const int32_t rank : {0, 2, 3}) s_.Exited(rank, ExitStatus());
  s_.Settle();
  EXPECT_EQ(s_.job.outcome, JobState::kSucceeded);
}

// The last step was done when it was about to return.
TEST_F(ElasticEndTest, NorIsARankWaitedForThatHasNotTrainedAgain) {
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
TEST_F(ElasticEndTest, AReturnThatComesAtTheLastStepFailsNothing) {
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
TEST_F(ElasticEndTest, AMemberThatLeftForAReturnDoesNotWaitForOneThatEnded) {
  Kill(1);
  MembersJoin();
  Start(1);
  Wait(1);
  s_.Rank(3).parked = 2;
  s_.Exited(2, ExitStatus());
  s_.Settle();
  EXPECT_TRUE(s_.job.failing);
}

TEST_F(ElasticEndTest, ARankThatIsAwayMayEndWithZero) {
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

// The chief's success is the job's, whatever a rank does that is away.
TEST_F(ElasticEndTest, TheChiefEndsAJobWhoseRankFailsWhileItIsAway) {
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

TEST_F(ElasticEndTest, AReturnedRankThatTrainedMustEnd) {
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

}  // namespace
}  // namespace lockstep::server
