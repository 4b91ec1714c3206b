#include "server/core/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>

#include "server/core/testing.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

class VerdictTest : public testing::Test {
 protected:
  VerdictTest() : scene_(NativeSpec("j", 3)) { scene_.Run({"a", "b", "c"}); }

  Job& job() { return scene_.job; }
  void Exit(size_t task, ExitStatus exit, Duration after = {}) {
    exit.end_time = scene_.now.wall + after;
    job().tasks[task].ranks[0].exit = exit;
    job().tasks[task].ranks[0].state = RankState::kExited;
  }
  Failure First() {
    const auto first = FirstFailure(job());
    EXPECT_TRUE(first);
    return first.value_or(Failure{});
  }
  RestartPlan Plan(const Failure& failure, bool progress = false) {
    return PlanRestart(job(), failure, progress, scene_.now);
  }
  static Failure Ordinary() { return FailureOf({Reason::kNodeLost, "x"}); }

  Scene scene_;
};

TEST_F(VerdictTest, NoFailureWithoutABadExit) {
  EXPECT_FALSE(FirstFailure(job()));
  Exit(1, Code(0));
  EXPECT_FALSE(FirstFailure(job()));
}

TEST_F(VerdictTest, EarliestRankThatFailedByItself) {
  Exit(0, Code(9), 2s);
  Exit(1, Code(8), 1s);
  Exit(2, Victim(Code(75)));
  const Failure first = First();
  EXPECT_EQ(first.exit_code, 8);
  EXPECT_EQ(first.cause.reason, Reason::kRankExit);
  EXPECT_THAT(first.cause.message, HasSubstr("rank 1 (worker 0 on b)"));
  EXPECT_FALSE(first.victim);
}

TEST_F(VerdictTest, EarliestVictimWhenAllAre) {
  Exit(0, Victim(Code(75)), 2s);
  Exit(2, Victim(Signal(SIGTERM)), 1s);
  const Failure first = First();
  EXPECT_TRUE(first.victim);
  EXPECT_THAT(first.cause.message, HasSubstr("rank 2"));
  EXPECT_FALSE(first.fatal);
}

TEST_F(VerdictTest, RankThatLeftEarlyIsNamed) {
  Exit(1, Code(0), 1s);
  ExitStatus lost = Code(1);
  lost.message = "RuntimeError: Connection closed by peer [10.0.0.2]:4711";
  Exit(0, lost, 2s);
  const Failure first = First();
  EXPECT_EQ(first.cause.reason, Reason::kRankLeftEarly);
  EXPECT_THAT(first.cause.message,
              HasSubstr("rank 1 (worker 0 on b) exited with 0 while others "
                        "still needed it; rank 0 (chief 0 on a): exit code 1"));
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_FALSE(first.fatal);
  EXPECT_TRUE(IsOfARank(job(), first.cause));
}

TEST_F(VerdictTest, RankThatLeftLongAgoIsNotNamed) {
  Exit(1, Code(0));
  ExitStatus lost = Code(1);
  lost.message = "ConnectionError: Connection refused";
  Exit(0, lost, 61s);
  EXPECT_EQ(First().cause.reason, Reason::kRankExit);
}

TEST_F(VerdictTest, RankThatLeftEarlyIsNamedByItsNativePeers) {
  Exit(2, Code(0), 1s);
  Exit(0, Victim(Code(75)), 2s);
  EXPECT_EQ(First().cause.reason, Reason::kRankLeftEarly);
}

TEST_F(VerdictTest, RankThatLeftAtTheSameTimeIsNamed) {
  ExitStatus lost = Code(1);
  lost.message = "Connection closed by peer";
  Exit(0, lost, 1000ms);
  Exit(1, Code(0), 1003ms);
  EXPECT_EQ(First().cause.reason, Reason::kRankLeftEarly);
}

TEST_F(VerdictTest, RankThatEndedAfterTheFailureDidNotLeaveEarly) {
  ExitStatus lost = Code(1);
  lost.message = "Connection closed by peer";
  Exit(0, lost, 1s);
  Exit(1, Code(0), 2s);
  EXPECT_EQ(First().cause.reason, Reason::kRankExit);
  // Nor does one explain an error of another kind.
  Exit(0, Code(3), 3s);
  EXPECT_EQ(First().cause.reason, Reason::kRankExit);
}

TEST_F(VerdictTest, WhatCannotBeHelpedIsFatal) {
  struct Case {
    ExitStatus exit;
    Reason reason;
    bool fatal;
    int32_t code;
  };
  ExitStatus memory = Signal(SIGKILL);
  memory.out_of_memory = true;
  ExitStatus exec;
  exec.how = ExitStatus::How::kExecErrno;
  exec.value = EACCES;
  ExitStatus mismatch = Code(1);
  mismatch.reason = Reason::kConfigMismatch;
  const std::vector<Case> cases = {
      {Code(1), Reason::kRankExit, false, 1},
      {Code(2), Reason::kRankExit, true, 2},
      {Code(3), Reason::kRankExit, false, 3},
      {Code(126), Reason::kRankExit, true, 126},
      {Code(127), Reason::kRankExit, true, 127},
      {Code(128), Reason::kRankExit, false, 128},
      {Code(42), Reason::kRestartRequested, false, 42},
      {Signal(SIGSEGV), Reason::kRankSignal, false, 139},
      {memory, Reason::kOutOfMemory, true, 137},
      {exec, Reason::kExecFailed, true, 126},
      {mismatch, Reason::kConfigMismatch, true, 1},
  };
  for (const Case& c : cases) {
    Exit(1, c.exit);
    const Failure first = First();
    EXPECT_EQ(first.fatal, c.fatal) << Describe(c.exit);
    EXPECT_EQ(first.cause.reason, c.reason) << Describe(c.exit);
    EXPECT_EQ(first.exit_code, c.code) << Describe(c.exit);
    EXPECT_EQ(first.free_restart, c.reason == Reason::kRestartRequested);
    EXPECT_EQ(Plan(first).restart, !c.fatal) << Describe(c.exit);
  }
}

TEST_F(VerdictTest, VictimsNeverEndAJobForGood) {
  Exit(1, Victim(Code(2)));
  EXPECT_FALSE(First().fatal);
}

TEST_F(VerdictTest, BackoffDoublesUpToItsLimit) {
  job().spec.restart_budget = 100;
  const std::vector<std::pair<int32_t, Duration>> waits = {
      {0, 1s}, {1, 2s}, {2, 4s}, {5, 32s}, {6, 60s}, {90, 60s}};
  for (const auto& [failures, backoff] : waits) {
    job().failures_without_progress = failures;
    EXPECT_EQ(Plan(Ordinary()).backoff, backoff) << failures;
  }
}

TEST_F(VerdictTest, BudgetIsExact) {
  job().spec.restart_budget = 3;
  job().failures_without_progress = 2;
  EXPECT_TRUE(Plan(Ordinary()).restart);
  job().failures_without_progress = 3;
  EXPECT_FALSE(Plan(Ordinary()).restart);
  EXPECT_TRUE(Plan(Ordinary(), true).restart) << "progress";
  EXPECT_EQ(Plan(Ordinary(), true).failures_without_progress, 1);
}

TEST_F(VerdictTest, BudgetOfZeroTellsThePlainCause) {
  job().spec.restart_budget = 0;
  const RestartPlan plan = Plan(Ordinary());
  EXPECT_FALSE(plan.restart);
  EXPECT_EQ(plan.cause.reason, Reason::kNodeLost);
  EXPECT_FALSE(Plan(Ordinary(), true).restart) << "0 means never";
}

TEST_F(VerdictTest, ThirdFreeRestartWithinAMinuteCosts) {
  Exit(1, Code(42));
  const WallTime now = scene_.now.wall;
  job().free_restarts = {now - 59s, now - 1s};
  RestartPlan plan = Plan(First());
  EXPECT_TRUE(plan.restart);
  EXPECT_EQ(plan.failures_without_progress, 1);
  job().free_restarts = {now - 60s, now - 1s};
  plan = Plan(First());
  EXPECT_EQ(plan.failures_without_progress, 0);
  EXPECT_EQ(plan.backoff, Duration{});
  job().free_restarts = {now - 3s, now - 2s, now - 1s};
  EXPECT_EQ(Plan(First(), true).failures_without_progress, 0) << "progress";
}

TEST_F(VerdictTest, CausesWithoutARank) {
  EXPECT_TRUE(FailureOf({Reason::kPrepareRefused, ""}).fatal);
  EXPECT_TRUE(FailureOf({Reason::kExecFailed, ""}).fatal);
  EXPECT_FALSE(FailureOf({Reason::kNodeLost, ""}).fatal);
  EXPECT_FALSE(FailureOf({Reason::kPrepareTimeout, ""}).fatal);
  EXPECT_FALSE(FailureOf({Reason::kFormTimeout, ""}).fatal);
  EXPECT_FALSE(FailureOf({Reason::kNoCapacity, ""}).fatal);
}

TEST_F(VerdictTest, ANodeThatCannotPrepareForNowCostsAWaitAndNoTry) {
  job().failures_without_progress = job().spec.restart_budget;
  const RestartPlan plan = PlanRestart(
      job(), FailureOf({Reason::kNoCapacity, "disk full"}), false, Time{});
  EXPECT_TRUE(plan.restart);
  EXPECT_EQ(plan.backoff, kPassingRefusalBackoff);
  EXPECT_EQ(plan.failures_without_progress, job().spec.restart_budget);
}

TEST_F(VerdictTest, ANodeThatCannotPrepareIsAskedLessAndLessOften) {
  const auto wait = [&] {
    return PlanRestart(job(), FailureOf({Reason::kNoCapacity, "disk full"}),
                       false, Time{})
        .backoff;
  };
  Attempt refused;
  refused.end_cause.reason = Reason::kNoCapacity;
  std::set<Duration> waits;
  for (const Duration longest : {2s, 4s, 8s, 16s, 30s, 30s, 30s, 30s}) {
    ++job().generation;
    EXPECT_LE(wait(), longest);
    EXPECT_GE(wait(), longest == 2s ? longest : longest / 4 * 3);
    waits.insert(wait());
    job().attempts.push_back(refused);
  }
  EXPECT_GT(waits.size(), 5u) << "not all at the same moment";
  job().attempts.back().end_cause.reason = Reason::kNodeLost;
  EXPECT_EQ(wait(), 2s) << "in a row";
}

// ---- Who was first ----

// The news of a death may be quicker than the death's own.
TEST_F(VerdictTest, WordsOfALostPeerAreNoFirstCause) {
  ExitStatus survivor = Code(1);
  survivor.message = "UnavailableError: Connection reset by peer";
  Exit(0, survivor);
  EXPECT_EQ(First().rank, 0) << "nobody else is known to have failed";
  Exit(1, Signal(SIGKILL), 1s);
  EXPECT_EQ(First().rank, 1);
  EXPECT_THAT(First().cause.message,
              HasSubstr("rank 1 (worker 0 on b): killed by SIGKILL"));
  // One that we stopped explains less than a lost peer.
  job().tasks[1].ranks[0].exit->victim = true;
  EXPECT_EQ(First().rank, 0);
}

TEST_F(VerdictTest, APortThatWasTakenIsTheCauseWhateverFollowed) {
  Exit(0, Signal(SIGABRT));
  ExitStatus taken = Code(2);
  taken.reason = Reason::kPortTaken;
  taken.message = "port 7000 was taken by nginx (pid 7)";
  Exit(1, taken, 2s);
  const Failure first = First();
  EXPECT_EQ(first.rank, 1);
  EXPECT_TRUE(first.port_taken);
  EXPECT_FALSE(first.fatal) << "whatever the program made of it";
  EXPECT_THAT(first.cause.message, HasSubstr("nginx (pid 7)"));
  taken.how = ExitStatus::How::kExecErrno;
  taken.value = EADDRINUSE;
  Exit(1, taken, 2s);
  EXPECT_FALSE(First().fatal);
}

TEST_F(VerdictTest, OthersThatFailedAreVictims) {
  Exit(0, Code(1), 2s);
  ExitStatus broken = Code(1);
  broken.message = "ModuleNotFoundError: No module named 'x'";
  Exit(1, broken, 1s);
  Exit(2, broken, 3s);
  MarkVictims(&job(), First());
  EXPECT_TRUE(job().tasks[0].ranks[0].exit->victim);
  EXPECT_FALSE(job().tasks[1].ranks[0].exit->victim);
  EXPECT_FALSE(job().tasks[2].ranks[0].exit->victim) << "the same error";
  MarkVictims(&job(), Ordinary());
  EXPECT_TRUE(job().tasks[1].ranks[0].exit->victim) << "of a lost node";
}

TEST_F(VerdictTest, RanksThatEndedWellAreNoVictims) {
  Exit(0, Code(0));
  Exit(1, Code(1));
  MarkVictims(&job(), First());
  EXPECT_FALSE(job().tasks[0].ranks[0].exit->victim);
}

TEST_F(VerdictTest, AForgottenUseChiefInTfConfigIsExplained) {
  ExitStatus exit = Code(1);
  exit.message = std::string(5000, 'x') +
                 "ValueError: Disallowed task type found in cluster spec. "
                 "Allowed types are ...";
  Exit(1, exit);
  EXPECT_THAT(First().cause.message, Not(HasSubstr("useChiefInTfConfig")));
  job().spec.environment_options.master_in_tf_config = true;
  EXPECT_THAT(First().cause.message, HasSubstr("set useChiefInTfConfig: true"));
  EXPECT_LE(First().cause.message.size(), kMaxSentence);
  EXPECT_TRUE(IsOfARank(job(), First().cause));
}

// Of a package useChiefInTfConfig does not count.
TEST_F(VerdictTest, TheFirstTaskOfAPackageIsNamedByItsRuntime) {
  ExitStatus exit = Code(1);
  exit.message = "ValueError: Disallowed task type found in cluster spec.";
  Exit(1, exit);
  job().spec.environment_options.master_in_tf_config = true;
  job().spec.packages.emplace_back();
  EXPECT_THAT(First().cause.message,
              HasSubstr("runtimeVersion 1.x makes the first task master: give "
                        "a 2.x version, or lockstep.runtime"));
  EXPECT_THAT(First().cause.message, Not(HasSubstr("useChiefInTfConfig")));
  job().spec.roles.Edit()[0].container.emplace();
  EXPECT_THAT(First().cause.message, HasSubstr("useChiefInTfConfig: true"));
}

TEST_F(VerdictTest, OtherPortsAreFreeFiveTimesAMinute) {
  const Failure taken = FailureOf({Reason::kPortTaken, "taken by nginx"});
  const auto attempt = [&](Duration ago) {
    Attempt ended;
    ended.end_cause = taken.cause;
    ended.end_time = scene_.now.wall - ago;
    job().attempts.push_back(ended);
  };
  attempt(60s);
  for (int i = 0; i < 4; ++i) attempt(59s);
  RestartPlan plan = Plan(taken);
  EXPECT_TRUE(plan.restart);
  EXPECT_EQ(plan.backoff, Duration{});
  EXPECT_EQ(plan.failures_without_progress, 0);
  attempt(1s);
  plan = Plan(taken);
  EXPECT_TRUE(plan.restart);
  EXPECT_EQ(plan.failures_without_progress, 1);
  EXPECT_EQ(plan.backoff, 1s);
  job().spec.restart_budget = 0;
  plan = Plan(taken);
  EXPECT_FALSE(plan.restart);
  EXPECT_THAT(plan.cause.message,
              HasSubstr("taken by nginx; 5 other sets of ports did not help"));
}

}  // namespace
}  // namespace lockstep::server
