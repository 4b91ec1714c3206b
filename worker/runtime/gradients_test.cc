#include "worker/runtime/gradients.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "worker/runtime/step_tail.h"

namespace lockstep::worker::runtime {
namespace {

using collective::BucketPlan;
using collective::BucketSizes;
using collective::DataType;
using collective::SizesFor;

TEST(PlanGradientsTest, TheLastParameterIsInTheFirstBucket) {
  ReducerOptions options;
  const StatusOr<BucketPlan> plan = PlanGradients(
      {{"a", 2000}, {"b", 2001}}, options, 3, SizesFor("shm", 4096));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->buckets.front().entries.front().parameter, 1u);
  EXPECT_EQ(plan->buckets.front().entries.front().count, 2001u);
  EXPECT_EQ(plan->control_words, TailWords(3));
  EXPECT_NE(plan->hash, PlanGradients({{"b", 2001}, {"a", 2000}}, options, 3,
                                      SizesFor("shm", 4096))
                            ->hash);
}

TEST(PlanGradientsTest, BucketsAreFilledInTheOrderGiven) {
  ReducerOptions options;
  options.order = {1, 2, 0};
  const StatusOr<BucketPlan> plan =
      PlanGradients({{"a", 2000}, {"b", 2001}, {"c", 2002}}, options, 1,
                    SizesFor("shm", 4096));
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->buckets.size(), 3u);
  EXPECT_EQ(plan->buckets[0].entries[0].parameter, 1u);
  EXPECT_EQ(plan->buckets[1].entries[0].parameter, 2u);
  EXPECT_EQ(plan->buckets[2].entries[0].parameter, 0u);
}

TEST(PlanGradientsTest, WithBfloat16TheTailIsApart) {
  ReducerOptions options;
  options.bf16_wire = true;
  const StatusOr<BucketPlan> plan =
      PlanGradients({{"a", 2000}, {"b", 2001}}, options, 2, SizesFor("tcp"));
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->buckets.size(), 2u);
  EXPECT_EQ(plan->buckets[0].type, DataType::kBfloat16);
  EXPECT_EQ(plan->buckets[1].type, DataType::kFloat32);
  EXPECT_TRUE(plan->buckets[1].entries.empty());
}

TEST(BucketSizesTest, TheFirstAndTheLastAreNoLargerThanTheOthers) {
  EXPECT_EQ(SizesFor("shm"), (BucketSizes{4 << 20, 1 << 20, 1 << 20}));
  EXPECT_EQ(SizesFor("tcp"), (BucketSizes{2 << 20, 1 << 20, 256 << 10}));
  EXPECT_EQ(SizesFor("tcp", 25 << 20),
            (BucketSizes{25 << 20, 1 << 20, 256 << 10}));
  EXPECT_EQ(SizesFor("tcp", 4096), (BucketSizes{4096, 4096, 4096}));
}

TEST(OrderTest, SurvivesItsText) {
  for (const std::vector<uint32_t>& order :
       std::vector<std::vector<uint32_t>>{{}, {7}, {3, 0, 12, 1}}) {
    const auto parsed = ParseOrder(FormatOrder(order));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, order);
  }
  for (const char* bad : {",", "1,", "1,,2", "a", "-1", "1 2", "99999999999"}) {
    EXPECT_EQ(ParseOrder(bad).status().code(), StatusCode::kDataLoss) << bad;
  }
}

TEST(CopyFiniteTest, TakesAllAndFindsOneBadValue) {
  for (const size_t size : {1, 2047, 2048, 2049, 5000}) {
    std::vector<float> from(size, 1.5f);
    std::vector<float> to(size);
    EXPECT_TRUE(CopyFinite(from, to));
    EXPECT_EQ(to, from);
    EXPECT_TRUE(AddFinite(from, to));
    EXPECT_EQ(to, std::vector<float>(size, 3.0f));
    from.back() = std::nanf("");
    EXPECT_FALSE(AddFinite(from, to));
    EXPECT_FALSE(CopyFinite(from, to));
    EXPECT_TRUE(std::isnan(to.back()));
  }
  EXPECT_TRUE(CopyFinite({}, {}));
}

TEST(Bfloat16Test, RoundsToTheNearestAndTiesToEven) {
  const auto rounded = [](float value) {
    uint16_t word = 0;
    const bool finite = RoundFinite({&value, 1}, {&word, 1});
    float back = 0;
    Widen({&word, 1}, {&back, 1});
    EXPECT_EQ(finite, std::isfinite(back));
    return back;
  };
  for (const float exact : {0.0f, -0.0f, 1.0f, -2.5f, 0x1p-126f, 0x1p-133f}) {
    EXPECT_EQ(rounded(exact), exact);
  }
  EXPECT_EQ(rounded(1 + 0x1p-8f), 1.0f);
  EXPECT_EQ(rounded(1 + 0x1p-8f + 0x1p-20f), 1 + 0x1p-7f);
  EXPECT_EQ(rounded(1 + 3 * 0x1p-8f), 1 + 2 * 0x1p-7f);
  EXPECT_EQ(rounded(-1 - 0x1p-8f), -1.0f);
  EXPECT_TRUE(std::isinf(rounded(std::numeric_limits<float>::max())));
  EXPECT_TRUE(std::isinf(rounded(std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(std::isnan(rounded(std::nanf(""))));
  EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7f800001u))));
  EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0xffffffffu))));
}

TEST(SumOfSquaresTest, IsInDouble) {
  for (const size_t size : {0, 1, 7, 8, 9, 1000}) {
    std::vector<float> values(size, 0x1p100f);
    EXPECT_EQ(SumOfSquares(values), static_cast<double>(size) * 0x1p200);
  }
}

TEST(AllFiniteTest, FindsOneBadValueAnywhere) {
  for (const size_t size : {1, 255, 256, 257, 1000}) {
    std::vector<float> values(size, std::numeric_limits<float>::max());
    EXPECT_TRUE(AllFinite(values));
    for (const size_t at : {size_t{0}, size / 2, size - 1}) {
      for (const float bad : {std::nanf(""), -std::nanf("7"),
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()}) {
        values[at] = bad;
        EXPECT_FALSE(AllFinite(values));
        values[at] = -0.0f;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::worker::runtime
