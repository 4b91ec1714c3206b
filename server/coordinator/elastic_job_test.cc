// A rank of an elastic job is away while the others train: what is stored, what
// the daemons are told, and what is not asked of the rank.
#include <gmock/gmock.h>

#include <csignal>

#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ElasticJobTest : public CoordinatorTest {
 protected:
  // Its ranks can train without others, and have joined what the daemon was
  // told last, except for `away`.
  void Join(FakeDaemon* daemon, int32_t away = -1) {
    FakeDaemon::Gang* const gang = daemon->Find("j");
    ASSERT_NE(gang, nullptr);
    for (RankStatus& rank : gang->status.ranks) {
      rank.recoverable = rank.elastic = true;
      rank.state = RankState::kJoined;
      if (rank.rank != away) rank.recovery = gang->assignment.recovery;
    }
    gang->dirty = true;
    Run();
  }
  // Rank 1, on b, is killed, and started again.
  void LoseRank1() {
    Connect(&a_);
    Connect(&b_);
    JobSpec spec = Wide("j");
    spec.elastic_min_tasks = 1;
    MustSubmit(spec);
    Run();
    Join(&a_);
    Join(&b_);
    ASSERT_EQ(State("j"), JobState::kRunning);
    b_.Exit("j", 1, Signal(SIGKILL));
    Run();
    Join(&a_);
    Join(&b_, 1);
  }
};

TEST_F(ElasticJobTest, TheDaemonsAreToldWhoIsAway) {
  LoseRank1();
  const Job job = Get("j");
  EXPECT_EQ(job.recovery, 1u);
  EXPECT_TRUE(job.tasks[1].ranks[0].away);
  EXPECT_EQ(job.cause.message, "1 of 2 ranks train; rank 1 is away");
  for (FakeDaemon* daemon : {&a_, &b_}) {
    const Assignment& told = daemon->Find("j")->assignment;
    EXPECT_EQ(told.recovery, 1u);
    EXPECT_THAT(told.away_ranks, ElementsAre(1));
  }
  b_.Find("j")->status.ranks[0].parked = 2;
  b_.Find("j")->dirty = true;
  Run();
  EXPECT_EQ(Get("j").recovery, 2u);
  EXPECT_THAT(a_.Find("j")->assignment.away_ranks, IsEmpty());
}

TEST_F(ElasticJobTest, ItIsStored) {
  LoseRank1();
  Restart();
  for (FakeDaemon* daemon : all_) Connect(daemon);
  Run();
  const Job job = Get("j");
  EXPECT_EQ(job.generation, 1u);
  EXPECT_EQ(job.recovery, 1u);
  EXPECT_TRUE(job.tasks[1].ranks[0].away);
  EXPECT_THAT(a_.Find("j")->assignment.away_ranks, ElementsAre(1));
}

// It imports, or waits: it would look like the cause of a hang.
TEST_F(ElasticJobTest, NoEvidenceIsTakenOfIt) {
  LoseRank1();
  const auto all = coordinator_->queries()->FindRunning("j", {}, AllowAll);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->ranks, ElementsAre(testing::Key("a")));
  const auto named = coordinator_->queries()->FindRunning("j", {1}, AllowAll);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_THAT(named->ranks, ElementsAre(testing::Key("b")));
}

// A step of the others says nothing about its host.
TEST_F(ElasticJobTest, ItsHostIsNotKeptAliveByTheSteps) {
  LoseRank1();
  all_ = {&a_};
  for (int i = 0; i < 60; ++i) {
    StepFast("j");
    Pass(std::chrono::milliseconds(500));
  }
  EXPECT_NE(StateOf("b"), NodeState::kReady);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u);
}

}  // namespace
}  // namespace lockstep::server
