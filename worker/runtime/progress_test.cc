#include "worker/runtime/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace lockstep::worker::runtime {
namespace {

TEST(ProgressTest, ValuesKeepTheirNamesAndStayFinite) {
  auto progress = *Progress::Create("", 0, 1);
  progress->SetValue("accuracy", 0.5);
  progress->SetValue("accuracy", 0.9);
  progress->SetValue("accuracy", std::nan(""));
  ASSERT_EQ(progress->counters().values.size(), 1u);
  EXPECT_EQ(progress->counters().values[0].second, 0.9);
  for (int i = 0; i < 40; ++i) progress->SetValue(std::to_string(i), i);
  EXPECT_EQ(progress->counters().values.size(), task::kMaxReportedValues);
}

TEST(ProgressTest, BusyIsWithoutTheWaitForALateRank) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  auto progress = *Progress::Create("", 0, 1);
  progress->Enter(task::RankPhase::kAllReduce);
  // What is longer than the phase so far is cut to it.
  progress->HoldBack(seconds(0), milliseconds(50));
  EXPECT_EQ(progress->counters().allreduce_busy_seconds, 0);
  progress->SettleHeldBack(seconds(9));
  EXPECT_NEAR(progress->counters().allreduce_busy_seconds, 0.05, 1e-9);
  progress->CountBusy(milliseconds(25));
  EXPECT_NEAR(progress->counters().allreduce_busy_seconds, 0.075, 1e-9);
}

TEST(ProgressTest, LagFollowsWithinSomeSteps) {
  using std::chrono::milliseconds;
  auto progress = *Progress::Create("", 0, 1);
  progress->CountLag(milliseconds(10));
  EXPECT_NEAR(progress->counters().straggler_lag_seconds, 0.01, 1e-9);
  progress->CountLag(milliseconds(-10));
  EXPECT_NEAR(progress->counters().straggler_lag_seconds, 0.008, 1e-9);
  for (int i = 0; i < 100; ++i) progress->CountLag(milliseconds(-10));
  EXPECT_NEAR(progress->counters().straggler_lag_seconds, -0.01, 1e-4);
}

TEST(ProgressTest, CheckpointsAndInputAreShown) {
  auto progress = *Progress::Create("", 0, 1);
  progress->CountCheckpoint(7, 100);
  progress->CountCheckpoint(9, 50);
  progress->CountCheckpointFailure();
  progress->CountCheckpointTime(task::CheckpointPhase::kFsync,
                                std::chrono::milliseconds(250));
  progress->CountCheckpointTime(task::CheckpointPhase::kFsync,
                                std::chrono::milliseconds(500));
  progress->SetInput({.bytes = 5, .queue_depth = 3});
  const task::RankCounters& c = progress->counters();
  EXPECT_EQ(c.checkpoint_bytes, 150u);
  EXPECT_EQ(c.last_checkpoint_step, 9);
  EXPECT_EQ(c.checkpoint_failures, 1u);
  EXPECT_EQ(c.checkpoint_seconds[2], 0.75);
  EXPECT_EQ(c.input.queue_depth, 3u);
}

}  // namespace
}  // namespace lockstep::worker::runtime
