#include "server/metrics/rank_time.h"

#include <gtest/gtest.h>

#include "server/core/testing.h"

namespace lockstep::server {
namespace {

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
    time_.Take(job_, stalled_, redoes_);
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
  void Pass(Duration passed) {
    time_.Pass(passed);
    wall_ += passed;
  }
  void Look() {
    for (int32_t rank : {0, 1}) time_.TakePage(rank, pages_[rank]);
    time_.Take(job_, stalled_, redoes_);
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
  bool redoes_ = false;
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

// What the pages say is a little older than what has passed.
TEST_F(RankTimeTest, PhasesShareOutTheWallTime) {
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
  EXPECT_DOUBLE_EQ(Of(TimeClass::kInput), 1);
  EXPECT_NEAR(Of(TimeClass::kCompute), 6 + 4 / 0.95, 1e-9);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCommunication), 2);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kStragglerWait), 1);
  EXPECT_NEAR(Of(TimeClass::kCheckpoint), 2 / 0.95, 1e-9);
  EXPECT_NEAR(Of(TimeClass::kEvaluation), 2 / 0.95, 1e-9);
  EXPECT_NEAR(Of(TimeClass::kUnknown), 1.5 / 0.95, 1e-9);
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
  Run();
  Pass(5s);
  stalled_ = true;
  Look();
  Pass(20s);
  stalled_ = false;
  for (RankProgress& page : pages_) page.phases.compute = 25;
  Look();
  Pass(5s);
  for (RankProgress& page : pages_) page.phases.compute = 30;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kUnknown), 10) << "until it was seen";
  EXPECT_DOUBLE_EQ(Of(TimeClass::kStalled), 40);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 10);
  ExpectAddsUp();
}

TEST_F(RankTimeTest, AFailureCostsRecoveryAndRedoneSteps) {
  Run();
  Pass(5s);
  for (RankProgress& page : pages_) page.phases.compute = 5;
  Look();
  job_.failing = Cause{Reason::kRankExit, ""};
  Enter(JobState::kRunning);
  Pass(2s);
  job_.failing.reset();
  redoes_ = true;
  Run();
  Pass(3s);
  for (RankProgress& page : pages_) page.phases.compute = 3;
  Look();
  EXPECT_DOUBLE_EQ(Of(TimeClass::kCompute), 10);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kRecovering), 4);
  EXPECT_DOUBLE_EQ(Of(TimeClass::kRedone), 6);
  ExpectAddsUp();
}

TEST_F(RankTimeTest, ARankThatHasEndedIsIdle) {
  Run();
  Pass(4s);
  RankStatus& rank = job_.tasks[1].ranks[0];
  rank.exit = ExitStatus();
  rank.progress.phase = "finished";
  rank.progress.phases.compute = 4;
  time_.Take(job_, false, false);
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
