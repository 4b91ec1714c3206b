// Every edge of the diagram in lifecycle.h.
#include "server/core/lifecycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server/core/testing.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ns;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Scene Queued() { return Scene(NativeSpec("j", 2)); }
Scene Preparing() {
  Scene s = Queued();
  s.Put({"a", "b"});
  s.Settle();
  return s;
}
Scene Forming() {
  Scene s = Preparing();
  s.Prepared();
  s.Settle();
  return s;
}
Scene Running() {
  Scene s = Queued();
  s.Run({"a", "b"});
  return s;
}
JobSpec ParameterServers() {
  return ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kPs, 1)});
}

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

// ---- PREPARING ----

TEST(LifecycleTest, NativeJobFormsWhenEveryNodeHasPrepared) {
  Scene s = Preparing();
  s.Prepared();
  s.Gang("b").phase = GangPhase::kPreparing;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_FALSE(s.job.cluster);
  s.Gang("b").phase = GangPhase::kPrepared;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kForming);
  ASSERT_TRUE(s.job.cluster);
  EXPECT_EQ(s.job.cluster->world_size, 2);
  EXPECT_EQ(s.job.cluster->generation, 1u);
  EXPECT_EQ(s.job.cluster->tasks[0].address, "10.0.0.1:7000");
  EXPECT_EQ(s.job.cluster->tasks[1].address, "10.0.0.2:7000");
  EXPECT_EQ(s.job.cluster->master_address, "10.0.0.1");
  EXPECT_EQ(s.job.cluster->master_port, 7999);
  EXPECT_EQ(s.job.job_key, std::string(32, 'k'));
}

TEST(LifecycleTest, ClusterSpecGivesEachRankItsGpus) {
  JobSpec spec = NativeSpec("j", 1);
  spec.roles[0].ranks_per_task = 2;
  spec.roles[0].resources.gpus = 4;
  Scene s(spec);
  s.Put({"a"});
  s.job.tasks[0].gpus = {3, 5, 6, 7};
  s.Prepared();
  s.Settle();
  ASSERT_TRUE(s.job.cluster);
  EXPECT_THAT(s.job.cluster->tasks[0].ranks[0].gpus, ElementsAre(3, 5));
  EXPECT_THAT(s.job.cluster->tasks[0].ranks[1].gpus, ElementsAre(6, 7));
}

TEST(LifecycleTest, ANodeThatLeasedTooFewPortsHasNotPrepared) {
  Scene s(NativeSpec("j", 2));
  s.Put({"a", "a"});
  s.Prepared();
  s.Gang("a").ports.pop_back();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_FALSE(s.job.cluster);
}

TEST(LifecycleTest, PreparingTimesOutJustAfterItsLimit) {
  Scene s = Preparing();
  s.Prepared();
  s.Gang("b").phase = GangPhase::kPreparing;
  s.Advance(10s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kPrepareTimeout);
  EXPECT_THAT(s.job.failing->message, HasSubstr(": b"));
  EXPECT_THAT(s.job.failing->message, Not(HasSubstr("a,")));
  EXPECT_EQ(s.job.state, JobState::kPreparing);
}

TEST(LifecycleTest, RefusalFailsTheJobAtOnceWithTheNodesSentence) {
  Scene s = Preparing();
  s.Refused("b", {Reason::kPrepareRefused, "no program train"});
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kPrepareRefused);
  EXPECT_EQ(s.job.cause.message, "node b: no program train");
}

TEST(LifecycleTest, ANodeThatForgotItsPartIsNotTheJobsFault) {
  Scene s = Preparing();
  s.Refused("b", {Reason::kNodeLost, "never prepared"});
  s.Settle();
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.failures_without_progress, 1);
}

TEST(LifecycleTest, LostNodeWhilePreparing) {
  Scene s = Preparing();
  s.view.nodes["b"].state = NodeState::kLost;
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kNodeLost);
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
}

// A restarted daemon has no reservation and is simply told again.
TEST(LifecycleTest, NodeThatCameBackBeforeLaunchIsNoFailure) {
  Scene s = Preparing();
  s.view.nodes["b"].gangs.clear();
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  EXPECT_EQ(s.job.state, JobState::kPreparing);
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
  s.Advance(130s);
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
  s.job.spec.restart_budget = 0;
  s.Started();
  s.Advance(31s);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kFormTimeout);
  EXPECT_EQ(s.job.exit_code, 1);
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
  EXPECT_THAT(s.job.cause.message, HasSubstr("before the gang was formed"));
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
  EXPECT_EQ(s.job.not_before, s.now.wall + 200ms);
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

// ---- RUNNING ----

TEST(LifecycleTest, DecidingRanksSuccessFinishesTheJob) {
  Scene s = Running();
  s.Exited(0, Code(0));
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFinishing);
  EXPECT_EQ(s.job.outcome, JobState::kSucceeded);
  EXPECT_THAT(s.job.holds, SizeIs(2));
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFinishing);
  EXPECT_THAT(s.job.holds, SizeIs(1));
  s.Stopped("b");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
  EXPECT_EQ(s.job.exit_code, 0);
  EXPECT_EQ(s.job.end_time, s.now.wall);
  EXPECT_THAT(s.job.attempts, SizeIs(1));
}

TEST(LifecycleTest, WorkersSuccessAloneDecidesNothing) {
  Scene s = Running();
  s.Exited(1, Code(0));
  s.Gang("b").phase = GangPhase::kStopped;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  EXPECT_THAT(s.job.holds, SizeIs(2));
}

TEST(LifecycleTest, ChiefsSuccessCountsWhileParameterServersRun) {
  Scene s(ParameterServers());
  s.Run({"a", "b"});
  s.Exited(0, Code(0));
  s.Settle();
  EXPECT_EQ(s.job.outcome, JobState::kSucceeded);
  s.Exited(1, Code(7));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded) << "after the end: no matter";
}

TEST(LifecycleTest, FirstFailureOfAJobThatRanRestartsItInPlace) {
  Scene s = Running();
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.state, JobState::kRunning);
  s.Stopped("b");
  s.Settle();
  EXPECT_EQ(s.job.generation, 1u) << "a is not gone yet";
  EXPECT_THAT(s.job.holds, SizeIs(2)) << "nobody else may take b's place";
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(s.job.generation, 2u);
  EXPECT_EQ(s.job.attempt, 2);
  EXPECT_EQ(s.job.restarts, 1);
  EXPECT_THAT(s.job.holds, SizeIs(2));
  EXPECT_FALSE(s.job.cluster);
  EXPECT_FALSE(s.job.failing);
  EXPECT_FALSE(s.job.tasks[0].ranks[0].exit);
  ASSERT_THAT(s.job.attempts, SizeIs(1));
  EXPECT_EQ(s.job.attempts[0].end_cause.reason, Reason::kRankSignal);
}

TEST(LifecycleTest, RestartInPlaceNeedsEveryNodeReady) {
  Scene s = Running();
  s.Exited(1, Code(1));
  s.Settle();
  s.AllStopped();
  s.view.nodes["a"].state = NodeState::kUnknown;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.not_before, s.now.wall + 1s);
}

TEST(LifecycleTest, NextGenerationResumesFromTheNewestCheckpointOnDisk) {
  Scene s = Running();
  s.Gang("a").checkpoint = Checkpoint{40, 1, "/out/40", {}, 9};
  s.Settle();
  ASSERT_TRUE(s.job.last_checkpoint);
  EXPECT_EQ(s.job.last_checkpoint->time, s.now.wall);
  EXPECT_EQ(s.job.committed_step, 40);
  s.Exited(0, Code(1));
  s.Settle();
  s.AllStopped();
  s.Settle();
  // Step 40 is what was heard of last: there may be a newer one.
  EXPECT_THAT(s.job.lineage,
              ElementsAre(LineageEntry{1, 0},
                          LineageEntry{2, LineageEntry::kNotSaid}));
  // The ranks say what they took.
  s.Gang("a").resumed_step = 20;
  s.Settle();
  EXPECT_EQ(s.job.lineage.back().start_step, 20);
}

TEST(LifecycleTest, CheckpointsOfALaterGenerationCountMoreThanHigherSteps) {
  Scene s = Running();
  s.Gang("a").checkpoint = Checkpoint{40, 1, "/out/40", {}, 9};
  s.Settle();
  s.Exited(0, Code(1));
  s.Settle();
  s.AllStopped();
  s.Settle();
  s.Run({});
  s.Gang("b").checkpoint = Checkpoint{90, 1, "/out/90", {}, 9};
  s.Gang("a").checkpoint = Checkpoint{30, 2, "/out/30", {}, 9};
  s.Settle();
  EXPECT_EQ(s.job.last_checkpoint->step, 30);
  EXPECT_EQ(s.job.committed_step, 40) << "what was committed stays so";
}

TEST(LifecycleTest, BudgetWithoutProgressIsUsedUp) {
  Scene s = Running();
  s.job.spec.restart_budget = 2;
  s.Exited(1, Code(3));
  s.Settle();
  for (int failure = 1; failure <= 2; ++failure) {
    s.AllStopped();
    s.Settle();
    EXPECT_EQ(s.job.failures_without_progress, failure);
    s.Run({"a", "b"});
    s.Exited(0, Code(4));
    s.Settle();
  }
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kRestartBudget);
  EXPECT_THAT(s.job.cause.message, HasSubstr("failed 3 times"));
  EXPECT_THAT(s.job.cause.message, HasSubstr("rank 1 (worker 0 on b)"));
  EXPECT_EQ(s.job.exit_code, 3) << "the first cause's";
  EXPECT_THAT(s.job.attempts, SizeIs(3));
  EXPECT_EQ(s.job.restarts, 2);
}

TEST(LifecycleTest, ProgressGivesTheBudgetBack) {
  Scene s = Running();
  s.job.spec.restart_budget = 1;
  for (int64_t step = 1; step <= 5; ++step) {
    s.Rank(0).progress.committed_step = step;
    s.Exited(1, Code(3));
    s.Settle();
    s.AllStopped();
    s.Settle();
    ASSERT_EQ(s.job.state, JobState::kPreparing) << "step " << step;
    EXPECT_EQ(s.job.failures_without_progress, 1);
    s.Run({});
  }
  // As many steps as before are no progress.
  s.Rank(0).progress.committed_step = 5;
  s.Exited(1, Code(3));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
}

TEST(LifecycleTest, TenMinutesAreAProgramsProgress) {
  for (const Duration ran : {Duration(10min - 1ns), Duration(10min)}) {
    Scene s(ParameterServers());
    s.job.spec.restart_budget = 1;
    s.job.failures_without_progress = 1;
    s.Run({"a", "b"});
    s.Advance(ran);
    s.Exited(1, Code(3));
    s.Settle();
    s.AllStopped();
    s.Settle();
    EXPECT_EQ(s.job.state,
              ran < 10min ? JobState::kFailed : JobState::kPreparing);
  }
}

TEST(LifecycleTest, Exit42RestartsForFreeButNotInALoop) {
  Scene s = Running();
  s.job.spec.restart_budget = 0;
  for (int i = 0; i < 2; ++i) {
    s.Exited(0, Code(42));
    s.Settle();
    s.AllStopped();
    s.Settle();
    ASSERT_EQ(s.job.state, JobState::kPreparing) << i;
    EXPECT_EQ(s.job.failures_without_progress, 0);
    s.Run({});
    s.Advance(1s);
  }
  s.Exited(0, Code(42));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kRestartRequested);
  EXPECT_EQ(s.job.exit_code, 42);
}

TEST(LifecycleTest, Exit42OnceAMinuteGoesOnForEver) {
  Scene s = Running();
  s.job.spec.restart_budget = 0;
  for (int i = 0; i < 30; ++i) {
    s.Exited(0, Code(42));
    s.Settle();
    s.AllStopped();
    s.Settle();
    ASSERT_EQ(s.job.state, JobState::kPreparing) << i;
    s.Run({});
    s.Advance(60s);
  }
  // What is kept of all that is bounded.
  EXPECT_THAT(s.job.free_restarts, SizeIs(1));
  EXPECT_THAT(s.job.attempts, SizeIs(20));
  EXPECT_THAT(s.job.ended_ranks, SizeIs(2));
}

TEST(LifecycleTest, UseOfEndedAttemptsIsSummedByRank) {
  Scene s = Running();
  for (int i = 0; i < 3; ++i) {
    s.Rank(1).usage.cpu_seconds = 5;
    s.Rank(1).progress.phases.compute = 2;
    s.Exited(1, Code(42));
    s.Settle();
    s.AllStopped();
    s.Settle();
    s.Run({});
    s.Advance(60s);
  }
  ASSERT_THAT(s.job.ended_ranks, SizeIs(2));
  EXPECT_EQ(s.job.ended_ranks[1].usage.cpu_seconds, 15);
  EXPECT_EQ(s.job.ended_ranks[1].progress.phases.compute, 6);
}

TEST(LifecycleTest, VictimsAreNotTheCause) {
  Scene s = Running();
  s.Exited(0, Victim(Code(75)));
  s.Advance(1s);
  s.Exited(1, Signal(SIGSEGV));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.attempts[0].end_cause.reason, Reason::kRankSignal);
  EXPECT_THAT(s.job.attempts[0].end_cause.message,
              HasSubstr("rank 1 (worker 0 on b)"));
}

TEST(LifecycleTest, MaxRunningTimeCountsFromTheFirstRunning) {
  JobSpec spec = NativeSpec("j", 2);
  spec.max_running_time = 10s;
  Scene s(spec);
  s.Run({"a", "b"});
  s.Advance(6s);
  s.Exited(1, Code(1));
  s.Settle();
  s.AllStopped();
  s.Settle();
  s.Advance(2s);
  s.Run({});
  s.Advance(2s);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  s.Advance(1ns);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFinishing);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kCancelled);
  EXPECT_EQ(s.job.cause.reason, Reason::kMaxRunningTime);
}

TEST(LifecycleTest, MaxRunningTimeEndsAJobThatIsBetweenTwoAttempts) {
  JobSpec spec = NativeSpec("j", 2);
  spec.max_running_time = 10s;
  Scene s(spec);
  s.Run({"a", "b"});
  s.Exited(1, Code(1));
  s.Settle();
  s.view.nodes["b"].state = NodeState::kUnknown;
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.state, JobState::kPlacing);
  s.Advance(11s);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kCancelled);
}

TEST(LifecycleTest, SuccessWinsOverALimitThatIsOverAtTheSameTime) {
  JobSpec spec = NativeSpec("j", 2);
  spec.max_running_time = 10s;
  Scene s(spec);
  s.Run({"a", "b"});
  s.Advance(11s);
  s.Exited(0, Code(0));
  s.Settle();
  EXPECT_EQ(s.job.outcome, JobState::kSucceeded);
}

// ---- FINISHING ----

TEST(LifecycleTest, FinishingWaitsForEveryNodeOrItsLoss) {
  Scene s = Running();
  s.Exited(0, Code(0));
  s.Settle();
  s.Stopped("a");
  s.view.nodes["b"].state = NodeState::kUnknown;
  s.Advance(1min);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFinishing) << "silence proves nothing";
  s.view.nodes["b"].state = NodeState::kLost;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
}

TEST(LifecycleTest, FailedJobFinishesWithItsOwnCause) {
  Scene s = Running();
  s.Exited(1, Code(2));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kRankExit);
  EXPECT_EQ(s.job.exit_code, 2);
}

// ---- Cancelling and failing, in every state ----

struct Stage {
  const char* name;
  Scene (*make)();
};
void PrintTo(const Stage& stage, std::ostream* out) { *out << stage.name; }

Scene Placing() {
  Scene s = Forming();
  s.Exited(1, Code(1));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  return s;
}
Scene Failing() {
  Scene s = Running();
  s.Exited(1, Code(1));
  s.Settle();
  EXPECT_TRUE(s.job.failing);
  return s;
}
Scene Launched() {
  Scene s = Forming();
  s.Started();
  s.Settle();
  return s;
}

std::string NameOf(const testing::TestParamInfo<Stage>& info) {
  return info.param.name;
}
const Stage kQueuedStage{"Queued", Queued};
const Stage kPlacingStage{"Placing", Placing};
const Stage kPreparingStage{"Preparing", Preparing};
const Stage kFormingStage{"Forming", Forming};
const Stage kLaunchedStage{"Launched", Launched};
const Stage kRunningStage{"Running", Running};
const Stage kFailingStage{"Failing", Failing};

class EveryStateTest : public testing::TestWithParam<Stage> {};
INSTANTIATE_TEST_SUITE_P(All, EveryStateTest,
                         testing::Values(kQueuedStage, kPlacingStage,
                                         kPreparingStage, kFormingStage,
                                         kLaunchedStage, kRunningStage,
                                         kFailingStage),
                         NameOf);
// That have places, and that may have processes.
class HoldingStateTest : public testing::TestWithParam<Stage> {};
INSTANTIATE_TEST_SUITE_P(All, HoldingStateTest,
                         testing::Values(kPreparingStage, kFormingStage,
                                         kLaunchedStage, kRunningStage,
                                         kFailingStage),
                         NameOf);
class LaunchedStateTest : public testing::TestWithParam<Stage> {};
INSTANTIATE_TEST_SUITE_P(All, LaunchedStateTest,
                         testing::Values(kFormingStage, kLaunchedStage,
                                         kRunningStage, kFailingStage),
                         NameOf);

TEST_P(EveryStateTest, CancelEndsCancelledAndNoCodeRestarts) {
  Scene s = GetParam().make();
  const Generation generation = s.job.generation;
  s.job = Cancel(s.job, "user/ann", s.now);
  EXPECT_EQ(Cancel(s.job, "user/bob", s.now), s.job) << "again: nothing";
  s.Settle();
  if (!s.job.holds.empty()) {
    EXPECT_EQ(s.job.state, JobState::kFinishing);
    s.Exited(0, Code(42));
    s.AllStopped();
    s.Settle();
  }
  EXPECT_EQ(s.job.state, JobState::kCancelled);
  EXPECT_EQ(s.job.cause.reason, Reason::kCancelledByUser);
  EXPECT_EQ(s.job.cause.message, "cancelled by user/ann");
  EXPECT_EQ(s.job.generation, generation);
  EXPECT_EQ(s.job.exit_code, 1);
  EXPECT_EQ(s.job.attempts.size(), generation > 0 ? 1u : 0u);
}

TEST_P(HoldingStateTest, CancelWhenAllIsGoneAtTheSameTimeClosesTheAttempt) {
  Scene s = GetParam().make();
  s.AllStopped();
  s.job = Cancel(s.job, "user/ann", s.now);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kCancelled);
  EXPECT_THAT(s.job.attempts, SizeIs(1));
}

TEST_P(LaunchedStateTest, RankThatFailsBadlyEndsTheJob) {
  Scene s = GetParam().make();
  ExitStatus exit = Signal(SIGKILL);
  exit.out_of_memory = true;
  s.Exited(0, exit);
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kOutOfMemory);
  EXPECT_EQ(s.job.exit_code, 137);
}

TEST_P(EveryStateTest, LostNodesReleaseTheirHolds) {
  Scene s = GetParam().make();
  for (auto& [name, node] : s.view.nodes) node.state = NodeState::kLost;
  s.Settle();
  EXPECT_THAT(s.job.holds, IsEmpty());
  EXPECT_THAT(s.job.state,
              testing::AnyOf(JobState::kQueued, JobState::kPlacing));
}

TEST_P(EveryStateTest, ClockOfThePersonJumpsAndNothingHappens) {
  Scene s = GetParam().make();
  const Job before = s.job;
  s.now.wall += std::chrono::hours(1);
  s.Settle();
  EXPECT_EQ(s.job, before);
  s.now.wall -= std::chrono::hours(2);
  s.Settle();
  EXPECT_EQ(s.job, before);
}

TEST(LifecycleTest, FinalJobsNeverChange) {
  Scene s = Running();
  s.Exited(0, Code(0));
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.state, JobState::kSucceeded);
  const Job end = s.job;
  EXPECT_EQ(Cancel(end, "user/ann", s.now), end);
  s.Rank(1).exit = Code(1);
  s.view.nodes["b"].state = NodeState::kLost;
  s.Advance(std::chrono::hours(1000));
  s.Settle();
  EXPECT_EQ(s.job, end);
}

TEST(LifecycleTest, CancelDoesNotUndoAnEndThatIsUnderWay) {
  Scene s = Running();
  s.Exited(0, Code(0));
  s.Settle();
  s.job = Cancel(s.job, "user/ann", s.now);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
}

// ---- What nodes tell beside ----

TEST(LifecycleTest, RankEventsAreRecordedOnce) {
  Scene s = Running();
  s.Gang("b").events = {{1, 1, s.now.wall, Reason::kNone, "warming up"}};
  s.Settle();
  s.Gang("b").events.push_back({2, 1, s.now.wall, Reason::kNone, "go"});
  s.Settle();
  int seen = 0;
  for (const Event& event : s.job.events) {
    if (event.message == "rank 1 (worker 0 on b): warming up") ++seen;
  }
  EXPECT_EQ(seen, 1);
  EXPECT_THAT(s.job.events.back().message, HasSubstr("go"));
}

TEST(LifecycleTest, ReportsWithoutNewsChangeNothing) {
  Scene s = Running();
  const Job before = s.job;
  s.Rank(0).progress.committed_step = 7;  // Soft: in memory only.
  s.Settle();
  EXPECT_EQ(s.job, before);
}

TEST(LifecycleTest, EndlessSentencesAreCutAtACharacter) {
  Scene s = Running();
  ExitStatus exit = Code(9);
  for (int i = 0; i < 4000; ++i) exit.message += "\u00e9";
  s.Exited(1, exit);
  s.Settle();
  s.AllStopped();
  s.Settle();
  for (const Event& event : s.job.events) {
    EXPECT_LE(event.message.size(), kMaxSentence);
  }
  ASSERT_TRUE(s.job.first_failure);
  EXPECT_LE(s.job.first_failure->message.size(), kMaxSentence);
  const std::string& text = s.job.first_failure->message;
  EXPECT_EQ(text.substr(text.size() - 5), "\u00e9...");
}

TEST(LifecycleTest, EventsAreBoundedAndTheFirstStay) {
  Scene s = Running();
  const Event first = s.job.events.front();
  for (int i = 0; i < 1000; ++i) {
    AddEvent(&s.job, Reason::kNone, std::to_string(i), s.now);
  }
  EXPECT_THAT(s.job.events, SizeIs(kMaxEvents));
  EXPECT_EQ(s.job.events.front(), first);
  EXPECT_EQ(s.job.events.back().message, "999");
}

TEST(LifecycleTest, PhasesAddUpToTheJobsLife) {
  Scene s = Queued();
  s.Advance(1s);
  s.Put({"a", "b"});
  s.Advance(2s);
  s.Prepared();
  s.Settle();
  s.Advance(3s);
  s.Started();
  s.Joined();
  s.Settle();
  s.Advance(4s);
  s.Exited(0, Code(0));
  s.Settle();
  s.Advance(5s);
  EXPECT_EQ(PhaseDuration(s.job, JobState::kFinishing, s.now.wall), 5s);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.phase_durations.at(JobState::kQueued), 1s);
  EXPECT_EQ(s.job.phase_durations.at(JobState::kPreparing), 2s);
  EXPECT_EQ(s.job.phase_durations.at(JobState::kForming), 3s);
  EXPECT_EQ(s.job.phase_durations.at(JobState::kRunning), 4s);
  EXPECT_EQ(s.job.phase_durations.at(JobState::kFinishing), 5s);
  s.Advance(100s);
  EXPECT_EQ(PhaseDuration(s.job, JobState::kFinishing, s.now.wall), 5s);
  ASSERT_THAT(s.job.attempts, SizeIs(1));
  EXPECT_EQ(s.job.attempts[0].end_time - s.job.attempts[0].start_time, 14s);
}

// ---- Directives ----

TEST(LifecycleTest, CheckpointDirectiveIsPendingUntilItTookEffect) {
  Scene s = Running();
  for (uint32_t id = 1; id <= 2; ++id) {
    const auto asked = AddCheckpointDirective(s.job, s.now);
    ASSERT_TRUE(asked.ok()) << Message(asked.status());
    s.job = *asked;
    EXPECT_EQ(s.job.directives.back().id, id);
  }
  s.Gang("a").directive_done = 1;
  s.Settle();
  ASSERT_THAT(s.job.directives, SizeIs(1));
  EXPECT_EQ(s.job.directives[0].id, 2u);
}

TEST(LifecycleTest, PendingDirectivesAreNumberedAnewInTheNextGeneration) {
  Scene s = Running();
  for (int i = 0; i < 3; ++i) s.job = *AddCheckpointDirective(s.job, s.now);
  s.Gang("a").directive_done = 1;
  s.Exited(1, Code(1));
  s.Settle();
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.generation, 2u);
  ASSERT_THAT(s.job.directives, SizeIs(2));
  EXPECT_EQ(s.job.directives[0].id, 1u);
  EXPECT_EQ(s.job.directives[1].id, 2u);
  EXPECT_EQ(s.job.next_directive, 3u);
}

TEST(LifecycleTest, CheckpointIsRefusedWithTheReason) {
  Scene program(ParameterServers());
  EXPECT_EQ(ReasonOf(AddCheckpointDirective(program.job, program.now).status()),
            "NOT_NATIVE");
  Scene nowhere = Running();
  nowhere.job.spec.output_directory.clear();
  EXPECT_EQ(ReasonOf(AddCheckpointDirective(nowhere.job, nowhere.now).status()),
            "NO_OUTPUT_DIRECTORY");
  Scene queued = Queued();
  EXPECT_EQ(ReasonOf(AddCheckpointDirective(queued.job, queued.now).status()),
            "NOT_RUNNING");
  Scene failing = Failing();
  EXPECT_EQ(ReasonOf(AddCheckpointDirective(failing.job, failing.now).status()),
            "NOT_RUNNING");
}

TEST(LifecycleTest, DirectivesAreBounded) {
  Scene s = Running();
  Status status;
  int taken = 0;
  for (; taken < 100; ++taken) {
    const auto asked = AddCheckpointDirective(s.job, s.now);
    status = asked.status();
    if (!status.ok()) break;
    s.job = *asked;
  }
  EXPECT_EQ(taken, 16);
  EXPECT_EQ(ReasonOf(status), "TOO_MANY_CHECKPOINTS");
  s.job.directives.clear();
  s.job.next_directive = 4096;
  EXPECT_FALSE(AddCheckpointDirective(s.job, s.now).ok()) << "12 bits";
}

}  // namespace
}  // namespace lockstep
