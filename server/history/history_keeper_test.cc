#include "server/history/history_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "server/history/history_test_util.h"

namespace lockstep::server {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

class HistoryKeeperTest : public testing::Test {
 protected:
  HistoryKeeperTest() {
    std::string dir = "/tmp/history-XXXXXX";
    EXPECT_NE(::mkdtemp(dir.data()), nullptr);
    dir_ = dir;
  }
  ~HistoryKeeperTest() override {
    RealFileSystem()->RemoveAll(dir_).IgnoreError();
  }

  std::unique_ptr<HistoryKeeper> Open(HistoryFileLimits disk = {}) {
    HistoryOptions options;
    options.disk = disk;
    options.work_interval = {};
    return std::make_unique<HistoryKeeper>(options, RealFileSystem(), dir_);
  }
  static void Run(int time, double cores, JobSnapshot* job,
                  HistoryKeeper* keeper) {
    for (int i = 0; i < time; ++i) {
      Pass(seconds(1), cores, 1, job);
      keeper->Look(ViewOf({*job}, job->time));
    }
  }
  static HistoryPlot Read(const JobSnapshot& job, HistoryKeeper* keeper,
                          size_t points = 1000) {
    return keeper->Read({job.job->spec.name, job.job->uid, *job.job->start_time,
                         job.time, std::nullopt, points});
  }
  static size_t Known(const HistoryPlot& plot) {
    const auto& line = plot.Of(JobSeries::kStepsPerSecond);
    return static_cast<size_t>(
        std::count_if(line.begin(), line.end(), IsKnown));
  }
  std::vector<std::string> Files() { return *RealFileSystem()->List(dir_); }

  std::string dir_;
};

TEST_F(HistoryKeeperTest, AnEndedJobIsReadFromItsFile) {
  JobSnapshot job = RunningJob("train", 2);
  auto keeper = Open();
  Run(100, 1, &job, keeper.get());
  keeper->Save();
  EXPECT_TRUE(Files().empty());
  keeper->Look(ViewOf({}, job.time + seconds(1)));
  keeper->Save();
  EXPECT_THAT(Files(), testing::ElementsAre("train.uid-train.json"));
  EXPECT_EQ(keeper->bytes(), 0U);
  EXPECT_GE(Known(Read(job, keeper.get())), 97U);
  // So does another coordinator.
  keeper = Open();
  const HistoryPlot plot = Read(job, keeper.get());
  EXPECT_GE(Known(plot), 97U);
  EXPECT_EQ(plot.ranks.size(), 2U);
}

TEST_F(HistoryKeeperTest, ARestartOfTheCoordinatorLosesLittle) {
  JobSnapshot job = RunningJob("train", 1);
  auto keeper = Open();
  Run(310, 1, &job, keeper.get());
  keeper->Save();
  EXPECT_EQ(Files().size(), 1U);
  keeper = Open();
  Run(100, 3, &job, keeper.get());
  const HistoryPlot plot = Read(job, keeper.get());
  EXPECT_FLOAT_EQ(plot.Of(JobSeries::kCpu)[100], 1);
  EXPECT_FLOAT_EQ(plot.Of(JobSeries::kCpu).back(), 3);
  // The end of the job keeps both parts.
  keeper->Look(ViewOf({}, job.time + seconds(1)));
  keeper->Save();
  const HistoryPlot ended = Read(job, keeper.get());
  EXPECT_FLOAT_EQ(ended.Of(JobSeries::kCpu)[100], 1);
  EXPECT_FLOAT_EQ(ended.Of(JobSeries::kCpu)[400], 3);
}

TEST_F(HistoryKeeperTest, TheCoordinatorsEndLosesNothing) {
  JobSnapshot job = RunningJob("train", 1);
  auto keeper = Open();
  Run(100, 1, &job, keeper.get());
  keeper->SaveAll(seconds(0));
  EXPECT_TRUE(Files().empty()) << "there was no time";
  keeper->SaveAll(seconds(60));
  keeper = Open();
  EXPECT_GE(Known(Read(job, keeper.get())), 97U);
}

TEST_F(HistoryKeeperTest, TheHistoryGoesWithItsJob) {
  JobSnapshot job = RunningJob("train", 2);
  auto keeper = Open();
  Run(100, 1, &job, keeper.get());
  keeper->SaveAll(seconds(10));
  ASSERT_EQ(Files().size(), 1u);
  keeper->Remove(job.job->uid);
  keeper->Save();
  EXPECT_TRUE(Files().empty());
  EXPECT_TRUE(Read(job, keeper.get()).empty());
  EXPECT_EQ(keeper->bytes(), 0u);
}

TEST_F(HistoryKeeperTest, ADamagedFileCountsAsNone) {
  JobSnapshot job = RunningJob("train", 1);
  auto keeper = Open();
  Run(10, 1, &job, keeper.get());
  keeper->Look(ViewOf({}, job.time + seconds(1)));
  keeper->Save();
  const std::string path = dir_ + "/train.uid-train.json";
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path, "{\"format\":1,").ok());
  // What an interrupted write leaves.
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(dir_ + "/x.tmp", "{").ok());
  keeper = Open();
  testing::internal::CaptureStdout();
  EXPECT_TRUE(Read(job, keeper.get()).empty());
  EXPECT_TRUE(Read(job, keeper.get()).empty());
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, testing::HasSubstr("train.uid-train.json: it is not"));
  EXPECT_EQ(log.find("history of job train"),
            log.rfind("history of job train"));
  EXPECT_THAT(Files(), testing::ElementsAre("train.uid-train.json"));
}

TEST_F(HistoryKeeperTest, OldAndSurplusFilesAreDeleted) {
  auto keeper = Open({hours(24 * 90), 20'000});
  JobSnapshot job;
  for (int i = 0; i < 20; ++i) {
    job = RunningJob(fmt::format("job-{:02}", i), 1);
    job.time += minutes(i);
    Run(60, 1, &job, keeper.get());
    keeper->Look(ViewOf({}, job.time + seconds(1)));
    keeper->Save();
  }
  EXPECT_LT(Files().size(), 20U);
  EXPECT_EQ(Files().back(), "job-19.uid-job-19.json");
  job = RunningJob("late", 1);
  job.time += hours(24 * 91);
  Run(10, 1, &job, keeper.get());
  keeper->Look(ViewOf({}, job.time + seconds(1)));
  keeper->Save();
  EXPECT_THAT(Files(), testing::ElementsAre("late.uid-late.json"));
}

TEST_F(HistoryKeeperTest, AFullDiskLosesNothingAtOnce) {
  bool full = true;
  HistoryOptions options;
  options.work_interval = {};
  options.space = [&] {
    return full ? ResourceExhausted("the disk is full") : OkStatus();
  };
  HistoryKeeper keeper(options, RealFileSystem(), dir_);
  JobSnapshot job = RunningJob("train", 1);
  Run(10, 1, &job, &keeper);
  keeper.Look(ViewOf({}, job.time + seconds(1)));
  keeper.Save();
  EXPECT_TRUE(Files().empty());
  EXPECT_GE(Known(Read(job, &keeper)), 7U);
  full = false;
  keeper.Look(ViewOf({}, job.time + seconds(20)));
  keeper.Save();
  EXPECT_EQ(Files().size(), 1U);
}

TEST_F(HistoryKeeperTest, ASpanIsTheLastPart) {
  JobSnapshot job = RunningJob("train", 1);
  auto keeper = Open();
  Run(120, 1, &job, keeper.get());
  const HistoryPlot plot =
      keeper->Read({"train", "uid-train", kBegin, job.time, seconds(30), 240});
  EXPECT_EQ(plot.points, 30U);
  EXPECT_EQ(plot.start, job.time - seconds(30));
  EXPECT_TRUE(keeper->Read({"x", "y", kBegin, job.time}).empty());
}

}  // namespace
}  // namespace lockstep::server
