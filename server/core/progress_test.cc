// The progress meter, and the bill.
#include "server/core/progress.h"

#include <gtest/gtest.h>

#include "server/core/bill.h"
#include "server/core/testing.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""s;

RankProgress At(int64_t committed, int64_t samples, int64_t total = 0) {
  RankProgress progress;
  progress.committed_step = committed;
  progress.samples = samples;
  progress.total_steps = total;
  return progress;
}

class ProgressMeterTest : public testing::Test {
 protected:
  ProgressMeterTest() { meter_.Reset(1); }
  void Take(int32_t rank, const RankProgress& progress, MonoTime now) {
    meter_.Take(rank, progress, {now, WallTime{now.time_since_epoch()} + 24h});
  }
  MonoTime now_{1h};
  ProgressMeter meter_;
};

TEST_F(ProgressMeterTest, NothingIsMeasuredAtFirst) {
  EXPECT_EQ(meter_.Info().steps_per_second, 0);
  EXPECT_FALSE(meter_.last_step_time());
  Take(0, At(500, 1000), now_);
  EXPECT_EQ(meter_.Info().steps_per_second, 0);
  EXPECT_FALSE(meter_.last_step_time()) << "when that was is not known";
}

TEST_F(ProgressMeterTest, RatesAreOfAllRanks) {
  for (int i = 0; i <= 4; ++i) {
    Take(1, At(i * 10, i * 100), now_);
    Take(0, At(i * 10, i * 100, 100), now_);
    now_ += 1s;
  }
  EXPECT_DOUBLE_EQ(meter_.Info().steps_per_second, 10);
  EXPECT_DOUBLE_EQ(meter_.Info().samples_per_second, 200);
  ASSERT_TRUE(meter_.Info().eta);
  EXPECT_DOUBLE_EQ(ToSeconds(*meter_.Info().eta), 6);
  EXPECT_EQ(meter_.last_step_time(), now_ - 1s);
}

TEST_F(ProgressMeterTest, FollowsTheChief) {
  for (int i = 1; i <= 4; ++i) {
    if (i < 3) Take(0, At(i * 10, i * 100, 100), now_);
    if (i == 3) meter_.Follow(1);
    Take(1, At(i * 10, i * 100, 100), now_);
    now_ += 1s;
  }
  EXPECT_EQ(meter_.Info().chief.committed_step, 40);
  EXPECT_DOUBLE_EQ(meter_.Info().steps_per_second, 10);
  // Rank 0 is back, and has no step yet.
  meter_.Follow(0);
  Take(0, At(-1, 0, 100), now_);
  EXPECT_EQ(meter_.Info().chief.committed_step, 40);
  now_ += 1s;
  Take(0, At(50, 10, 100), now_);
  EXPECT_EQ(meter_.Info().chief.committed_step, 50);
}

TEST_F(ProgressMeterTest, RateFollowsTheLastSeconds) {
  for (int i = 0; i < 100; ++i) {
    Take(0, At(i < 50 ? i : 50, i < 50 ? i : 50), now_);
    now_ += 1s;
  }
  EXPECT_EQ(meter_.Info().steps_per_second, 0) << "it stands still";
}

TEST_F(ProgressMeterTest, AChiefThatIsReplacedMakesNoLeap) {
  for (int i = 0; i <= 2; ++i) {
    Take(0, At(1000 + i, (1000 + i) * 10), now_);
    now_ += 1s;
  }
  Take(0, At(-1, 0), now_);
  Take(0, At(1003, 10), now_ + 1s);
  EXPECT_NEAR(meter_.Info().steps_per_second, 3.0 / 4, 1e-9);
}

// A restart: the page begins at 0, then jumps to the restored step.
TEST_F(ProgressMeterTest, RestoredStepsWereNotMadeNow) {
  Take(0, At(0, 0, 10000), now_);
  Take(0, At(0, 0, 10000), now_ + 1s);
  Take(0, At(1600, 0, 10000), now_ + 2s);
  EXPECT_EQ(meter_.Info().steps_per_second, 0);
  Take(0, At(1610, 100, 10000), now_ + 3s);
  EXPECT_FALSE(meter_.Info().eta);
  Take(0, At(1620, 200, 10000), now_ + 4s);
  EXPECT_DOUBLE_EQ(meter_.Info().steps_per_second, 10);
  EXPECT_DOUBLE_EQ(meter_.Info().samples_per_second, 100);
  ASSERT_TRUE(meter_.Info().eta);
  EXPECT_DOUBLE_EQ(ToSeconds(*meter_.Info().eta), 838);
}

TEST_F(ProgressMeterTest, SaysWhenItWasHeard) {
  EXPECT_FALSE(meter_.Info().time);
  Take(0, At(1, 1), now_);
  Take(1, At(1, 1), now_ + 3s);
  EXPECT_EQ(meter_.Info().time, WallTime{25h});
  Take(0, At(1, 1), now_ + 4s);
  EXPECT_EQ(meter_.Info().time, WallTime{25h + 4s});
  meter_.Reset(2);
  EXPECT_FALSE(meter_.Info().time);
}

TEST_F(ProgressMeterTest, NothingLeftIsNoTimeLeft) {
  Take(0, At(9, 9, 10), now_);
  Take(0, At(10, 10, 10), now_ + 1s);
  EXPECT_EQ(meter_.Info().eta, Duration{});
}

TEST_F(ProgressMeterTest, NextGenerationStartsAnew) {
  Take(0, At(1, 1), now_);
  Take(0, At(9, 9), now_ + 1s);
  meter_.Reset(1);
  EXPECT_GT(meter_.Info().steps_per_second, 0);
  meter_.Reset(2);
  EXPECT_EQ(meter_.Info().steps_per_second, 0);
  EXPECT_EQ(meter_.Info().generation, 2u);
}

TEST(BillTest, CountsFromTheHoldToTheRelease) {
  Scene s(NativeSpec("j", 2));
  for (RoleSpec& role : s.job.spec.roles.Edit())
    role.resources = {2, 0, 1, "T4"};
  s.Put({"a", "b"});
  for (Hold& hold : s.job.holds) hold.gpus = {0};
  Prices prices;
  prices.core_hour = 1;
  prices.gpu_hours = {{"V100", 100}, {"T4", 10}};
  s.Advance(1h);
  Bill bill = BillAt(s.job, prices, s.now.wall);
  EXPECT_DOUBLE_EQ(bill.core_seconds, 4 * 3600);
  EXPECT_DOUBLE_EQ(bill.gpu_seconds, 2 * 3600);
  EXPECT_DOUBLE_EQ(bill.cost, 4 + 20);
  EXPECT_EQ(bill.currency, "USD");
  ReleaseHolds(&s.job, {{"a", {1, s.now.wall}}});
  s.Advance(1h);
  bill = BillAt(s.job, prices, s.now.wall);
  EXPECT_DOUBLE_EQ(bill.core_seconds, 6 * 3600);
  EXPECT_DOUBLE_EQ(bill.cost, 6 + 30);
}

TEST(BillTest, MlUnitsAreThoseOfTheMachines) {
  Scene s(NativeSpec("j", 3));
  EXPECT_EQ(BillAt(s.job, {}, s.now.wall).ml_units, std::nullopt);
  for (RoleSpec& role : s.job.spec.roles.Edit()) {
    role.resources = {2, 0, 1, "T4"};
    role.machine = MachineType{"n1", {8, 0, 1, "T4"}, 1.5};
  }
  EXPECT_EQ(MlUnitsPerHour(s.job.spec), 4.5);
  Prices prices;
  prices.core_hour = 1;
  prices.gpu_hours = {{"T4", 10}};
  // What the name promises is billed, not the two cores that it is placed on.
  EXPECT_DOUBLE_EQ(CostPerHour(s.job.spec, prices), 3 * (8 + 10));
  EXPECT_EQ(BillAt(s.job, {}, s.now.wall).ml_units, 0);
  s.Put({"a", "b", "b"});
  s.Advance(2h);
  EXPECT_DOUBLE_EQ(BillAt(s.job, {}, s.now.wall).ml_units.value(), 9);
  const Bill bill = BillAt(s.job, prices, s.now.wall);
  EXPECT_DOUBLE_EQ(bill.core_seconds, 3 * 2 * 7200);
  EXPECT_DOUBLE_EQ(bill.cost - bill.gpu_seconds / 3600 * 10, 3 * 8 * 2);
  ReleaseHolds(&s.job, {{"b", {1, s.now.wall}}});
  s.Advance(1h);
  EXPECT_DOUBLE_EQ(BillAt(s.job, {}, s.now.wall).ml_units.value(), 9 + 1.5);
  // Of a job with a machine whose price is not known, nothing is said.
  s.job.bill = {};
  s.job.spec.roles.Edit()[0].machine->ml_units_per_hour.reset();
  EXPECT_EQ(MlUnitsPerHour(s.job.spec), std::nullopt);
  EXPECT_EQ(BillAt(s.job, {}, s.now.wall).ml_units, std::nullopt);
}

// Where any GPU was asked for, the one that was held counts.
TEST(BillTest, GpusCostWhatTheirModelsDo) {
  JobSpec spec = NativeSpec("j", 2);
  spec.roles.Edit()[0].resources = {0, 0, 1, ""};
  spec.roles.Edit()[1].resources = {0, 0, 1, "T4"};
  Scene s(spec);
  s.Put({"a", "b"});
  s.job.tasks[0].gpus = {3};
  s.job.tasks[1].gpus = {0};
  s.job.holds[0].gpus = {3};
  s.job.holds[1].gpus = {0};
  s.Advance(1h);
  Prices prices;
  prices.core_hour = 0;
  prices.gpu_hour = 1;
  prices.gpu_hours = {{"T4", 10}, {"A100", 50}, {"A100-SXM4-80GB", 60}};
  EXPECT_DOUBLE_EQ(BillAt(s.job, prices, s.now.wall).cost, 1 + 10)
      << "nobody knows what a has";
  const GpuModelOf models = [](const NodeName& node, int32_t gpu) {
    return node == "a" && gpu == 3 ? "NVIDIA A100-SXM4-80GB" : "";
  };
  EXPECT_DOUBLE_EQ(BillAt(s.job, prices, s.now.wall, models).cost, 60 + 10);
  // An attempt before, of twice the time, on a T4 and another T4.
  Attempt attempt;
  attempt.tasks = s.job.tasks;
  attempt.tasks[0].node = "c";
  attempt.start_time = s.now.wall - 3h;
  attempt.end_time = s.now.wall - 1h;
  s.job.attempts = {attempt};
  s.job.bill.gpu_seconds = 4 * 3600;
  EXPECT_NEAR(BillAt(s.job, prices, s.now.wall, models).cost,
              60 + 10 + 2 * (1 + 10), 1e-9);
}

TEST(BillTest, ReleaseIsUpToTheGeneration) {
  Scene s(NativeSpec("j", 1));
  s.Put({"a"});
  s.job.holds.push_back(s.job.holds[0]);
  s.job.holds[1].generation = 5;
  ReleaseHolds(&s.job, {{"a", {4, s.now.wall}}});
  ASSERT_EQ(s.job.holds.size(), 1u);
  EXPECT_EQ(s.job.holds[0].generation, 5u);
  ReleaseHolds(&s.job, {{"b", {9, s.now.wall}}});
  EXPECT_EQ(s.job.holds.size(), 1u);
}

TEST(BillTest, JobThatEndedKeepsItsPrice) {
  Job job;
  job.state = JobState::kSucceeded;
  job.bill = {3600, 0, 7, "EUR"};
  EXPECT_EQ(BillAt(job, Prices{}, {}), job.bill);
}

TEST(BillTest, ClockThatWentBackCostsNothing) {
  Scene s(NativeSpec("j", 1));
  s.Put({"a"});
  EXPECT_EQ(BillAt(s.job, Prices{}, s.now.wall - 1h).core_seconds, 0);
}

}  // namespace
}  // namespace lockstep::server
