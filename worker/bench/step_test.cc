// What `step` is told, and what is told of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "worker/bench/options.h"
#include "worker/bench/step_report.h"
#include "worker/bench/synthetic.h"

namespace lockstep::worker::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StepOptionsTest, CountsHaveUnits) {
  double count = 0;
  EXPECT_TRUE(ParseCount("25.6M", &count));
  EXPECT_DOUBLE_EQ(count, 25.6e6);
  EXPECT_TRUE(ParseCount("2g", &count));
  EXPECT_DOUBLE_EQ(count, 2e9);
  EXPECT_TRUE(ParseCount("17", &count));
  EXPECT_DOUBLE_EQ(count, 17);
  for (const char* wrong :
       {"", "M", "-1", "1Q", "1MM", "0", "inf", "nan", "1e999", "0x10", " 1"}) {
    EXPECT_FALSE(ParseCount(wrong, &count)) << wrong;
  }
}

TEST(StepOptionsTest, SlowRanks) {
  StepBenchTexts texts;
  StepBenchOptions options;
  texts.slow = "3=25";
  EXPECT_EQ(SettleSteps(texts, &options), "");
  EXPECT_EQ(options.slow_rank, 3);
  EXPECT_DOUBLE_EQ(options.slow_share, 0.25);
  for (const char* wrong : {"3", "=2", "3=", "-1=5", "x=5", "1=-5", "1=5x"}) {
    texts.slow = wrong;
    EXPECT_NE(SettleSteps(texts, &options), "") << wrong;
  }
}

TEST(StepOptionsTest, NoMoreTensorsThanParameters) {
  StepBenchTexts texts;
  texts.parameters = "5";
  StepBenchOptions options;
  EXPECT_EQ(SettleSteps(texts, &options), "");
  EXPECT_EQ(options.tensors, 5);
}

TEST(SyntheticTest, TensorsHaveAllParameters) {
  const auto tensors = SyntheticParameters(10, 3);
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].elements + tensors[1].elements + tensors[2].elements,
            10u);
}

TEST(SyntheticTest, OneWrongElementIsFound) {
  std::vector<float> sum(1000);
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] = 2 * (SyntheticGradient(0, i) + SyntheticGradient(1, i));
  }
  EXPECT_EQ(CountWrongGradients(sum, 2, 2, false, "shm"), 0u);
  EXPECT_EQ(CountWrongGradients(sum, 2, 1, false, "shm"), 1000u);
  sum[500] *= 1.001f;
  EXPECT_EQ(CountWrongGradients(sum, 2, 2, false, "shm"), 1u);
  EXPECT_EQ(CountWrongGradients(sum, 2, 2, true, "shm"), 0u);
}

// Over a hierarchy it is rounded once more (ReducerOptions::bf16_wire).
TEST(SyntheticTest, HowFarBfloat16MayBeOffDependsOnTheBackend) {
  const float sum = SyntheticGradient(0, 0) + SyntheticGradient(1, 0);
  const auto wrong = [&](double roundings, const char* backend) {
    const std::vector<float> reduced = {
        sum * static_cast<float>(1 + roundings / 256)};
    return CountWrongGradients(reduced, 2, 1, true, backend);
  };
  EXPECT_EQ(wrong(2.9, "hierarchical"), 0u);
  EXPECT_EQ(wrong(3.1, "hierarchical"), 1u);
  for (const char* backend : {"shm", "tcp", "self"}) {
    EXPECT_EQ(wrong(1.9, backend), 0u) << backend;
    EXPECT_EQ(wrong(2.9, backend), 1u) << backend;
  }
}

TEST(StepResultsTest, Percentiles) {
  std::vector<double> times;
  for (int i = 200; i >= 1; --i) times.push_back(i);
  const StepTimes summary = Summarize(times);
  EXPECT_DOUBLE_EQ(summary.p50, 100);
  EXPECT_DOUBLE_EQ(summary.p99, 198);
  EXPECT_DOUBLE_EQ(summary.mean, 100.5);
  EXPECT_DOUBLE_EQ(Summarize({3}).p99, 3);
  EXPECT_DOUBLE_EQ(Summarize({}).p50, 0);
}

StepResults Results() {
  StepResults r;
  r.ranks = 2;
  r.steps = 100;
  r.bytes = 100'000'000;
  r.reductions = 4;
  r.flops_per_second = 12e9;
  r.alone = {0.05, 0.06, 0.05};
  r.beside = {0.055, 0.06, 0.055};
  r.step = {0.0625, 0.08, 0.064};
  r.by_rank = {{0.05, 0.02, 0.004, 0.002}, {0.06, 0.02, 0.004, 0}};
  r.straggler = {.rank = 1, .steps = 100, .late_steps = 97, .cost = 0.125};
  r.wrong = 0;
  return r;
}

TEST(StepReportTest, Text) {
  const std::string text = StepText(Results());
  for (const char* part :
       {"25.6 M parameters in 64 tensors, 50 ms of computing (12 GFLOP/s)",
        "2 ranks, 100 steps", "95.4 MiB as fp32, in 4 parts",
        "rank 0 alone                           50.000     60.000     20.00    "
        " "
        "100.0 %",
        "all ranks, with reductions             62.500     80.000     16.00 "
        "     80.0 %",
        "    1        60.000        20.000    80.0 %         4.000         "
        "0.000",
        "rank 1 came last to 97 of the last 100 steps and costs 12.5 % of",
        "6.2 % of the step, 80.0 % hidden; bus bandwidth while reducing 5.00",
        "values : 0 OK"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  StepResults other = Results();
  other.straggler = {};
  other.wrong = 3;
  other.model.flops = 2e9;
  other.model.accumulate = 4;
  other.model.bf16_wire = true;
  const std::string second = StepText(other);
  EXPECT_THAT(second, Not(HasSubstr("Straggler")));
  EXPECT_THAT(second, HasSubstr("values : 3 FAILED"));
  EXPECT_THAT(second, HasSubstr("4 times 2 GFLOP ("));
  EXPECT_THAT(second, HasSubstr("as bf16"));
}

TEST(StepReportTest, Json) {
  const nlohmann::json json = StepJson(Results());
  EXPECT_EQ(json["collective"], "step");
  EXPECT_DOUBLE_EQ(json["efficiency"], 0.8);
  EXPECT_DOUBLE_EQ(json["hidden"], 0.8);
  EXPECT_DOUBLE_EQ(json["step"]["p99"], 0.08);
  EXPECT_DOUBLE_EQ(json["straggler"]["cost"], 0.125);
  EXPECT_DOUBLE_EQ(json["by_rank"][1]["compute_seconds"], 0.06);
  EXPECT_NEAR(json["busbw"].get<double>(), 5, 1e-9);
  StepResults other = Results();
  other.straggler = {};
  EXPECT_TRUE(StepJson(other)["straggler"].is_null());
}

}  // namespace
}  // namespace lockstep::worker::bench
