#include "server/core/restart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server/core/scenes.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ns;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST(RestartTest, FirstFailureOfAJobThatRanRestartsItInPlace) {
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

TEST(RestartTest, RestartInPlaceNeedsEveryNodeReady) {
  Scene s = Running();
  s.Exited(1, Code(1));
  s.Settle();
  s.AllStopped();
  s.view.nodes["a"].state = NodeState::kUnknown;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.not_before, s.now.wall + 1s);
}

TEST(RestartTest, NextGenerationResumesFromTheNewestCheckpointOnDisk) {
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
  EXPECT_THAT(
      s.job.lineage,
      ElementsAre(LineageEntry{1, 0}, LineageEntry{2, LineageEntry::kNotSaid}));
  // The ranks say what they took.
  s.Gang("a").resumed_step = 20;
  s.Settle();
  EXPECT_EQ(s.job.lineage.back().start_step, 20);
}

TEST(RestartTest, CheckpointsOfALaterGenerationCountMoreThanHigherSteps) {
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

TEST(RestartTest, BudgetWithoutProgressIsUsedUp) {
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
  EXPECT_THAT(s.job.cause.message,
              HasSubstr("the last time: rank 0 (chief 0 on a): exit code 4"));
  EXPECT_EQ(s.job.exit_code, 4) << "the last cause's";
  EXPECT_THAT(s.job.attempts, SizeIs(3));
  EXPECT_EQ(s.job.restarts, 2);
}

// ---- Failures that nothing lays at the program's door ----

// The host of rank 1 is gone; what is left stops, and c takes its place.
void LoseHost(Scene* s) {
  const NodeName lost = s->job.tasks[1].node;
  s->view.nodes[lost].state = NodeState::kLost;
  s->Settle();
  ASSERT_TRUE(s->job.failing);
  ASSERT_EQ(s->job.failing->reason, Reason::kNodeLost);
  s->AllStopped();
  s->Settle();
}

TEST(RestartTest, AJobWithoutTriesOutlivesAHost) {
  Scene s = Running();
  s.job.spec.restart_budget = 0;
  // Its peer misses it, too: that is no pair which cannot form.
  s.Gang("a").lost_peers = {{0, 1, "Connection timed out"}};
  LoseHost(&s);
  EXPECT_EQ(s.job.state, JobState::kPlacing) << s.job.cause.message;
  EXPECT_EQ(s.job.failures_without_progress, 0);
  EXPECT_FALSE(s.job.output_hold);
  EXPECT_EQ(s.job.not_before, s.now.wall) << "other nodes may take it at once";
  EXPECT_EQ(s.job.events[s.job.events.size() - 2].reason, Reason::kNotCharged);
  EXPECT_THAT(s.job.events[s.job.events.size() - 2].message,
              HasSubstr("node b is lost"));
  s.Run({"a", "c"});
  EXPECT_EQ(s.job.generation, 2u);
}

TEST(RestartTest, TheEleventhHostWithinAnHourUsesUpATry) {
  Scene s = Running();
  s.job.spec.restart_budget = 0;
  for (int i = 0; i < kMostUncharged; ++i) {
    LoseHost(&s);
    ASSERT_EQ(s.job.state, JobState::kPlacing) << i;
    ASSERT_EQ(s.job.failures_without_progress, 0) << i;
    s.Advance(1min);
    s.Run({"a", "b"});
  }
  LoseHost(&s);
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kNodeLost);
}

TEST(RestartTest, AStandstillOfAllRanksUsesUpNoTry) {
  for (const bool all : {true, false}) {
    Scene s(NativeSpec("j", 3));
    s.job.spec.restart_budget = 0;
    s.Run({"a", "b", "c"});
    Stall stall;
    stall.rank = all ? -1 : 1;
    s.view.stall = stall;
    s.Settle();
    ASSERT_TRUE(s.job.failing);
    s.view.stall.reset();
    s.view.all_stood = all;
    // No pair is named: of three nodes it is not known which.
    s.AllStopped();
    s.Settle();
    EXPECT_EQ(IsFinal(s.job.state), !all) << s.job.cause.message;
    EXPECT_EQ(s.job.failures_without_progress, all ? 0 : 1);
  }
}

TEST(RestartTest, AGangThatDoesNotFormUsesUpNoTryUnlessARankExits) {
  for (const bool exits : {false, true}) {
    Scene s = Forming();
    s.job.spec.restart_budget = 0;
    s.Started();
    s.Settle();
    s.Advance(31s);
    if (exits) s.Exited(1, Code(3));
    s.Settle();
    ASSERT_TRUE(s.job.failing);
    s.AllStopped();
    s.Settle();
    EXPECT_EQ(IsFinal(s.job.state), exits) << s.job.cause.message;
    EXPECT_EQ(s.job.failures_without_progress, exits ? 1 : 0);
  }
}

TEST(RestartTest, SameExceptionAtTheSamePlaceTwiceIsNotTriedAgain) {
  Scene s = Running();
  s.Exited(1, Raised("KeyError: 'a'", "train.py:12"));
  s.Settle();
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.state, JobState::kPreparing);
  s.Run({});
  // Another rank, and other words of the same exception.
  s.Exited(0, Raised("KeyError: 'b'", "train.py:12"));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kRepeatedFailure);
  EXPECT_THAT(s.job.cause.message, HasSubstr("rank 0 (chief 0 on a): exit code "
                                             "1: KeyError: 'b'"));
  EXPECT_EQ(s.job.exit_code, 1);
  EXPECT_EQ(s.job.restarts, 1);
}

// A kill without a cgroup that counts it: the worker says what it thinks.
ExitStatus ProbablyOutOfMemory() {
  ExitStatus exit = Signal(SIGKILL);
  exit.reason = Reason::kOutOfMemory;
  exit.message = "probably out of memory: at that time 1.0 % was left";
  return exit;
}

TEST(RestartTest, ProbablyOutOfMemoryTwiceIsNotTriedAgain) {
  Scene s = Running();
  s.Exited(1, ProbablyOutOfMemory());
  s.Settle();
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.state, JobState::kPreparing) << "once may be a neighbour's";
  EXPECT_EQ(s.job.attempts[0].end_cause.reason, Reason::kOutOfMemory);
  s.Run({});
  s.Exited(0, ProbablyOutOfMemory());
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kRepeatedFailure);
  EXPECT_THAT(s.job.cause.message, HasSubstr("probably out of memory"));
  EXPECT_EQ(s.job.exit_code, 137);
}

// The names in such a message are the program's, not the system's words.
TEST(RestartTest, AMistakeInTheProgramNeverPasses) {
  for (const char* message :
       {"ModuleNotFoundError: No module named 'async_timeout'",
        "ImportError: cannot import name 'UnavailableError' from 'errors'",
        "SyntaxError: invalid syntax: timeout = = 3",
        "IndentationError: unexpected indent after 'if timeout'",
        "NameError: name 'timeout' is not defined",
        "TypeError: fit() got an unexpected keyword argument 'timeout'",
        "AttributeError: module 'socket' has no attribute 'timeouts'"}) {
    Scene s = Running();
    for (int i = 0; i < 2; ++i) {
      if (i > 0) s.Run({});
      s.Exited(1, Raised(message, "train.py:3"));
      s.Settle();
      s.AllStopped();
      s.Settle();
    }
    EXPECT_EQ(s.job.state, JobState::kFailed) << message;
    EXPECT_EQ(s.job.cause.reason, Reason::kRepeatedFailure) << message;
  }
}

TEST(RestartTest, OtherFailuresAreTriedUntilTheBudgetIsUsedUp) {
  const std::pair<ExitStatus, ExitStatus> kPairs[] = {
      // Elsewhere.
      {Raised("KeyError: 1", "train.py:12"), Raised("KeyError: 1", "x.py:9")},
      // Of another type.
      {Raised("KeyError: 1", "x.py:9"), Raised("OSError: 1", "x.py:9")},
      // It is not known where.
      {Raised("KeyError: 1", ""), Raised("KeyError: 1", "")},
      // What passes by itself.
      {Raised("OSError: [Errno 5] Input/output error", "x.py:9"),
       Raised("OSError: [Errno 5] Input/output error", "x.py:9")},
      {Raised("DistStoreError: Timed out after 601 seconds", "x.py:9"),
       Raised("DistStoreError: Timed out after 601 seconds", "x.py:9")},
      // A peer was lost: the cause is elsewhere.
      {Raised("RuntimeError: Connection closed by peer", "x.py:9"),
       Raised("RuntimeError: Connection closed by peer", "x.py:9")},
  };
  for (const auto& [first, second] : kPairs) {
    Scene s = Running();
    s.Exited(1, first);
    s.Settle();
    s.AllStopped();
    s.Settle();
    s.Run({});
    s.Exited(1, second);
    s.Settle();
    s.AllStopped();
    s.Settle();
    EXPECT_EQ(s.job.state, JobState::kPlacing) << second.message;
  }
}

// The failure may be the GPU's.
TEST(RestartTest, RanksOnABadGpuGoElsewhere) {
  Scene s(Gang(2, {1, 0, 1, ""}));
  s.Run({"a", "b"});
  s.job.tasks[1].gpus = {3};
  s.view.nodes["b"].bad_gpus = {2};
  s.Exited(1, Raised("RuntimeError: CUDA error", "train.py:12"));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing) << "that one is another's";
  EXPECT_NE(s.job.failure_signature, "");
  s.Run({});
  s.view.nodes["b"].bad_gpus = {3};
  s.Exited(1, Raised("RuntimeError: CUDA error", "train.py:12"));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.failure_signature, "");
}

TEST(RestartTest, SameExceptionAfterProgressIsTriedAgain) {
  Scene s = Running();
  for (int64_t step = 1; step <= 5; ++step) {
    s.Rank(0).progress.committed_step = step;
    s.Exited(1, Raised("KeyError: 1", "train.py:12"));
    s.Settle();
    s.AllStopped();
    s.Settle();
    ASSERT_EQ(s.job.state, JobState::kPreparing) << step;
    s.Run({});
  }
}

TEST(RestartTest, ProgressGivesTheBudgetBack) {
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

TEST(RestartTest, TenMinutesAreAProgramsProgress) {
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

TEST(RestartTest, Exit42RestartsForFreeButNotInALoop) {
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

TEST(RestartTest, Exit42OnceAMinuteGoesOnForEver) {
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
}

TEST(RestartTest, VictimsAreNotTheCause) {
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

// ---- Ports ----

ExitStatus PortTakenByNginx() {
  ExitStatus exit = Code(1);
  exit.reason = Reason::kPortTaken;
  exit.message = "port 7000 was taken by nginx (pid 7)";
  return exit;
}

TEST(RestartTest, APortThatWasTakenCostsNothing) {
  Scene s = Running();
  s.job.spec.restart_budget = 0;
  for (int i = 1; i <= 5; ++i) {
    s.Exited(1, PortTakenByNginx());
    s.Settle();
    s.AllStopped();
    s.Settle();
    ASSERT_EQ(s.job.state, JobState::kPreparing) << i;
    EXPECT_EQ(s.job.failures_without_progress, 0);
    EXPECT_EQ(s.job.generation, 1u + i);
    EXPECT_EQ(s.job.attempts.back().end_cause.reason, Reason::kPortTaken);
    s.Run({});
    s.Advance(1s);
  }
  EXPECT_THAT(s.job.attempts.back().end_cause.message, HasSubstr("nginx"));
  s.Exited(1, PortTakenByNginx());
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kPortTaken);
}

TEST(RestartTest, ARefusalForAPortIsTriedAgainInPlace) {
  Scene s = Preparing();
  s.job.spec.restart_budget = 0;
  s.Refused("b", {Reason::kPortTaken, "no free port"});
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(s.job.generation, 2u);
  EXPECT_THAT(s.job.holds, SizeIs(2));
  bool told = false;
  for (const Event& event : s.job.events) {
    told = told ||
           event.message == "node b: no free port; restarting on other ports";
  }
  EXPECT_TRUE(told);
}

// ---- First causes ----

TEST(RestartTest, TheEarliestByCorrectedTimeIsTheCause) {
  Scene s = Running();
  // b's clock is five seconds ahead: its rank died first all the same.
  s.view.nodes["b"].clock_offset = -5s;
  ExitStatus killed = Signal(SIGKILL);
  killed.end_time = s.now.wall + 5s - 200ms;
  s.Exited(1, killed);
  ExitStatus after = Code(1);
  after.end_time = s.now.wall - 100ms;
  s.Exited(0, after);
  s.Settle();
  s.AllStopped();
  s.Settle();
  ASSERT_THAT(s.job.attempts, SizeIs(1));
  const Attempt& attempt = s.job.attempts[0];
  EXPECT_EQ(attempt.end_cause.reason, Reason::kRankSignal);
  EXPECT_FALSE(attempt.tasks[1].ranks[0].exit->victim);
  EXPECT_EQ(attempt.tasks[1].ranks[0].exit->end_time, s.now.wall - 200ms);
  EXPECT_TRUE(attempt.tasks[0].ranks[0].exit->victim);
}

TEST(RestartTest, NothingEndsAfterItWasHeardOf) {
  for (const WallTime said : {WallTime{}, WallTime::max(), WallTime::min()}) {
    Scene s = Running();
    s.Exited(1, Code(1));
    s.Rank(1).exit->end_time = said;
    s.Settle();
    EXPECT_EQ(s.job.tasks[1].ranks[0].exit->end_time, s.now.wall);
  }
}

}  // namespace
}  // namespace lockstep::server
