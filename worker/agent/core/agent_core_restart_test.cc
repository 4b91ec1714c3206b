// One task's ranks are started again, the others go on.
#include <gmock/gmock.h>

#include "worker/agent/core/agent_core_fixture.h"

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A worker's task of two ranks beside the chief's, of a program.
Assignment ParameterServerOrder(Goal goal, int32_t restarts) {
  Assignment a;
  a.job = "job";
  a.job_uid = "uid";
  a.generation = 1;
  a.epoch = 1;
  a.goal = goal;
  LocalTask chief;
  chief.argv = {"train"};
  chief.ranks = {{0, 0, {}, 0}};
  LocalTask worker = chief;
  worker.type = TaskType::kWorker;
  worker.ranks = {{1, 0, {}, 0}, {2, 1, {}, 0}};
  worker.restarts = restarts;
  a.spec.emplace();
  a.spec->kind = JobKind::kProgram;
  a.spec->tasks = {chief, worker};
  a.cluster.emplace();
  a.cluster->tasks = {
      {TaskType::kChief, 0, "a", "10.0.0.1:2222", chief.ranks},
      {TaskType::kWorker, 0, "a", "10.0.0.1:2224", worker.ranks}};
  return a;
}

class RestartTest : public AgentCoreTest {
 protected:
  void SetUp() override {
    Do(ParameterServerOrder(Goal::kPrepare, 0));
    Actions actions;
    core_.OnPrepared({"job", 1}, {{2222, 2224}, 2223}, now_, &actions);
    Do(ParameterServerOrder(Goal::kGo, 0));
    for (const int32_t rank : {0, 1, 2}) {
      core_.OnRankStarted({"job", 1}, rank, 100 + rank, &actions);
    }
  }
};

TEST_F(RestartTest, OneTasksRanksStartAgainOnceForEachHigherNumber) {
  Exit(1, 3);
  Exit(2, 3);
  const Actions actions = Do(ParameterServerOrder(Goal::kGo, 1));
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kStartRank, Kind::kStartRank, Kind::kReport));
  EXPECT_EQ(actions[0].rank, 1);
  EXPECT_EQ(actions[1].rank, 2);
  const GangStatus status = Status();
  EXPECT_EQ(status.phase, GangPhase::kLaunched);
  EXPECT_EQ(status.ranks[0].restarts, 0);
  EXPECT_EQ(status.ranks[0].pid, 100);
  EXPECT_EQ(status.ranks[1].restarts, 1);
  EXPECT_EQ(status.ranks[1].state, RankState::kPrepared);
  EXPECT_FALSE(status.ranks[1].exit.has_value());
  // The same order again says nothing new, before and after they run.
  EXPECT_THAT(Do(ParameterServerOrder(Goal::kGo, 1)), IsEmpty());
  Actions started;
  core_.OnRankStarted({"job", 1}, 1, 201, &started);
  EXPECT_EQ(Status().ranks[1].pid, 201);
  EXPECT_THAT(Do(ParameterServerOrder(Goal::kGo, 1)), IsEmpty());
  // Nor one of before.
  Exit(1, 3);
  Exit(2, 3);
  EXPECT_THAT(Do(ParameterServerOrder(Goal::kGo, 0)), IsEmpty());
  EXPECT_THAT(Kinds(Do(ParameterServerOrder(Goal::kGo, 2))),
              ElementsAre(Kind::kStartRank, Kind::kStartRank, Kind::kReport));
}

TEST_F(RestartTest, WhatStillRunsOfTheTaskIsEndedFirst) {
  Exit(1, 3);
  const Actions actions = Do(ParameterServerOrder(Goal::kGo, 1));
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kKillTree));
  EXPECT_EQ(actions[0].rank, 2);
  EXPECT_THAT(Kinds(Exit(2, 1)), ElementsAre(Kind::kReport, Kind::kStartRank,
                                             Kind::kStartRank, Kind::kReport));
}

TEST_F(RestartTest, AGangThatHadEndedComesBack) {
  Exit(0);
  Exit(1, 3);
  EXPECT_THAT(Kinds(Exit(2, 3)),
              ElementsAre(Kind::kReport, Kind::kRelease, Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kStopped);
  EXPECT_THAT(Kinds(Do(ParameterServerOrder(Goal::kGo, 1))),
              ElementsAre(Kind::kStartRank, Kind::kStartRank, Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kLaunched);
  EXPECT_EQ(Status().ranks[0].state, RankState::kExited);
}

TEST_F(RestartTest, NothingStartsAgainAfterAStop) {
  Exit(1, 3);
  Exit(2, 3);
  Do(Goal::kStop);
  EXPECT_THAT(Do(ParameterServerOrder(Goal::kGo, 1)), IsEmpty());
  Exit(0);
  EXPECT_EQ(Phase(), GangPhase::kStopped);
  EXPECT_THAT(Do(ParameterServerOrder(Goal::kGo, 1)), IsEmpty());
}

TEST_F(RestartTest, AnAdoptedGangKnowsItsNumber) {
  Exit(1, 3);
  Exit(2, 3);
  Do(ParameterServerOrder(Goal::kGo, 1));
  const GangStatus stored = Status();
  AgentCore next(Options());
  next.Adopt(ParameterServerOrder(Goal::kGo, 1), stored);
  Actions actions;
  EXPECT_TRUE(
      next.OnAssignment(ParameterServerOrder(Goal::kGo, 1), now_, &actions)
          .ok());
  EXPECT_THAT(actions, IsEmpty());
}

}  // namespace
}  // namespace lockstep::worker::agent
