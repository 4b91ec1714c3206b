#include "worker/agent/readings/gpu_reclaims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::worker::agent {
namespace {

using devices::GpuProcess;
using devices::GpuReading;
using devices::GpuValue;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kGiB = int64_t{1} << 30;

class GpuReclaimsTest : public testing::Test {
 protected:
  // The GPUs 0 and 1, of which 0 has this reading.
  bool Read(int64_t used, std::vector<GpuProcess> processes = {}) {
    Pass();
    std::vector<GpuReading> readings(2);
    for (int32_t i = 0; i < 2; ++i) {
      readings[i].index = i;
      readings[i].Set(GpuValue::kMemoryUsed, static_cast<double>(kGiB));
      readings[i].processes.emplace();
    }
    readings[0].Set(GpuValue::kMemoryUsed, static_cast<double>(used));
    readings[0].processes = std::move(processes);
    return reclaims_.Take(gpus_, readings, now_.mono, now_);
  }
  void Pass() {
    now_.mono += std::chrono::seconds(1);
    now_.wall += std::chrono::seconds(1);
  }
  bool Hold(std::map<int32_t, JobName> held) {
    Pass();
    return reclaims_.Hold(held, now_);
  }
  // A rank of "j" held GPU 0 and has ended.
  void RunJob() {
    Read(kGiB);
    EXPECT_FALSE(Hold({{0, "j"}}));
    Read(40 * kGiB, {{100, 39 * kGiB}});
    EXPECT_THAT(reclaims_.All(), IsEmpty()) << "a rank holds it";
    EXPECT_TRUE(Hold({}));
  }

  const std::vector<Gpu> gpus_ = {{0, "GPU-a", "H100", 80 * kGiB},
                                  {1, "GPU-b", "H100", 80 * kGiB}};
  Time now_{};
  GpuReclaims reclaims_;
};

TEST_F(GpuReclaimsTest, AGpuIsFreeWhenItsMemoryIsBackAtItsBaseline) {
  RunJob();
  const WallTime ended = now_.wall;
  EXPECT_TRUE(reclaims_.Awaits({0}));
  EXPECT_FALSE(reclaims_.Awaits({1}));
  Read(40 * kGiB);
  EXPECT_FALSE(reclaims_.Awaits({0}));
  ASSERT_THAT(reclaims_.All(), SizeIs(1)) << "the other one is free";
  const GpuReclaim reclaim = reclaims_.All()[0];
  EXPECT_EQ(reclaim.index, 0);
  EXPECT_EQ(reclaim.job, "j");
  EXPECT_EQ(reclaim.since, ended);
  EXPECT_EQ(reclaim.memory_used_bytes, 40 * kGiB);
  EXPECT_EQ(reclaim.baseline_bytes, kGiB);
  Read(kGiB + GpuReclaims::kSlack + 1);
  EXPECT_THAT(reclaims_.All(), SizeIs(1));
  Read(kGiB + GpuReclaims::kSlack);
  EXPECT_THAT(reclaims_.All(), IsEmpty());
  // Its baseline did not rise.
  EXPECT_EQ(reclaims_.baselines().at("GPU-a"), kGiB);
}

TEST_F(GpuReclaimsTest, AGpuIsFreeWhenTheRanksProcessesAreGone) {
  Read(kGiB, {{7, std::nullopt}});  // A monitor of the site.
  EXPECT_FALSE(Hold({{0, "j"}}));
  EXPECT_TRUE(Hold({}));
  Read(kGiB, {{7, std::nullopt}, {100, 5}});
  ASSERT_THAT(reclaims_.All(), SizeIs(1));
  ASSERT_THAT(reclaims_.All()[0].processes, SizeIs(1));
  EXPECT_EQ(reclaims_.All()[0].processes[0].pid, 100);
  EXPECT_EQ(reclaims_.All()[0].processes[0].gpu_memory_bytes, 5);
  const WallTime first = now_.wall;
  Read(kGiB, {{7, std::nullopt}, {100, 5}});
  EXPECT_EQ(reclaims_.All()[0].processes[0].since, first);
  Read(kGiB, {{7, std::nullopt}});
  EXPECT_THAT(reclaims_.All(), IsEmpty());
}

TEST_F(GpuReclaimsTest, AReadingFromBeforeTheEndDoesNotCount) {
  RunJob();
  std::vector<GpuReading> old(1);
  old[0].Set(GpuValue::kMemoryUsed, static_cast<double>(kGiB));
  reclaims_.Take(gpus_, old, now_.mono - std::chrono::milliseconds(1), now_);
  EXPECT_TRUE(reclaims_.Awaits({0}));
  // Neither does one of a GPU that does not answer.
  old[0].up = false;
  Pass();
  reclaims_.Take(gpus_, old, now_.mono, now_);
  EXPECT_TRUE(reclaims_.Awaits({0}));
  // The next rank ends the wait.
  EXPECT_FALSE(Hold({{0, "k"}}));
  EXPECT_FALSE(reclaims_.Awaits({0}));
}

TEST_F(GpuReclaimsTest, ADriverThatTellsNothingKeepsNoGpu) {
  EXPECT_FALSE(Hold({{0, "j"}}));
  EXPECT_TRUE(Hold({}));
  std::vector<GpuReading> readings(1);
  Pass();
  EXPECT_FALSE(reclaims_.Take(gpus_, readings, now_.mono, now_));
  EXPECT_FALSE(reclaims_.Awaits({0}));
  EXPECT_THAT(reclaims_.All(), IsEmpty());
}

TEST_F(GpuReclaimsTest, TheNextDaemonKnowsTheBaseline) {
  EXPECT_TRUE(Read(2 * kGiB));
  EXPECT_FALSE(Read(3 * kGiB)) << "it only falls";
  EXPECT_TRUE(Read(kGiB));
  const std::string text = FormatBaselines(reclaims_.baselines(), "boot-1");
  EXPECT_THAT(ParseBaselines(text, "boot-2"), IsEmpty());
  EXPECT_THAT(ParseBaselines("boot-1\nGPU-a lots\n", "boot-1"), IsEmpty());
  reclaims_ = GpuReclaims(ParseBaselines(text, "boot-1"));
  Read(60 * kGiB);
  ASSERT_THAT(reclaims_.All(), SizeIs(1));
  EXPECT_EQ(reclaims_.All()[0].baseline_bytes, kGiB);
  Read(kGiB);
  EXPECT_THAT(reclaims_.All(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::worker::agent
