// How jobs end, from every state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server/core/lifecycle.h"
#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ns;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// ---- FINISHING ----

// Rank 0 decides alone.
Scene NativeWithChief() {
  JobSpec spec = NativeSpec("j", 2);
  spec.end_with = EndWith::kChief;
  Scene s(spec);
  s.Run({"a", "b"});
  return s;
}

std::vector<std::string> EventTexts(const Job& job, Reason reason) {
  std::vector<std::string> texts;
  for (const Event& event : job.events) {
    if (event.reason == reason) texts.push_back(event.message);
  }
  return texts;
}

TEST(EndingTest, RuleIsSettledAtSubmission) {
  EXPECT_EQ(Queued().job.spec.end_with, EndWith::kAll);
  EXPECT_EQ(Scene(ParameterServers()).job.spec.end_with, EndWith::kChief);
  EXPECT_EQ(NativeWithChief().job.spec.end_with, EndWith::kChief);
}

TEST(EndingTest, JobSucceedsWhenEveryRankOfTheGroupHas) {
  Scene s(
      ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 2),
                        Role(TaskType::kEvaluator, 1)}));
  s.Run({"a", "b", "c", "d"});
  s.Exited(0, Code(0));
  s.Exited(2, Code(0));
  s.Settle();
  s.Advance(std::chrono::hours(1));
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning) << "rank 1 works on";
  s.Exited(1, Code(0));
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFinishing);
  EXPECT_EQ(s.job.outcome, JobState::kSucceeded);
  EXPECT_THAT(EventTexts(s.job, Reason::kRanksStopped),
              ElementsAre("still running; stopped now: rank 3 (evaluator 0 "
                          "on d)"));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
  EXPECT_EQ(s.job.exit_code, 0);
  EXPECT_THAT(EventTexts(s.job, Reason::kRanksStopped).back(),
              HasSubstr("stopped: rank 3 (evaluator 0 on d): "));
}

TEST(EndingTest, FailureAfterRankZerosEndIsAFailedAttempt) {
  Scene s = Running();
  s.Exited(0, Code(0));
  s.Settle();
  s.Exited(1, Code(3));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(s.job.generation, 2u);
  EXPECT_THAT(EventTexts(s.job, Reason::kNone),
              Contains("had exited with 0 and restart with the gang: rank "
                       "0 (chief 0 on a)"));
}

TEST(EndingTest, OutOfTriesTheRanksCodeIsTheJobs) {
  JobSpec spec =
      ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 1)});
  spec.restart_budget = 0;
  Scene s(spec);
  s.Run({"a", "b"});
  s.Exited(0, Code(0));
  s.Exited(1, Code(7));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.exit_code, 7);
}

TEST(EndingTest, NodeWhoseRanksAreDoneIsNeededNoMore) {
  Scene s = Running();
  s.Exited(0, Code(0));
  s.Settle();
  s.view.nodes["a"].state = NodeState::kLost;
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Exited(1, Code(0));
  s.Stopped("b");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
}

TEST(EndingTest, JobThatWaitsForARankSaysSo) {
  Scene s = Running();
  s.Exited(0, Code(0));
  s.Settle();
  s.Advance(59s);
  s.Settle();
  EXPECT_THAT(EventTexts(s.job, Reason::kNoProgress), IsEmpty());
  s.Advance(1s);
  s.Settle();
  s.Advance(1min);
  s.Settle();
  EXPECT_THAT(EventTexts(s.job, Reason::kNoProgress),
              ElementsAre("rank 0 (chief 0 on a) exited with 0 over a minute "
                          "ago; the job ends when these have: rank 1 (worker 0 "
                          "on b)"));
}

TEST(EndingTest, DrainedNodeWhoseRanksAreDoneIsNotLeft) {
  Scene s = Running();
  Drain drain;
  drain.requester = "user/ann";
  drain.time = s.now.wall;
  drain.grace = 30s;
  s.Exited(0, Code(0));
  s.Settle();
  s.view.nodes["a"].drain = drain;
  s.Advance(1min);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
}

TEST(EndingTest, WhoStillRunsAfterTheChiefIsTold) {
  Scene s = NativeWithChief();
  s.Exited(0, Code(0));
  s.Settle();
  EXPECT_THAT(EventTexts(s.job, Reason::kRanksStopped),
              ElementsAre("still running; stopped in 5 m 00 s unless they "
                          "end: rank 1 (worker 0 on b)"));
  s.Exited(1, Victim(Signal(SIGTERM)));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
  EXPECT_THAT(EventTexts(s.job, Reason::kRanksStopped).back(),
              "stopped: rank 1 (worker 0 on b): killed by SIGTERM");
}

TEST(EndingTest, FailureAfterTheChiefsEndIsAnEvent) {
  Scene s = NativeWithChief();
  s.Exited(0, Code(0));
  s.Settle();
  s.Exited(1, Code(3));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
  EXPECT_THAT(EventTexts(s.job, Reason::kRankFailedLate),
              ElementsAre("failed after the job had succeeded; the job stays "
                          "successful: rank 1 (worker 0 on b): exit code 3"));
}

// What an older version stored has no rule.
TEST(EndingTest, StoredJobWithoutRuleEndsWithTheChief) {
  Scene s = Running();
  s.job.spec.end_with = EndWith::kUnspecified;
  s.Exited(0, Code(0));
  s.Settle();
  EXPECT_EQ(s.job.outcome, JobState::kSucceeded);
}

TEST(EndingTest, DecidingRanksSuccessFinishesTheJob) {
  Scene s = NativeWithChief();
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

TEST(EndingTest, WorkersSuccessAloneDecidesNothing) {
  Scene s = Running();
  s.Exited(1, Code(0));
  s.Gang("b").phase = GangPhase::kStopped;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  EXPECT_THAT(s.job.holds, SizeIs(2));
}

TEST(EndingTest, ChiefsSuccessCountsWhileParameterServersRun) {
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

TEST(EndingTest, MaxRunningTimeCountsFromTheFirstRunning) {
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

TEST(EndingTest, MaxRunningTimeEndsAJobThatIsBetweenTwoAttempts) {
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

TEST(EndingTest, SuccessWinsOverALimitThatIsOverAtTheSameTime) {
  JobSpec spec = NativeSpec("j", 2);
  spec.max_running_time = 10s;
  Scene s(spec);
  s.Run({"a", "b"});
  s.Advance(11s);
  s.Exited(0, Code(0));
  s.Exited(1, Code(0));
  s.Settle();
  EXPECT_EQ(s.job.outcome, JobState::kSucceeded);
}

TEST(EndingTest, FinishingWaitsForEveryNodeOrItsLoss) {
  Scene s = NativeWithChief();
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

TEST(EndingTest, FailedJobFinishesWithItsOwnCause) {
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

TEST(EndingTest, FinalJobsNeverChange) {
  Scene s = NativeWithChief();
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

TEST(EndingTest, CancelDoesNotUndoAnEndThatIsUnderWay) {
  Scene s = NativeWithChief();
  s.Exited(0, Code(0));
  s.Settle();
  s.job = Cancel(s.job, "user/ann", s.now);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
}

}  // namespace
}  // namespace lockstep::server
