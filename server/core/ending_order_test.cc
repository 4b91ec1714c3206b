// Before and after a chief's end go by when ranks ended, not by when that was
// heard of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "server/core/lifecycle.h"
#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using testing::HasSubstr;
using testing::SizeIs;

JobSpec EndsWithChief() {
  JobSpec spec =
      ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 1)});
  spec.end_with = EndWith::kChief;
  return spec;
}

Scene RunningWithChief(const JobSpec& spec = EndsWithChief()) {
  Scene s(spec);
  s.Run({"a", "b"});
  return s;
}

ExitStatus At(WallTime time, ExitStatus exit) {
  exit.end_time = time;
  return exit;
}

ExitStatus Saying(std::string message, ExitStatus exit) {
  exit.message = std::move(message);
  return exit;
}

TEST(EndingOrderTest, WorkerKilledBeforeTheChiefsEndFailsTheAttempt) {
  Scene s = RunningWithChief();
  const WallTime killed = s.now.wall;
  s.Advance(1s);
  s.Exited(0, Code(0));
  s.Exited(1, At(killed, Signal(SIGKILL)));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_THAT(s.job.failing->message,
              HasSubstr("rank 1 (worker 0 on b): killed by SIGKILL"));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(s.job.generation, 2u);
}

// Its node was slow to say so: the chief's end was taken for the job's.
TEST(EndingOrderTest, NewsThatComesLaterTakesTheSuccessBack) {
  Scene s = RunningWithChief();
  const WallTime killed = s.now.wall;
  s.Advance(1s);
  s.Exited(0, Code(0));
  s.Settle();
  ASSERT_EQ(s.job.state, JobState::kFinishing);
  ASSERT_EQ(s.job.outcome, JobState::kSucceeded);
  s.Stopped("a");
  s.Settle();
  ASSERT_THAT(s.job.holds, SizeIs(1)) << "the places of a are others' by now";
  s.Advance(5s);
  s.Exited(1, At(killed, Signal(SIGKILL)));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.cause.reason, Reason::kStoppingRanks);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.failures_without_progress, 1);
  EXPECT_FALSE(s.job.outcome);
  s.Advance(2s);
  s.Run({"a", "b"});
  EXPECT_EQ(s.job.generation, 2u);
  s.Exited(0, Code(0));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
}

TEST(EndingOrderTest, PairsAreTestedBeforeWhatFollowsIsDecided) {
  Scene s = RunningWithChief();
  const WallTime killed = s.now.wall;
  s.Advance(1s);
  s.Exited(0, Code(0));
  s.Settle();
  s.Exited(1, At(killed, Signal(SIGKILL)));
  s.Settle();
  s.view.testing_pairs = true;
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFinishing);
  s.view.testing_pairs = false;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
}

// The news and the end of all come in one report.
TEST(EndingOrderTest, OutOfTriesItsCodeIsTheJobs) {
  JobSpec spec = EndsWithChief();
  spec.restart_budget = 0;
  Scene s = RunningWithChief(spec);
  const WallTime failed = s.now.wall;
  s.Advance(1s);
  s.Exited(0, Code(0));
  s.Settle();
  s.Exited(1, At(failed, Code(7)));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.exit_code, 7);
  EXPECT_THAT(s.job.attempts, SizeIs(1));
}

TEST(EndingOrderTest, ClocksOfNodesAreCorrected) {
  for (const Duration behind : {Duration(-10s), Duration(10s)}) {
    Scene s = RunningWithChief();
    s.view.nodes["b"].clock_offset = behind;
    s.Advance(20s);
    const WallTime failed = s.now.wall - 1s;
    s.Exited(0, Code(0));
    s.Exited(1, At(failed - behind, Code(7)));
    s.Settle();
    EXPECT_TRUE(s.job.failing) << FormatDuration(behind);
  }
}

TEST(EndingOrderTest, WhatFailsAfterItOrWithItChangesNothing) {
  for (const Duration before : {Duration(-1s), Duration(0s), Duration(5ms)}) {
    Scene s = RunningWithChief();
    s.Advance(10s);
    s.Exited(0, At(s.now.wall - 5s, Code(0)));
    s.Exited(1, At(s.now.wall - 5s - before, Code(7)));
    s.Settle();
    EXPECT_EQ(s.job.outcome, JobState::kSucceeded) << FormatDuration(before);
  }
}

// The chief lets go of its peers, and needs a while to its own end.
TEST(EndingOrderTest, WhoBlamesTheChiefsEndDidNotFailBeforeIt) {
  Scene s = RunningWithChief();
  const WallTime failed = s.now.wall;
  s.Advance(1s);
  s.Exited(0, Code(0));
  s.Settle();
  s.Exited(1, At(failed, Saying("UnavailableError: Socket closed", Code(1))));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
}

TEST(EndingOrderTest, WorkerThatStartsAgainAloneDoesNotTakeItBack) {
  JobSpec spec =
      ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 1),
                        Role(TaskType::kPs, 1)});
  spec.restart_worker_alone = true;
  Scene s(spec);
  s.Run({"a", "b", "c"});
  const WallTime killed = s.now.wall;
  s.Advance(1s);
  s.Exited(0, Code(0));
  s.Settle();
  s.Exited(1, At(killed, Signal(SIGKILL)));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
}

TEST(EndingOrderTest, JobThatWasCancelledMeanwhileKeepsItsEnd) {
  Scene s = RunningWithChief();
  const WallTime killed = s.now.wall;
  s.Advance(1s);
  s.Exited(0, Code(0));
  s.Settle();
  s.job = Cancel(s.job, "user/ann", s.now);
  s.Exited(1, At(killed, Signal(SIGKILL)));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
}

TEST(EndingOrderTest, CancelAfterItWasTakenBackCancels) {
  Scene s = RunningWithChief();
  const WallTime killed = s.now.wall;
  s.Advance(1s);
  s.Exited(0, Code(0));
  s.Settle();
  s.Exited(1, At(killed, Signal(SIGKILL)));
  s.Settle();
  s.job = Cancel(s.job, "user/ann", s.now);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kCancelled);
  EXPECT_EQ(s.job.cause.message, "cancelled by user/ann");
}

// The other way round: what the chief's end did to a worker is heard of first.
TEST(EndingOrderTest, ChiefThatHadEndedBeforeTheFailureSucceeds) {
  Scene s = RunningWithChief();
  const WallTime ended = s.now.wall;
  s.Advance(1s);
  s.Exited(1, Code(1));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.Exited(0, At(ended, Code(0)));
  s.Settle();
  EXPECT_EQ(s.job.outcome, JobState::kSucceeded);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
}

TEST(EndingOrderTest, ChiefThatEndsWellWhenItIsStoppedDoesNotSucceed) {
  Scene s = RunningWithChief();
  s.Exited(1, Code(1));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.Advance(1s);
  s.Exited(0, Code(0));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(s.job.generation, 2u);
}

}  // namespace
}  // namespace lockstep::server
