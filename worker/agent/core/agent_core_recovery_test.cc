// Native ranks that are replaced while the others stay.
#include <gmock/gmock.h>

#include "worker/agent/core/agent_core_fixture.h"

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class RecoveryTest : public AgentCoreTest {
 protected:
  void SetUp() override {
    Prepare();
    Do(Order(Goal::kLaunch));
    Actions actions;
    for (const int32_t rank : {0, 1}) {
      core_.OnRankStarted(key_, rank, 100 + rank, &actions);
      core_.OnRankJoined(key_, rank, {0, true}, &actions);
    }
    Do(Order(Goal::kGo));
  }

  // `first` and `second`: restarts of the ranks.
  static Assignment Order(Goal goal, uint32_t recovery = 0, int32_t first = 0,
                          int32_t second = 0) {
    Assignment a = AgentCoreTest::Order(goal);
    a.spec->kind = JobKind::kNative;
    a.recovery = recovery;
    LocalTask& task = a.spec->tasks[0];
    task.ranks[0].restarts = first;
    task.ranks[1].restarts = second;
    task.restarts = std::max(first, second);
    return a;
  }

  // Two checkpoints are ordered, and rank 0 has done the first one.
  static std::vector<Directive> TwoOrders() {
    return {{1, DirectiveKind::kCheckpoint}, {2, DirectiveKind::kCheckpoint}};
  }
  void DoFirstOrder() {
    Actions actions;
    RankNews done;
    done.directive_done = 1;
    core_.OnRankNews(key_, 0, done, now_, &actions);
  }

  // Those that are not Go, which is repeated with each assignment.
  static Actions News(const Actions& actions) {
    Actions news = actions;
    std::erase_if(news, [](const Action& a) { return a.kind == Kind::kGo; });
    return news;
  }
};

TEST_F(RecoveryTest, ALostRankStartsAgainAndTheOthersAreTold) {
  Exit(1, 3);
  const Actions actions = News(Do(Order(Goal::kGo, 1, 0, 1)));
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kStartRank, Kind::kReport,
                                          Kind::kRecover, Kind::kRecover));
  EXPECT_EQ(actions[0].rank, 1);
  EXPECT_EQ(actions[2].rank, 0);
  // Its process may run before it is seen to.
  EXPECT_EQ(actions[3].rank, 1);
  const RankStatus fresh = Status().ranks[1];
  EXPECT_EQ(fresh.restarts, 1);
  EXPECT_EQ(fresh.state, RankState::kPrepared);
  EXPECT_FALSE(fresh.exit);
  EXPECT_FALSE(fresh.recoverable);
  EXPECT_EQ(Status().ranks[0].pid, 100);
  EXPECT_THAT(News(Do(Order(Goal::kGo, 1, 0, 1))), IsEmpty());
}

TEST_F(RecoveryTest, ARankThatRunsIsKilledOnceAndAtOnce) {
  const Actions actions = News(Do(Order(Goal::kGo, 1, 0, 1)));
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kKillTree, Kind::kRecover));
  EXPECT_EQ(actions[0].rank, 1);
  EXPECT_EQ(actions[0].grace, Duration{});
  EXPECT_EQ(actions[1].rank, 0);
  EXPECT_THAT(News(Do(Order(Goal::kGo, 1, 0, 1))), IsEmpty());
  EXPECT_THAT(Kinds(Exit(1, 137)),
              ElementsAre(Kind::kReport, Kind::kStartRank, Kind::kReport))
      << "no evidence: it was kept before";
  EXPECT_EQ(Status().ranks[1].restarts, 1);
}

TEST_F(RecoveryTest, ARecoveryWithoutLossTellsAllRanks) {
  Actions actions;
  RankNews lost;
  lost.lost_peers = {1};
  core_.OnRankNews(key_, 0, lost, now_, &actions);
  ASSERT_EQ(Status().lost_peers.size(), 1u);
  EXPECT_THAT(Kinds(News(Do(Order(Goal::kGo, 1)))),
              ElementsAre(Kind::kRecover, Kind::kRecover));
  EXPECT_THAT(Status().lost_peers, IsEmpty());
  EXPECT_THAT(News(Do(Order(Goal::kGo, 1))), IsEmpty());
  EXPECT_THAT(News(Do(Order(Goal::kGo, 0))), IsEmpty());
  EXPECT_THAT(Kinds(News(Do(Order(Goal::kGo, 3)))),
              ElementsAre(Kind::kRecover, Kind::kRecover));
}

TEST_F(RecoveryTest, ANodeWhoseRanksAreAllLostComesBack) {
  Exit(0, 3);
  Exit(1, 3);
  ASSERT_EQ(Phase(), GangPhase::kStopped);
  EXPECT_THAT(Kinds(News(Do(Order(Goal::kGo, 1, 1, 1)))),
              ElementsAre(Kind::kStartRank, Kind::kStartRank, Kind::kReport,
                          Kind::kRecover, Kind::kRecover));
  EXPECT_EQ(Phase(), GangPhase::kLaunched);
}

TEST_F(RecoveryTest, NothingIsReplacedAfterAStop) {
  Exit(1, 3);
  Do(Goal::kStop);
  EXPECT_THAT(Do(Order(Goal::kGo, 1, 0, 1)), IsEmpty());
}

// An older coordinator sends a task's number alone.
TEST_F(RecoveryTest, TheTasksNumberIsNotANativeRanks) {
  Exit(1, 3);
  Assignment order = Order(Goal::kGo);
  order.spec->tasks[0].restarts = 1;
  EXPECT_THAT(News(Do(order)), IsEmpty());
}

TEST_F(RecoveryTest, WhatARankSaysOfItsRecoveryIsReported) {
  Actions actions;
  RankNews parked;
  parked.parked = 2;
  core_.OnRankNews(key_, 0, parked, now_, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kReport));
  EXPECT_TRUE(Status().ranks[0].recoverable);
  EXPECT_EQ(Status().ranks[0].parked, 2u);
  actions.clear();
  core_.OnRankJoined(key_, 0, {2, true}, &actions);
  EXPECT_THAT(Kinds(News(actions)), ElementsAre(Kind::kReport));
  EXPECT_EQ(Status().ranks[0].recovery, 2u);
  // Repeats, and what was said earlier.
  actions.clear();
  core_.OnRankJoined(key_, 0, {2, true}, &actions);
  core_.OnRankJoined(key_, 0, {1, false}, &actions);
  parked.parked = 1;
  core_.OnRankNews(key_, 0, parked, now_, &actions);
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_EQ(Status().ranks[0].recovery, 2u);
  EXPECT_EQ(Status().ranks[0].parked, 2u);
  // A new process has said nothing.
  Exit(0, 3);
  Do(Order(Goal::kGo, 3, 1, 0));
  EXPECT_EQ(Status().ranks[0].recovery, 0u);
  EXPECT_EQ(Status().ranks[0].parked, 0u);
}

TEST_F(RecoveryTest, ANewRankZeroGetsTheOrdersThatAreNotDone) {
  Assignment order = Order(Goal::kGo);
  order.directives = TwoOrders();
  EXPECT_THAT(Kinds(News(Do(order))),
              ElementsAre(Kind::kDirective, Kind::kDirective));
  DoFirstOrder();
  Exit(0, 3);
  order = Order(Goal::kGo, 1, 1, 0);
  order.directives = TwoOrders();
  Do(order);
  Actions actions;
  core_.OnRankStarted(key_, 0, 200, &actions);
  actions.clear();
  core_.OnRankJoined(key_, 0, {1, true}, &actions);
  actions = News(actions);
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kReport, Kind::kDirective));
  EXPECT_EQ(actions[1].directive.id, 2u);
}

TEST_F(RecoveryTest, TheChiefGetsTheOrdersThatAreNotDone) {
  const auto chiefs = [](const Actions& actions) {
    std::vector<std::pair<int32_t, uint32_t>> told;
    for (const Action& action : actions) {
      if (action.kind != Kind::kDirective) continue;
      told.emplace_back(action.rank, action.directive.id);
    }
    return told;
  };
  using testing::Pair;
  Assignment order = Order(Goal::kGo);
  order.directives = TwoOrders();
  EXPECT_THAT(chiefs(Do(order)), ElementsAre(Pair(0, 1), Pair(0, 2)));
  DoFirstOrder();
  Exit(0, 3);
  order = Order(Goal::kGo, 1, 1, 0);
  order.directives = TwoOrders();
  order.away_ranks = {0};
  EXPECT_THAT(chiefs(Do(order)), ElementsAre(Pair(1, 2)));
  Actions actions;
  core_.OnRankStarted(key_, 0, 200, &actions);
  core_.OnRankJoined(key_, 0, {1, true}, &actions);
  EXPECT_THAT(chiefs(actions), IsEmpty()) << "rank 0 is away";
  order.recovery = 2;
  order.away_ranks = {};
  EXPECT_THAT(chiefs(Do(order)), ElementsAre(Pair(0, 2)));
}

TEST_F(RecoveryTest, AMemberThatRecoversComesBeforeARankThatIsAway) {
  const LocalGang& gang = *core_.Find(key_);
  Exit(1, 3);
  Do(Order(Goal::kGo, 1, 0, 1));
  EXPECT_FALSE(OthersRecover(gang, 1)) << "rank 0 waits for it";
  Assignment order = Order(Goal::kGo, 2, 0, 1);
  order.away_ranks = {1};
  Do(order);
  EXPECT_TRUE(OthersRecover(gang, 1));
  EXPECT_FALSE(OthersRecover(gang, 0)) << "it is a member";
  Actions actions;
  core_.OnRankJoined(key_, 0, {2, true, true}, &actions);
  EXPECT_FALSE(OthersRecover(gang, 1));
  order.recovery = 3;
  Do(order);
  EXPECT_TRUE(OthersRecover(gang, 1));
  Exit(0, 3);
  EXPECT_FALSE(OthersRecover(gang, 1)) << "none is left";
}

TEST_F(RecoveryTest, TheNextDaemonTellsTheRanksAgain) {
  Exit(1, 3);
  Do(Order(Goal::kGo, 1, 0, 1));
  AgentCore next(Options());
  next.Adopt(Order(Goal::kGo, 1, 0, 1), Status());
  Actions actions;
  EXPECT_TRUE(
      next.OnAssignment(Order(Goal::kGo, 1, 0, 1), now_, &actions).ok());
  EXPECT_THAT(Kinds(News(actions)),
              ElementsAre(Kind::kRecover, Kind::kRecover));
}

TEST_F(RecoveryTest, RanksOfAProgramAreReplacedOneByOneInARecovery) {
  const auto of_program = [](Assignment order) {
    order.spec->kind = JobKind::kProgram;
    return order;
  };
  Exit(1, 3);
  const Actions actions =
      Do(of_program(Order(Goal::kGo, 1, /*first=*/0, /*second=*/1)));
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kStartRank, Kind::kReport,
                                          Kind::kRecover, Kind::kRecover));
  EXPECT_EQ(actions[0].rank, 1);
  Actions joined;
  core_.OnRankStarted(key_, 1, 200, &joined);
  core_.OnRankJoined(key_, 1, {1, true}, &joined);
  EXPECT_EQ(Status().ranks[1].state, RankState::kStarted);
  EXPECT_EQ(Status().ranks[1].recovery, 1u);
}

}  // namespace
}  // namespace lockstep::worker::agent
