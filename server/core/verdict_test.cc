#include "server/core/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server/core/testing.h"

namespace lockstep {
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
  RestartPlan Plan(const Failure& failure, bool progress = false,
                   bool was_running = true) {
    return PlanRestart(job(), failure, progress, was_running, scene_.now);
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
  const std::vector<std::pair<int32_t, Duration>> running = {
      {0, 1s}, {1, 2s}, {2, 4s}, {5, 32s}, {6, 60s}, {90, 60s}};
  for (const auto& [failures, backoff] : running) {
    job().failures_without_progress = failures;
    EXPECT_EQ(Plan(Ordinary()).backoff, backoff) << failures;
  }
  const std::vector<std::pair<int32_t, Duration>> forming = {
      {0, 200ms}, {1, 400ms}, {5, 6400ms}, {6, 10s}, {90, 10s}};
  for (const auto& [failures, backoff] : forming) {
    job().failures_without_progress = failures;
    EXPECT_EQ(Plan(Ordinary(), false, false).backoff, backoff) << failures;
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
  const RestartPlan plan =
      PlanRestart(job(), FailureOf({Reason::kNoCapacity, "disk full"}), false,
                  false, Time{});
  EXPECT_TRUE(plan.restart);
  EXPECT_EQ(plan.backoff, kPassingRefusalBackoff);
  EXPECT_EQ(plan.failures_without_progress, job().spec.restart_budget);
}

}  // namespace
}  // namespace lockstep
