#include "server/history/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "server/history/history_test_util.h"

namespace lockstep::server {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

HistoryPlot PlotOf(const History& history, const std::string& uid,
                   WallTime from, WallTime to, size_t points) {
  PlotBuilder builder(from, to, points);
  history.AddTo(uid, &builder);
  return builder.Take();
}

// A job whose CPU use is the number of the second.
TEST(HistoryTest, RecentPointsAreSecondsAndOlderOnesMeans) {
  History history;
  JobSnapshot job = RunningJob("train", 1);
  constexpr int kSeconds = 3600;
  for (int i = 0; i < kSeconds; ++i) {
    Pass(seconds(1), i, 1, &job);
    history.Look(ViewOf({job}, job.time));
  }
  const WallTime now = job.time;
  const HistoryPlot recent =
      PlotOf(history, "uid-train", now - seconds(60), now, 60);
  const HistoryPlot::Line& cpu = recent.Of(JobSeries::kCpu);
  for (int i = 0; i < 60; ++i) {
    EXPECT_FLOAT_EQ(cpu[static_cast<size_t>(i)],
                    static_cast<float>(kSeconds - 61 + i));
  }
  // Half an hour ago there are only means over 15 s.
  const HistoryPlot older =
      PlotOf(history, "uid-train", now - minutes(31), now - minutes(30), 60);
  std::set<float> different(older.Of(JobSeries::kCpu).begin(),
                            older.Of(JobSeries::kCpu).end());
  EXPECT_LE(different.size(), 5U);
  EXPECT_NEAR(older.Of(JobSeries::kCpu)[0], kSeconds - 31 * 60, 15);
  // A rank's value is exact to 0.4 %.
  EXPECT_NEAR(recent.ranks.at(0)[0][0], cpu[0], cpu[0] * 0.004F);
}

TEST(HistoryTest, SpansAndMemoryOfOneJobAreBounded) {
  History history;
  JobSnapshot job = RunningJob("train", 4);
  // Nine days, one sample in 5 minutes.
  for (int i = 0; i < 9 * 288; ++i) {
    Pass(minutes(5), 1, 1, &job);
    history.Look(ViewOf({job}, job.time));
  }
  EXPECT_LE(history.bytes(), BytesBound(0, 4));
  const auto oldest = history.OldestOf("uid-train");
  ASSERT_TRUE(oldest);
  EXPECT_LE(job.time - *oldest, hours(24 * 8));
  EXPECT_GE(job.time - *oldest, hours(24 * 7));
}

TEST(HistoryTest, TheStatedBoundHolds) {
  EXPECT_LE(BytesBound(0, 64), size_t{5} << 20);
  EXPECT_LE(BytesBound(kMaxValuesInHistory, kMaxRanksInHistory),
            size_t{19} << 20);
}

TEST(HistoryTest, AGapStaysEmpty) {
  History history;
  JobSnapshot job = RunningJob("train", 1);
  for (int i = 0; i < 10; ++i) {
    Pass(seconds(1), 1, 1, &job);
    history.Look(ViewOf({job}, job.time));
  }
  Pass(seconds(50), 1, 1, &job);
  history.Look(ViewOf({job}, job.time));
  const HistoryPlot plot =
      PlotOf(history, "uid-train", job.time - seconds(59), job.time, 59);
  EXPECT_TRUE(IsKnown(plot.Of(JobSeries::kMemory)[8]));
  EXPECT_FALSE(IsKnown(plot.Of(JobSeries::kMemory)[30]));
}

// A job that names another value each second may lose its own past, and takes
// no more memory.
TEST(HistoryTest, ChangingNamesAreBounded) {
  History history({size_t{1} << 20});
  JobSnapshot job = RunningJob("train", 1);
  for (int i = 0; i < 2000; ++i) {
    Pass(seconds(1), 1, 1, &job);
    job.progress->chief.values = {{fmt::format("v{}", i), 1.0}};
    history.Look(ViewOf({job}, job.time));
    ASSERT_LE(history.bytes(), size_t{1} << 20);
  }
}

TEST(HistoryTest, CheckpointsAreMarks) {
  History history;
  JobSnapshot job = RunningJob("train", 1);
  Pass(seconds(1), 1, 1, &job);
  history.Look(ViewOf({job}, job.time));
  Job next = *job.job;
  next.last_checkpoint = Checkpoint{1, 1, "", job.time, 1};
  job.job = std::make_shared<const Job>(next);
  Pass(seconds(1), 1, 1, &job);
  history.Look(ViewOf({job}, job.time));
  Pass(seconds(1), 1, 1, &job);
  history.Look(ViewOf({job}, job.time));
  EXPECT_THAT(PlotOf(history, "uid-train", kBegin, job.time, 3).checkpoints,
              testing::ElementsAre(kBegin + seconds(1)));
}

TEST(HistoryTest, AForgottenJobTakesNoMemory) {
  History history;
  JobSnapshot job = RunningJob("train", 1);
  history.Look(ViewOf({job}, job.time));
  EXPECT_GT(history.bytes(), 0U);
  history.Forget("uid-train");
  EXPECT_EQ(history.bytes(), 0U);
  EXPECT_TRUE(PlotOf(history, "uid-train", kBegin, kBegin + seconds(9), 9)
                  .ranks.empty());
}

// 500 jobs of 64 ranks: the memory stays under the cap, all jobs keep their
// newest points, and one look takes little time.
TEST(HistoryTest, ManyJobsShareTheMemory) {
  const HistoryLimits limits;
  History history(limits);
  CoordinatorView view;
  for (int i = 0; i < 500; ++i) {
    view.jobs.push_back({RunningJob(fmt::format("job-{}", i), 64), {}});
  }
  Duration longest{};
  // A new block of the first level each time, and then the last minute.
  for (int i = 0; i < 120; ++i) {
    for (auto& job : view.jobs) {
      Pass(i < 60 ? minutes(2) : Duration(seconds(1)), 1, 1, &job.snapshot);
    }
    view.time.wall = view.jobs[0].snapshot.time;
    const MonoTime begin = MonotonicNow();
    history.Look(view);
    longest = std::max(longest, MonotonicNow() - begin);
    ASSERT_LE(history.bytes(), limits.bytes);
  }
  const WallTime now = view.time.wall;
  size_t fine = 0, oldest_minutes = 0;
  for (const auto& entry : view.jobs) {
    const Job& job = *entry.snapshot.job;
    const HistoryPlot plot =
        PlotOf(history, job.uid, now - seconds(60), now, 60);
    ASSERT_TRUE(IsKnown(plot.Of(JobSeries::kCpu)[58])) << job.spec.name;
    ASSERT_EQ(plot.ranks.size(), 64U);
    fine += static_cast<size_t>(plot.Has(JobSeries::kStepsPerSecond));
    oldest_minutes +=
        static_cast<size_t>((now - *history.OldestOf(job.uid)) / minutes(1));
  }
  EXPECT_EQ(fine, view.jobs.size());
  printf(
      "500 jobs x 64 ranks: %.0f MiB, slowest look %.1f ms, the oldest "
      "point is %zu minutes old on average\n",
      static_cast<double>(history.bytes()) / (1 << 20),
      ToSeconds(longest) * 1e3, oldest_minutes / view.jobs.size());
}

}  // namespace
}  // namespace lockstep::server
