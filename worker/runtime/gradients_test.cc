#include "worker/runtime/gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "worker/runtime/step_tail.h"

namespace lockstep {
namespace {

TEST(PlanGradientsTest, TheLastParameterIsInTheFirstBucket) {
  const StatusOr<BucketPlan> plan =
      PlanGradients({{"a", 2000}, {"b", 2000}}, 4096, 3);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->buckets.front().entries.front().parameter, 0u);
  EXPECT_EQ(plan->buckets.front().entries.front().count, 2000u);
  EXPECT_EQ(plan->control_words, TailWords(3));
  EXPECT_NE(plan->hash,
            PlanGradients({{"b", 2000}, {"a", 2000}}, 4096, 3)->hash);
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
}  // namespace lockstep
