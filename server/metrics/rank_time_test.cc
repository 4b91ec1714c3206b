#include "server/metrics/rank_time.h"

#include <gtest/gtest.h>

#include "server/core/testing.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// Two ranks of which the test says what they do.
class RankTimeTest : public testing::Test {
 protected:
  RankTimeTest() : time_(Queued()) {}

  static Job Queued() {
    Job job;
    job.spec = NativeSpec("j", 2);
    job.state = JobState::kQueued;
    return job;
  }
  void Enter(JobState state) {
    job_.state = state;
    time_.Take(job_, Stalled(), redo_until_);
  }
  std::optional<Standstill> Stalled() const {
    if (!stalled_) return std::nullopt;
    return Standstill{beyond_ + 5s, beyond_};
  }
  void Run() {
    job_.generation = ++generation_;
    job_.tasks.clear();
    for (int32_t rank : {0, 1}) {
      RankStatus status;
      status.rank = rank;
      job_.tasks.emplace_back().ranks = {status};
      pages_[rank] = RankProgress();
      pages_[rank].phase = "compute";
    }
    Enter(JobState::kPreparing);
    job_.start_time = WallTime(1s);
    Enter(JobState::kRunning);
  }
  // Its limit of 5 s passed a second ago.
  void RunIntoAStall() {
    Run();
    Look();
    Pass(6s);
    stalled_ = true;
    beyond_ = 1s;
    Look();
  }
  void Pass(Duration passed) {
    time_.Pass(passed);
    wall_ += passed;
  }
  void Look() {
    for (int32_t rank : {0, 1}) time_.TakePage(rank, pages_[rank]);
    time_.Take(job_, Stalled(), redo_until_);
  }
  double Of(TimeClass time_class) const { return time_.seconds(time_class); }
  void ExpectAddsUp() const {
    double sum = 0;
    for (size_t i = 0; i < kTimeClasses; ++i) {
      sum += Of(static_cast<TimeClass>(i));
    }
    EXPECT_NEAR(sum, 2 * ToSeconds(wall_), 1e-9);
  }

  Job job_ = Queued();
  RankTime time_;
  RankProgress pages_[2];
  Generation generation_ = 0;
  Duration wall_{};
  bool stalled_ = false;
  Duration beyond_{};
  int64_t redo_until_ = 0;
};

TEST_F(RankTimeTest, TheWayToTheFirstStepIsInParts) {
  Pass(3s);
  Enter(JobState::kPreparing);
  Pass(2s);
  job_.cluster = ClusterSpec();
  Enter(JobState::kForming);
  Pass(1s);
  Run();
  Pass(4s);
  for (RankProgress& page : pages_) page.phases.other = 4;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kQueued), 6);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kPreparing), 4);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kStarting), 2 + 8);
  ExpectAddsUp();
}

TEST_F(RankTimeTest, PhasesAreCountedAsThePagesSay) {
  Run();
  Pass(10s);
  pages_[0].committed_step = pages_[1].committed_step = 5;
  pages_[0].phases = {.input = 1,
                      .compute = 5,
                      .allreduce = 2,
                      .straggler_wait = 1,
                      .optimizer = 1};
  pages_[1].phases = {
      .compute = 4, .checkpoint = 2, .evaluation = 2, .other = 1.5};
  Look();
  pages_[1].phases.other += 1;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kInput), 1);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 6 + 4);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCommunication), 2);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kStragglerWait), 1);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCheckpoint), 2);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kEvaluation), 2);
  // Other, before its first step and after it; 0.5 s waits for a page.
  EXPECT_DOUBLE_EQ(Of(TimeClass::kStarting), 1.5);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kUnknown), 0.5);
  ExpectAddsUp();
}

TEST_F(RankTimeTest, CompilingHasItsClass) {
  Run();
  Pass(4s);
  for (RankProgress& page : pages_) page.phases = {.other = 1, .compile = 3};
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompiling), 6);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kStarting), 2);
  // The job fails while it compiles again, for a new shape.
  for (RankProgress& page : pages_) {
    page.committed_step = 9;
    page.phase = "compile";
  }
  Look();
  Pass(2s);
  job_.failing = Cause{Reason::kRankExit, ""};
  Enter(JobState::kRunning);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompiling), 6 + 4);
  ExpectAddsUp();
}

TEST_F(RankTimeTest, ARecoveryHasItsClassAndNewPages) {
  Run();
  for (TaskStatus& task : job_.tasks) task.ranks[0].recoverable = true;
  Pass(2s);
  for (RankProgress& page : pages_) page.phases.compute = 2;
  Look();
  // Rank 1 is replaced, in one decision with the report of its end.
  job_.recovery = 1;
  job_.tasks[1].ranks[0].restarts = 1;
  Enter(JobState::kRunning);
  Pass(3s);
  job_.tasks[0].ranks[0].recovery = job_.tasks[1].ranks[0].recovery = 1;
  Enter(JobState::kRunning);
  Pass(1s);
  pages_[0].phases.compute = 3;
  pages_[1].phases = {.compute = 1};
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kRecovering), 6);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 4 + 2);
  ExpectAddsUp();
}

// A short phase that ended beside a long one that has not gets no time of it.
TEST_F(RankTimeTest, ARunningPhaseWaitsForItsEnd) {
  Run();
  Pass(1s);
  for (RankProgress& page : pages_) page.phases.input = 0.4;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kInput), 0.8);
  Pass(1s);
  Look();
  Pass(1s);
  for (RankProgress& page : pages_) page.phases.compute = 2.4;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kInput), 0.8);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 4.8);
  // The job fails within a phase, which the last page named.
  Pass(1s);
  job_.failing = Cause{Reason::kRankExit, ""};
  Enter(JobState::kRunning);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 4.8 + 2);
  EXPECT_NEAR(Of(TimeClass::kUnknown), 0.4, 1e-9) << "before it joined";
  ExpectAddsUp();
}

// A page may be a little newer than the time that was seen to pass.
TEST_F(RankTimeTest, ANewerPageIsCountedOnceItsTimeHasPassed) {
  Run();
  Pass(1s);
  for (RankProgress& page : pages_) page.phases.compute = 1.5;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 2);
  Pass(1s);
  for (RankProgress& page : pages_) page.phases.input = 0.5;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute) + Of(TimeClass::kInput), 4);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 3);
  ExpectAddsUp();
}

TEST_F(RankTimeTest, ALongPhaseIsCountedWhenItsPageSaysSo) {
  Run();
  pages_[0].committed_step = pages_[1].committed_step = 5;
  for (int i = 0; i < 30; ++i) {
    Pass(1s);
    Look();
  }
  for (RankProgress& page : pages_) page.phases.checkpoint = 30;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCheckpoint), 60);
  ExpectAddsUp();
}

TEST_F(RankTimeTest, WhatHasNotJoinedIsUnknown) {
  Run();
  pages_[1].phase.clear();
  Pass(5s);
  pages_[0].phases.compute = 5;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 5);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kUnknown), 5);
  ExpectAddsUp();
}

TEST_F(RankTimeTest, StalledTimeIsNothingElse) {
  RunIntoAStall();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kUnknown), 10) << "up to the limit";
  Pass(19s);
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kStalled), 2 * 18) << "2 s may be its end";
  // It goes on after 25.2 s, and that is seen 0.8 s later.
  Pass(1s);
  stalled_ = false;
  for (RankProgress& page : pages_) {
    page.phases.compute = 25.2;
    page.phases.input = 0.3;
  }
  Look();
  Pass(5s);
  for (RankProgress& page : pages_) page.phases.compute = 30.7;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kUnknown), 10);
  EXPECT_NEAR(Of(TimeClass::kStalled), 2 * (1 + 19 + 0.2), 1e-9);
  EXPECT_NEAR(Of(TimeClass::kInput), 2 * 0.3, 1e-9);
  EXPECT_NEAR(Of(TimeClass::kCompute), 2 * 5.5, 1e-9);
  ExpectAddsUp();
}

// Pages come 0.8 s late, at each look.
TEST_F(RankTimeTest, AStallIsNotLongerWherePagesComeLate) {
  Run();
  Pass(800ms);
  for (int second = 1; second <= 4; ++second) {
    Pass(1s);
    for (RankProgress& page : pages_) page.phases.compute = second;
    Look();
  }
  // After 4 s, which ended 0.8 s ago, they stand still, for 12 s.
  for (RankProgress& page : pages_) page.phase = "other";
  Pass(5200ms);
  stalled_ = true;
  beyond_ = 1s;
  Look();
  Pass(6s);
  Look();
  Pass(1s);
  stalled_ = false;
  for (RankProgress& page : pages_) {
    page.phase = "input";
    page.phases.other = 12;
  }
  Look();
  EXPECT_NEAR(Of(TimeClass::kUnknown), 2 * 5, 1e-9);
  EXPECT_NEAR(Of(TimeClass::kStalled), 2 * 7, 1e-9);
  Pass(500ms);
  for (RankProgress& page : pages_) page.phases.input = 1.5;
  Look();
  EXPECT_NEAR(Of(TimeClass::kInput), 2 * 1.5, 1e-9);
  ExpectAddsUp();
}

// The page of each rank comes with its host's report.
TEST_F(RankTimeTest, AStallEndsForEachRankWithItsPage) {
  RunIntoAStall();
  Pass(19s);
  Look();
  // Both go on after 25.2 s.
  Pass(1s);
  stalled_ = false;
  pages_[0].phases = {.input = 0.3, .compute = 25.2};
  Look();
  Pass(1s);
  pages_[0].phases.compute = 26.7;
  pages_[1].phases = {.input = 0.3, .compute = 25.2};
  Look();
  Pass(1s);
  pages_[0].phases.compute = pages_[1].phases.compute = 27.7;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kUnknown), 10);
  EXPECT_NEAR(Of(TimeClass::kInput), 2 * 0.3, 1e-9);
  EXPECT_NEAR(Of(TimeClass::kStalled) + Of(TimeClass::kCompute),
              2 * (28 - 5 - 0.3), 1e-9);
  EXPECT_NEAR(Of(TimeClass::kStalled), 2 * (1 + 19 + 0.2), 1e-9);
  ExpectAddsUp();
}

TEST_F(RankTimeTest, AStallIsOverForRanksWhosePagesDoNotTell) {
  Run();
  // Rank 0 has not joined. Rank 1 is in a phase that takes long.
  pages_[0].phase.clear();
  pages_[1].phase = "evaluation";
  Look();
  Pass(6s);
  stalled_ = true;
  beyond_ = 1s;
  Look();
  Pass(4s);
  stalled_ = false;
  Look();
  for (int second = 0; second < 100; ++second) {
    Pass(1s);
    Look();
  }
  pages_[1].phases.evaluation = 110;
  Look();
  EXPECT_NEAR(Of(TimeClass::kStalled), 2 * 5, 2 * 2);
  EXPECT_NEAR(Of(TimeClass::kEvaluation), 100, 2);
  EXPECT_NEAR(Of(TimeClass::kUnknown), 2 * 5 + 100, 2);
  ExpectAddsUp();
}

TEST_F(RankTimeTest, AFailureCostsRecoveryAndRedoneSteps) {
  Run();
  Pass(5s);
  for (RankProgress& page : pages_) {
    page.phases.compute = 5;
    page.committed_step = 4;
  }
  Look();
  job_.failing = Cause{Reason::kRankExit, ""};
  Enter(JobState::kRunning);
  Pass(2s);
  job_.failing.reset();
  redo_until_ = 4;
  Run();
  // Its first step is one that was done, which is known at the step's end.
  Pass(3s);
  for (RankProgress& page : pages_) page.phases = {.compute = 2, .other = 1};
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 10);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kStarting), 0);
  for (RankProgress& page : pages_) page.committed_step = 4;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kRecovering), 4);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kRedone), 4);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kStarting), 2);
  Pass(1s);
  for (RankProgress& page : pages_) {
    page.phases.compute = 3;
    page.committed_step = 5;
  }
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kRedone), 4);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 12);
  ExpectAddsUp();
}

// The time of ranks that there are not is no time.
TEST_F(RankTimeTest, AGangMayHaveFewerRanksThanItsJob) {
  job_.generation = 1;
  job_.tasks.emplace_back().ranks.emplace_back();
  Enter(JobState::kPreparing);
  Pass(10s);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kPreparing), 10);
}

TEST_F(RankTimeTest, ARankThatHasEndedIsIdle) {
  Run();
  Pass(4s);
  RankStatus& rank = job_.tasks[1].ranks[0];
  rank.exit = ExitStatus();
  rank.progress.phase = "finished";
  rank.progress.phases.compute = 4;
  time_.Take(job_, std::nullopt, 0);
  Pass(6s);
  pages_[0].phases.compute = 10;
  time_.TakePage(0, pages_[0]);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 14);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kIdle), 6);
  ExpectAddsUp();
}

TEST_F(RankTimeTest, WhatWasNotSeenIsNotCounted) {
  Run();
  // As a coordinator that has just started.
  RankTime late(job_);
  late.Pass(1s);
  for (RankProgress& page : pages_) page.phases.compute = 1000;
  for (int32_t rank : {0, 1}) late.TakePage(rank, pages_[rank]);
  late.Pass(1s);
  for (RankProgress& page : pages_) page.phases.compute = 1001;
  for (int32_t rank : {0, 1}) late.TakePage(rank, pages_[rank]);
  EXPECT_DOUBLE_EQ(late.seconds(TimeClass::kUnknown), 2);
  EXPECT_DOUBLE_EQ(late.seconds(TimeClass::kCompute), 2);
}

}  // namespace
}  // namespace lockstep::server
