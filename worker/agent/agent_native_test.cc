// The worker daemon and the ranks of native gangs: how they meet, what they
// say, how one of them is replaced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "worker/agent/agent.h"
#include "worker/agent/agent_fixture.h"
#include "worker/agent/fake_coordinator.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;

TEST_F(AgentTest, NativeRanksMeetJoinGoAndReport) {
  Launch({FakeRank(), "ok"}, JobKind::kNative, 2);
  ASSERT_TRUE(AllAre(RankState::kJoined));
  Assignment go = Order(Goal::kGo, {FakeRank(), "ok"}, JobKind::kNative, 2);
  coordinator_.Send(go);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const GangStatus said = Reported();
  for (const RankStatus& rank : said.ranks) {
    ASSERT_TRUE(rank.exit.has_value());
    EXPECT_TRUE(rank.exit->ok()) << Describe(*rank.exit);
    // From its page, read after its end.
    EXPECT_EQ(rank.progress.committed_step, 7);
    EXPECT_EQ(rank.progress.samples, 640);
  }
  EXPECT_EQ(Reported().checkpoint->path, "/out/checkpoint-7");
  EXPECT_EQ(Reported().checkpoint->generation, 1u);
  EXPECT_EQ(Reported().artifacts.at("model"), "/out/model");
  EXPECT_EQ(Reported().resumed_step, 3);
  // And what is wrong with the plan that rank 1 told.
  EXPECT_THAT(Reported().events, SizeIs(3));
  EXPECT_THAT(Reported().reduction_plan,
              HasSubstr("\nlayout 0123456789abcdef\n"));
  EXPECT_THAT(LogOf(1), HasSubstr("got \"value of 0\""));
  EXPECT_THAT(LogOf(0), HasSubstr("got \"value of 1\""));
}

TEST_F(AgentTest, TheJobsReductionPlanGoesToItsRanks) {
  const auto order = [&](Goal goal) {
    Assignment a = Order(goal, {FakeRank(), "ok"}, JobKind::kNative, 2);
    a.spec->reduction_plan = "as before";
    a.spec->reduction_plan_pinned = true;
    return a;
  };
  coordinator_.Send(order(Goal::kPrepare));
  ASSERT_TRUE(Reaches(GangPhase::kPrepared));
  coordinator_.Send(order(Goal::kLaunch));
  ASSERT_TRUE(AllAre(RankState::kJoined));
  coordinator_.Send(Order(Goal::kGo, {FakeRank(), "ok"}, JobKind::kNative, 2));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_THAT(LogOf(0), HasSubstr("plan \"as before\" pinned 1 hosts 1"));
}

TEST_F(AgentTest, LastWordsOfARankAreInItsExit) {
  Launch({FakeRank(), "fail"}, JobKind::kNative);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const ExitStatus exit = *Reported().ranks[0].exit;
  EXPECT_EQ(exit.message, "replicas differ");
  EXPECT_EQ(exit.reason, Reason::kDiverged);
}

TEST_F(AgentTest, PeersThatItsRanksLostAreReportedAlsoByTheNextDaemon) {
  Launch({FakeRank(), "fail"}, JobKind::kNative, 2);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const LostPeer first{0, 1, "replicas differ"};
  const LostPeer second{1, 0, "replicas differ"};
  EXPECT_THAT(Reported().lost_peers, UnorderedElementsAre(first, second));
  config_.daemon.node.incarnation.counter = 2;
  StartDaemon();
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.registration.node.incarnation.counter == 2; }));
  ASSERT_THAT(Registered().gangs, SizeIs(1));
  EXPECT_THAT(Registered().gangs[0].lost_peers,
              UnorderedElementsAre(first, second));
}

TEST_F(AgentTest, StopAbortsNativeRanksOverTheirLink) {
  Launch({FakeRank(), "wait"}, JobKind::kNative, 2);
  ASSERT_TRUE(AllAre(RankState::kJoined));
  coordinator_.Send(
      Order(Goal::kGo, {FakeRank(), "wait"}, JobKind::kNative, 2));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return Peek().events.size() == 2; }));
  Assignment stop = Order(Goal::kStop, {});
  stop.grace = 20s;  // They go by themselves.
  coordinator_.Send(stop);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const GangStatus said = Reported();
  for (const RankStatus& rank : said.ranks) {
    EXPECT_EQ(rank.exit->value, kPeerLostCode);
    EXPECT_TRUE(rank.exit->victim);
  }
  EXPECT_THAT(LogOf(0), HasSubstr("aborted: the test says so"));
}

// The other rank of its task runs on.
TEST_F(AgentTest, ANativeRankIsReplacedAlone) {
  const auto order = [&](int32_t restarts, uint32_t recovery) {
    Assignment a = Order(Goal::kGo, {FakeRank(), "wait"}, JobKind::kNative, 2);
    a.recovery = recovery;
    a.spec->tasks[0].ranks[1].restarts = restarts;
    a.spec->tasks[0].restarts = restarts;
    return a;
  };
  Launch({FakeRank(), "wait"}, JobKind::kNative, 2);
  ASSERT_TRUE(AllAre(RankState::kJoined));
  coordinator_.Send(order(0, 0));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return Peek().events.size() == 2; }));
  const std::vector<RankStatus> before = Reported().ranks;
  const std::vector<int32_t> ports = Reported().ports;
  const auto is_back = [&](int32_t restarts) {
    return coordinator_.Eventually([&] {
      const RankStatus& rank = Peek().ranks[1];
      return rank.restarts == restarts && rank.state == RankState::kStarted;
    });
  };
  // One that is gone, and one that stands still.
  ASSERT_EQ(kill(static_cast<pid_t>(before[1].pid), SIGKILL), 0);
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return Peek().ranks[1].exit.has_value(); }));
  coordinator_.Send(order(1, 1));
  ASSERT_TRUE(is_back(1));
  const int64_t second = Reported().ranks[1].pid;
  EXPECT_NE(second, before[1].pid);
  ASSERT_EQ(kill(static_cast<pid_t>(second), SIGSTOP), 0);
  coordinator_.Send(order(2, 2));
  ASSERT_TRUE(is_back(2));
  EXPECT_NE(Reported().ranks[1].pid, second);
  EXPECT_EQ(Reported().ranks[0].pid, before[0].pid);
  EXPECT_EQ(Reported().ranks[0].state, RankState::kJoined);
  EXPECT_EQ(Reported().ports, ports);
  // One log has all starts.
  const RankRef ref{{"job", 1}, 1};
  ASSERT_TRUE(coordinator_.Eventually([&] {
    const std::string& log = coordinator_.logs[ref].bytes;
    return log.find(" F go") != std::string::npos &&
           log.find(" F recovery 2") != std::string::npos;
  }));
  Assignment stop = Order(Goal::kStop, {});
  stop.grace = 20s;
  coordinator_.Send(stop);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

// The other one has not joined the recovery, which it has a second for.
TEST_F(AgentTest, ARankThatIsAwayStartsAfterTheMembers) {
  Launch({FakeRank(), "wait"}, JobKind::kNative, 2);
  ASSERT_TRUE(AllAre(RankState::kJoined));
  Assignment order =
      Order(Goal::kGo, {FakeRank(), "wait"}, JobKind::kNative, 2);
  coordinator_.Send(order);
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return Peek().events.size() == 2; }));
  const std::vector<RankStatus> before = Reported().ranks;
  ASSERT_EQ(kill(static_cast<pid_t>(before[1].pid), SIGKILL), 0);
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return Peek().ranks[1].exit.has_value(); }));
  order.recovery = 1;
  order.away_ranks = {1};
  order.spec->tasks[0].ranks[1].restarts = 1;
  order.spec->tasks[0].restarts = 1;
  const MonoTime sent = MonotonicNow();
  coordinator_.Send(order);
  ASSERT_TRUE(coordinator_.Eventually([&] {
    const RankStatus& rank = Peek().ranks[1];
    return rank.restarts == 1 && rank.state == RankState::kStarted;
  }));
  EXPECT_GE(MonotonicNow() - sent, 900ms);
  Assignment stop = Order(Goal::kStop, {});
  stop.grace = 20s;
  coordinator_.Send(stop);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

// It ran on another node before: here it is the first process of its rank.
TEST_F(AgentTest, ANativeRankMovesHere) {
  const auto order = [&](Goal goal) {
    Assignment a = Order(goal, {FakeRank(), "wait"}, JobKind::kNative, 1);
    a.recovery = goal == Goal::kGo ? 3 : 0;
    a.spec->tasks[0].ranks[0].restarts = 1;
    a.spec->tasks[0].restarts = 1;
    return a;
  };
  coordinator_.Send(order(Goal::kPrepare));
  ASSERT_TRUE(Reaches(GangPhase::kPrepared, 1));
  coordinator_.Send(order(Goal::kGo));
  ASSERT_TRUE(coordinator_.Eventually([&] {
    const std::string& log = coordinator_.logs[{{"job", 1}, 0}].bytes;
    return log.find(" F recovery 3") != std::string::npos;
  }));
  EXPECT_EQ(Reported().ranks[0].restarts, 1);
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

}  // namespace
}  // namespace lockstep::worker::agent
