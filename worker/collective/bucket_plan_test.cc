#include "worker/collective/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace lockstep::worker::collective {
namespace {

using ::testing::HasSubstr;

BucketPlan Plan(const std::vector<BucketParameter>& parameters,
                const BucketPlanOptions& options = {}) {
  auto plan = PlanBuckets(parameters, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : BucketPlan{};
}

// What must hold for every plan.
void CheckPlan(const std::vector<BucketParameter>& parameters,
               const BucketPlanOptions& options, const BucketPlan& plan) {
  size_t next = 0;
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    const BucketLayout& bucket = plan.buckets[b];
    EXPECT_EQ(bucket.count * SizeOf(bucket.type), bucket.bytes);
    EXPECT_EQ(bucket.bytes % 64, 0u);
    size_t end = 0;
    for (const BucketEntry& entry : bucket.entries) {
      ASSERT_EQ(entry.parameter, next++);
      const BucketParameter& parameter = parameters[entry.parameter];
      EXPECT_EQ(entry.count, parameter.count);
      EXPECT_EQ(bucket.type, parameter.type);
      EXPECT_EQ(entry.offset_bytes % 64, 0u);
      EXPECT_GE(entry.offset_bytes, end);
      EXPECT_LT(entry.offset_bytes, end + 64);
      end = entry.offset_bytes + entry.count * SizeOf(bucket.type);
    }
    if (bucket.entries.size() > 1) {
      EXPECT_LE(end,
                b == 0 ? options.first_bucket_bytes : options.bucket_bytes);
    }
    const bool last = b + 1 == plan.buckets.size();
    if (last && plan.control_words > 0) {
      EXPECT_EQ(bucket.type, DataType::kFloat32);
      EXPECT_GE(plan.control_offset_bytes, end);
      end = plan.control_offset_bytes + plan.control_words * 4;
    }
    EXPECT_GE(bucket.bytes, end);
    EXPECT_LT(bucket.bytes, end + 64);
  }
  EXPECT_EQ(next, parameters.size());
}

TEST(BucketPlanTest, SmallModelIsOneBucket) {
  const BucketPlan plan = Plan({{"fc.bias", 10}, {"fc.weight", 1280}});
  ASSERT_EQ(plan.buckets.size(), 1u);
  const BucketLayout& bucket = plan.buckets[0];
  ASSERT_EQ(bucket.entries.size(), 2u);
  EXPECT_EQ(bucket.entries[0].offset_bytes, 0u);
  EXPECT_EQ(bucket.entries[1].offset_bytes, 64u);
  EXPECT_EQ(plan.control_offset_bytes, 64u + 5120u);
  EXPECT_EQ(bucket.bytes, 64u + 5120u + 64u);
}

TEST(BucketPlanTest, FirstIsSmallOthersAreBounded) {
  const BucketPlanOptions options{.bucket_bytes = 1024,
                                  .first_bucket_bytes = 256};
  const std::vector<BucketParameter> parameters = {
      {"a", 32}, {"b", 32}, {"c", 1},    {"d", 128},
      {"e", 64}, {"f", 48}, {"g", 1000}, {"h", 1}};
  const BucketPlan plan = Plan(parameters, options);
  CheckPlan(parameters, options, plan);
  ASSERT_EQ(plan.buckets.size(), 4u);
  EXPECT_EQ(plan.buckets[0].entries.size(), 2u);  // a b: 256 bytes
  EXPECT_EQ(plan.buckets[1].entries.size(), 4u);  // c d e f: 1024 bytes
  EXPECT_EQ(plan.buckets[2].entries.size(), 1u);  // g is larger than a bucket
  EXPECT_EQ(plan.buckets[3].entries.size(), 1u);
}

TEST(BucketPlanTest, TypesDoNotMix) {
  const BucketPlan plan = Plan({{"a", 8}, {"b", 8, DataType::kFloat64}});
  ASSERT_EQ(plan.buckets.size(), 3u);
  EXPECT_EQ(plan.buckets[1].type, DataType::kFloat64);
  // The control word is float32, so it is alone.
  EXPECT_TRUE(plan.buckets[2].entries.empty());
  EXPECT_EQ(plan.buckets[2].bytes, 64u);
  EXPECT_EQ(plan.control_offset_bytes, 0u);
}

TEST(BucketPlanTest, NoParametersStillHaveAControlWord) {
  const BucketPlan plan = Plan({});
  ASSERT_EQ(plan.buckets.size(), 1u);
  EXPECT_EQ(plan.buckets[0].count, 16u);
  EXPECT_TRUE(Plan({}, {.control_words = 0}).buckets.empty());
}

TEST(BucketPlanTest, RandomModelsKeepTheRules) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<BucketParameter> parameters;
    const int n = static_cast<int>(random() % 30);
    for (int i = 0; i < n; ++i) {
      parameters.push_back(
          {fmt::format("p{}", i), random() % 700,
           random() % 5 == 0 ? DataType::kBfloat16 : DataType::kFloat32});
    }
    const BucketPlanOptions options{.bucket_bytes = 1 + random() % 4000,
                                    .first_bucket_bytes = 1 + random() % 1000,
                                    .control_words = random() % 40};
    const BucketPlan plan = Plan(parameters, options);
    CheckPlan(parameters, options, plan);
    EXPECT_EQ(plan.hash, Plan(parameters, options).hash);
  }
}

TEST(BucketPlanTest, HashSeesEveryDifference) {
  const std::vector<BucketParameter> model = {{"a", 100}, {"b", 200}};
  const std::string hash = Plan(model).hash;
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_NE(hash, Plan({{"b", 200}, {"a", 100}}).hash);
  EXPECT_NE(hash, Plan({{"a", 100}, {"c", 200}}).hash);
  // 199 floats leave a gap of one; no byte moves, the model differs.
  EXPECT_NE(hash, Plan({{"a", 100}, {"b", 199}}).hash);
  EXPECT_NE(hash, Plan({{"a", 100}, {"b", 200, DataType::kInt32}}).hash);
  EXPECT_NE(hash, Plan(model, {.first_bucket_bytes = 400}).hash);
  EXPECT_NE(hash, Plan(model, {.control_words = 15}).hash);
}

TEST(BucketPlanTest, RefusesWhatCannotBe) {
  const auto refused = [](const std::vector<BucketParameter>& parameters,
                          const BucketPlanOptions& options, const char* text) {
    const Status status = PlanBuckets(parameters, options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr(text));
  };
  refused({{"a", 1}, {"a", 2}}, {}, "a comes twice");
  refused({{"", 1}}, {}, "no name");
  refused({{"a", SIZE_MAX}}, {}, "too large");
  refused({{"a", 1, static_cast<DataType>(77)}}, {}, "unknown type");
  refused({}, {.bucket_bytes = 0}, "positive");
  refused({}, {.control_words = SIZE_MAX}, "control words");
}

TEST(BucketPlanTest, TheLastBucketIsSmallWhereAsked) {
  BucketPlanOptions options;
  options.bucket_bytes = 1 << 20;
  options.first_bucket_bytes = 4096;
  options.last_bucket_bytes = 8192;
  const std::vector<BucketParameter> parameters = {
      {"a", 1000}, {"b", 100'000}, {"c", 1000}, {"d", 1000}, {"e", 10}};
  const BucketPlan plan = Plan(parameters, options);
  CheckPlan(parameters, options, plan);
  ASSERT_EQ(plan.buckets.size(), 3u);
  EXPECT_EQ(plan.buckets[1].entries.size(), 1u);
  EXPECT_EQ(plan.buckets[2].entries.size(), 3u);
  EXPECT_EQ(plan.buckets[2].entries[0].offset_bytes, 0u);
  // Where the last parameter alone is too large, it stays with the others.
  const std::vector<BucketParameter> large = {
      {"a", 1000}, {"b", 10}, {"c", 100'000}};
  EXPECT_EQ(Plan(large, options).buckets.size(), 2u);
}

}  // namespace
}  // namespace lockstep::worker::collective
