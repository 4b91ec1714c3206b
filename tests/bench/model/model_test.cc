#include "tests/bench/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/bench/model/options.h"

namespace lockstep::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 25 Gbit/s and 20 us between hosts; 10 GB/s and 2 us within.
Cluster Of(int hosts, int gpus) {
  return {.hosts = hosts,
          .gpus_per_host = gpus,
          .intra = {2e-6, 1e-10},
          .inter = {20e-6, 1 / 3.125e9}};
}

TEST(AllReduceTest, IsTheTextbooks) {
  constexpr double kBytes = 1e8;
  const Cluster c = Of(8, 1);
  // 14 messages of 12.5 MB.
  EXPECT_NEAR(AllReduceSeconds(Algorithm::kRing, c, kBytes),
              14 * (20e-6 + 12.5e6 / 3.125e9), 1e-9);
  // Six messages; 7/8 of the bytes twice.
  EXPECT_NEAR(AllReduceSeconds(Algorithm::kHalving, c, kBytes),
              6 * 20e-6 + 2 * 0.875 * kBytes / 3.125e9, 1e-9);
  EXPECT_NEAR(AllReduceSeconds(Algorithm::kTree, c, kBytes),
              6 * (20e-6 + kBytes / 3.125e9), 1e-9);
  // One rank a host: there is nothing within.
  EXPECT_NEAR(AllReduceSeconds(Algorithm::kHierarchical, c, kBytes),
              AllReduceSeconds(Algorithm::kHalving, c, kBytes), 1e-9);
  // Six ranks: a pair folds first.
  EXPECT_NEAR(
      AllReduceSeconds(Algorithm::kHalving, Of(6, 1), kBytes),
      4 * 20e-6 + 2 * 0.75 * kBytes / 3.125e9 + 2 * (20e-6 + kBytes / 3.125e9),
      1e-9);
}

TEST(AllReduceTest, OneRankReducesNothing) {
  for (const Algorithm a : kAlgorithms) {
    EXPECT_EQ(AllReduceSeconds(a, Of(1, 1), 1e6), 0);
  }
}

TEST(AllReduceTest, TheBestDependsOnBytesAndHosts) {
  EXPECT_EQ(BestAlgorithm(Of(64, 1), 1e3), Algorithm::kHalving);
  EXPECT_EQ(BestAlgorithm(Of(6, 1), 1e8), Algorithm::kRing);
  EXPECT_EQ(BestAlgorithm(Of(64, 8), 1e8), Algorithm::kHierarchical);
  // Eight ranks that send all they have through one line lose.
  EXPECT_GT(AllReduceSeconds(Algorithm::kHalving, Of(64, 8), 1e8),
            4 * AllReduceSeconds(Algorithm::kHierarchical, Of(64, 8), 1e8));
}

// By the planner of jobs, of tensors of 1 KiB.
std::vector<uint64_t> PlannedBuckets(const Training& t) {
  std::vector<BucketParameter> tensors;
  for (uint64_t begin = 0; begin < t.gradient_bytes; begin += 1024) {
    const uint64_t bytes = std::min<uint64_t>(1024, t.gradient_bytes - begin);
    tensors.push_back({std::to_string(begin), bytes / sizeof(float)});
  }
  const auto plan = PlanBuckets(
      tensors, {t.buckets.bucket, t.buckets.first, t.buckets.last, 0});
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<uint64_t> buckets;
  for (const BucketLayout& bucket : plan->buckets) {
    buckets.push_back(bucket.bytes);
  }
  return buckets;
}

TEST(StepTest, BucketsAreThePlans) {
  for (const size_t bucket_bytes : {0, 128 << 10, 1 << 20, 25 << 20}) {
    for (const char* backend : {"hierarchical", "shm"}) {
      Training t;
      t.buckets = SizesFor(backend, bucket_bytes);
      for (const uint64_t kib :
           {0, 1, 100, 256, 257, 1024, 1025, 1281, 3072, 5120, 27648}) {
        t.gradient_bytes = kib << 10;
        EXPECT_EQ(Buckets(t), PlannedBuckets(t))
            << backend << " " << bucket_bytes << " " << kib;
      }
    }
  }
  // As jobs begin.
  EXPECT_THAT(
      Buckets({.gradient_bytes = 5 << 20}),
      ElementsAre(1 << 20, 2 << 20, (2 << 20) - (256 << 10), 256 << 10));
}

TEST(StepTest, HidesWhatFitsBehindTheBackwardPass) {
  Training t{.compute_seconds = 1, .gradient_bytes = 100 << 20};
  const Step slow = PredictStep(Of(8, 1), t);
  // The last bucket is ready when computing ends: only that is exposed.
  EXPECT_LT(slow.exposed, 0.3 * slow.busy);
  EXPECT_GT(slow.exposed, 0);
  EXPECT_GT(slow.efficiency(), 0.98);
  // Hardly any computing: nothing to hide behind.
  t.compute_seconds = 1e-3;
  const Step quick = PredictStep(Of(8, 1), t);
  EXPECT_GT(quick.exposed, 0.95 * quick.busy);
  // Alone there is nothing to reduce.
  EXPECT_EQ(PredictStep(Of(1, 1), t).efficiency(), 1);
}

TEST(StepTest, MoreHostsAreNeverMoreEfficient) {
  const Training t{.compute_seconds = 0.1, .gradient_bytes = 100 << 20};
  double before = 1;
  for (const int hosts : {1, 2, 4, 8, 64, 512}) {
    const double now = PredictStep(Of(hosts, 8), t).efficiency();
    EXPECT_LE(now, before);
    before = now;
  }
}

TEST(LinkTest, IsSolvedFromTwoMeasurements) {
  const Cluster c = Of(2, 1);
  const auto link = LinkOf(AllReduceSeconds(Algorithm::kRing, c, 0),
                           AllReduceSeconds(Algorithm::kRing, c, 1e7), 1e7);
  ASSERT_TRUE(link.ok());
  EXPECT_NEAR(link->alpha, c.inter.alpha, 1e-12);
  EXPECT_NEAR(link->beta, c.inter.beta, 1e-16);
  EXPECT_FALSE(LinkOf(1, 0.5, 10).ok());
  EXPECT_FALSE(LinkOf(0, 0.5, 10).ok());
}

StatusOr<ModelOptions> Parse(std::vector<std::string> arguments) {
  return ParseModelOptions(arguments);
}

TEST(OptionsTest, AreReadOrRefusedByName) {
  const auto o = Parse({"--hosts", "1,2", "--gpus-per-host=8", "--alpha-inter",
                        "5", "--beta-inter=100", "--alpha-intra", "1",
                        "--beta-intra", "400", "--compute-ms", "50",
                        "--parameters-mb", "100", "--bucket-mb", "4"});
  ASSERT_TRUE(o.ok()) << o.status();
  EXPECT_THAT(o->hosts, ElementsAre(1, 2));
  EXPECT_EQ(o->cluster.gpus_per_host, 8);
  EXPECT_DOUBLE_EQ(o->cluster.inter.alpha, 5e-6);
  EXPECT_DOUBLE_EQ(o->cluster.inter.beta, 8 / 100e9);
  EXPECT_DOUBLE_EQ(o->training.compute_seconds, 0.05);
  EXPECT_EQ(o->training.gradient_bytes, 100u << 20);
  EXPECT_EQ(o->training.buckets, SizesFor("hierarchical", 4 << 20));
  EXPECT_EQ(Parse({})->training.buckets, SizesFor("hierarchical"));
  EXPECT_FALSE(o->help);
  EXPECT_TRUE(Parse({"--hosts", "3", "--help"})->help);
  for (const auto& bad :
       std::vector<std::vector<std::string>>{{"--what"},
                                             {"--hosts"},
                                             {"--hosts", "0"},
                                             {"--hosts", "1,,2"},
                                             {"--gpus-per-host", "x"},
                                             {"--beta-inter", "-3"},
                                             {"--compute-ms", "nan"},
                                             {"--json"},
                                             {"word"}}) {
    const Status status = Parse(bad).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad[0];
    EXPECT_THAT(Message(status), HasSubstr(bad[0].substr(0, bad[0].find('='))));
  }
}

TEST(ReportTest, TheTableHasOneRowPerNumberOfHosts) {
  auto options = Parse({"--hosts", "1,8"});
  ASSERT_TRUE(options.ok());
  const std::string table = ModelTable(*options);
  EXPECT_THAT(table, HasSubstr("efficiency"));
  EXPECT_THAT(table, HasSubstr("prediction"));
  // A sentence of three lines, an empty one and the heading.
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 5 + 2);
  EXPECT_THAT(table, HasSubstr("\n     8     64 "));
  EXPECT_THAT(ModelHelp(), HasSubstr("--bucket-mb MIB"));
}

}  // namespace
}  // namespace lockstep::model
