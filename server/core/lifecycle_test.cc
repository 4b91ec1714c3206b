// The way to RUNNING: every edge of the diagram in lifecycle.h until there.
#include "server/core/lifecycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ns;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// ---- QUEUED ----

TEST(LifecycleTest, NewJobIsQueuedAndStaysSo) {
  Scene s = Queued();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kQueued);
  EXPECT_EQ(s.job.generation, 0u);
  EXPECT_THAT(s.job.events, SizeIs(1));
}

TEST(LifecycleTest, PlacedJobHoldsItsNodesAndPrepares) {
  Scene s = Queued();
  s.Put({"a", "b"});
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(s.job.generation, 1u);
  EXPECT_EQ(s.job.attempt, 1);
  ASSERT_THAT(s.job.holds, SizeIs(2));
  EXPECT_EQ(s.job.holds[0].node, "a");
  EXPECT_EQ(s.job.holds[0].resources.cpus, 1);
  EXPECT_THAT(s.job.lineage, ElementsAre(LineageEntry{1, 0}));
}

TEST(LifecycleTest, RanksAreNumberedInTaskOrder) {
  Scene s(ProgramSpec("p", {Role(TaskType::kChief, 1, {1, 0, 0, ""}, 2),
                            Role(TaskType::kWorker, 1, {1, 0, 0, ""}, 2)}));
  s.Put({"a", "a"});
  std::vector<std::pair<int32_t, int32_t>> ranks;
  for (const RankStatus* rank : RanksOf(s.job)) {
    ranks.emplace_back(rank->rank, rank->local_rank);
  }
  using P = std::pair<int32_t, int32_t>;
  EXPECT_THAT(ranks, ElementsAre(P{0, 0}, P{1, 1}, P{2, 0}, P{3, 1}));
  EXPECT_THAT(s.job.holds, SizeIs(1));
  EXPECT_EQ(s.job.holds[0].resources.cpus, 2);
}

TEST(LifecycleTest, MaxWaitTimeEndsAJobThatNeverRan) {
  for (const bool placed : {false, true}) {
    JobSpec spec = NativeSpec("j", 2);
    spec.max_wait_time = 5s;
    Scene s(spec);
    if (placed) s.Put({"a", "b"});
    s.Advance(5s);
    s.Settle();
    EXPECT_FALSE(s.job.outcome) << "exactly at the limit";
    s.Advance(1ns);
    s.Settle();
    if (placed) {
      EXPECT_EQ(s.job.state, JobState::kFinishing);
      s.AllStopped();
      s.Settle();
    }
    EXPECT_EQ(s.job.state, JobState::kCancelled);
    EXPECT_EQ(s.job.cause.reason, Reason::kMaxWaitTime);
    EXPECT_EQ(s.job.exit_code, 1);
  }
}

TEST(LifecycleTest, MaxWaitTimeIsOverWithTheFirstRunning) {
  JobSpec spec = NativeSpec("j", 2);
  spec.max_wait_time = 5s;
  Scene s(spec);
  s.Run({"a", "b"});
  s.Advance(1min);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
}

// ---- PREPARING of programs: no FORMING ----

TEST(LifecycleTest, ProgramJobRunsWhenEveryExecSucceeded) {
  Scene s(ParameterServers());
  s.Put({"a", "b"});
  s.Prepared();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_TRUE(s.job.cluster);
  EXPECT_EQ(s.job.cluster->world_size, 1) << "ps do not all-reduce";
  s.Started();
  s.Rank(1).state = RankState::kPrepared;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  s.Rank(1).state = RankState::kStarted;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
}

TEST(LifecycleTest, ProgramJobThatDoesNotStartInTimeFails) {
  Scene s(ParameterServers());
  s.Put({"a", "b"});
  s.Prepared();
  s.Settle();
  s.Advance(120s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kFormTimeout);
  EXPECT_THAT(s.job.failing->message, HasSubstr("rank 0 (chief 0 on a)"));
}

TEST(LifecycleTest, ExecFailureOfAProgramFailsTheJobAtOnce) {
  Scene s(ParameterServers());
  s.Put({"a", "b"});
  s.Prepared();
  s.Settle();
  ExitStatus exit;
  exit.how = ExitStatus::How::kExecErrno;
  exit.value = ENOENT;
  s.Exited(1, exit);
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kExecFailed);
  EXPECT_EQ(s.job.exit_code, 127);
}

TEST(LifecycleTest, ProgramOverBeforeItWasSeenToRunSucceeds) {
  Scene s(ParameterServers());
  s.Put({"a", "b"});
  s.Prepared();
  s.Settle();
  // The ps lost its chief before anybody looked.
  s.Exited(0, Code(0));
  s.Exited(1, Code(1));
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFinishing);
  EXPECT_EQ(s.job.outcome, JobState::kSucceeded);
  EXPECT_TRUE(s.job.start_time);
}

// ---- FORMING ----

TEST(LifecycleTest, AllJoinedIsRunning) {
  Scene s = Forming();
  s.Started();
  s.Joined();
  s.Rank(1).state = RankState::kStarted;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kForming);
  s.Rank(1).state = RankState::kJoined;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  EXPECT_EQ(s.job.start_time, s.now.wall);
}

TEST(LifecycleTest, RanksThatDoNotStartInTime) {
  Scene s = Forming();
  s.Advance(120s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kFormTimeout);
  EXPECT_THAT(s.job.failing->message, HasSubstr("not started after 2 m 00 s"));
}

TEST(LifecycleTest, RanksThatDoNotJoinInTimeCountFromTheLastStart) {
  Scene s = Forming();
  s.Advance(100s);
  s.Started();
  s.Settle();
  s.Advance(30s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_THAT(s.job.failing->message, HasSubstr("not joined after 30.0 s"));
  EXPECT_THAT(s.job.failing->message, HasSubstr("rank 1 (worker 0 on b)"));
}

// What we stopped ourselves does not explain why.
TEST(LifecycleTest, TimeoutStaysTheCauseWhenItsRanksAreStopped) {
  Scene s = Forming();
  s.Started();
  s.Advance(31s);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.attempts.size(), 1u);
  EXPECT_EQ(s.job.attempts[0].end_cause.reason, Reason::kFormTimeout);
}

// A program that knows nothing of gangs, submitted as a native job.
TEST(LifecycleTest, RankThatEndsWellBeforeTheGangIsFormedFailsTheJob) {
  Scene s = Forming();
  s.Started();
  s.Exited(1, Code(0));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kRankExit);
  EXPECT_THAT(s.job.cause.message, HasSubstr("before the gang had formed"));
}

// Which of the victims was first is found out late; it is no reason to fail.
TEST(LifecycleTest, VictimsOnlyAreTriedAgain) {
  Scene s = Running();
  s.Advance(1s);
  s.Exited(1, Victim(Code(75)));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  ExitStatus earlier = Victim(Code(75));
  earlier.end_time = s.now.wall - 500ms;
  s.Exited(0, earlier);
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(s.job.generation, 2u);
}

TEST(LifecycleTest, FailedFormingIsTriedAgainAfterABackoff) {
  Scene s = Forming();
  s.Started();
  s.Exited(1, Code(1));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.not_before, s.now.wall + 1s);
  EXPECT_EQ(s.job.failed_formings, 1);
  EXPECT_THAT(s.job.attempts, SizeIs(1));
  EXPECT_THAT(s.job.holds, IsEmpty());
  s.Run({"a", "c"});
  EXPECT_EQ(s.job.generation, 2u);
  EXPECT_EQ(s.job.failed_formings, 0);
}

TEST(LifecycleTest, DaemonThatCameBackWithoutItsRanksIsALostNode) {
  for (Scene s : {Forming(), Running()}) {
    s.view.nodes["b"].gangs.clear();
    s.view.nodes["b"].state = NodeState::kUnknown;
    s.Settle();
    EXPECT_FALSE(s.job.failing) << "nothing is known of an absent node";
    s.view.nodes["b"].state = NodeState::kReady;
    s.Settle();
    ASSERT_TRUE(s.job.failing);
    EXPECT_EQ(s.job.failing->reason, Reason::kNodeLost);
  }
}

TEST(LifecycleTest, NothingIsLostBeforeTheNodeHasReported) {
  Scene s = Running();
  s.view.nodes["b"].gangs.clear();
  s.view.nodes["b"].reported = false;
  s.Settle();
  EXPECT_FALSE(s.job.failing);
}

// Without TF_CONFIG each of them would train alone, and nobody would notice.
TEST(LifecycleTest, AProgramWhosePeersDoNotFitTfConfigFails) {
  constexpr int kTasks = 3000;
  for (const std::string address :
       {"10.0.0.1", "[2001:db8:1234:5678:9abc:def0:1234:5678]"}) {
    Scene s(ProgramSpec("p", {Role(TaskType::kWorker, kTasks)}));
    s.Put(std::vector<NodeName>(kTasks, "a"));
    s.view.nodes["a"].address = address;
    s.Prepared();
    s.Settle();
    if (address.front() != '[') {
      EXPECT_TRUE(s.job.cluster);
      EXPECT_FALSE(s.job.failing);
      continue;
    }
    EXPECT_FALSE(s.job.cluster);
    s.AllStopped();
    s.Settle();
    EXPECT_EQ(s.job.state, JobState::kFailed);
    EXPECT_EQ(s.job.cause.reason, Reason::kPrepareRefused);
    EXPECT_EQ(
        s.job.cause.message,
        "TF_CONFIG cannot hold the addresses of 3000 tasks, because Linux "
        "allows 128 KiB in one variable: request fewer tasks, or for "
        "nodes with shorter (IPv4) addresses");
  }
}

}  // namespace
}  // namespace lockstep::server
