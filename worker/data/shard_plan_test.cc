#include "worker/data/shard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "worker/data/permutation.h"

namespace lockstep::worker::data {
namespace {

using testing::HasSubstr;

// The seeds' data set: 5,656 pictures in shards of 128.
std::vector<uint64_t> CatsAndDogs() {
  std::vector<uint64_t> counts(44, 128);
  counts.push_back(5656 - 44 * 128);
  return counts;
}

ShardPlan Plan(const std::vector<uint64_t>& counts, uint64_t global_batch,
               uint64_t seed = 7, bool shuffle = true) {
  auto plan = ShardPlan::Create(counts, {seed, global_batch, shuffle});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

using Sample = std::pair<uint32_t, uint64_t>;

std::vector<Sample> SamplesOf(const ShardPlan& plan, const DataStep& step,
                              uint64_t rank, uint64_t world) {
  std::vector<Sample> result;
  for (const SampleRef& ref :
       plan.Samples(step.begin.epoch, ShardPlan::StripeOf(step, rank, world))) {
    result.push_back({ref.shard, ref.record});
  }
  return result;
}

TEST(PermutationTest, EachNumberStandsAtExactlyOnePosition) {
  for (const uint64_t n : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 5656}) {
    for (const uint64_t seed : {0, 1}) {
      const Permutation permutation(n, seed, 3);
      std::vector<bool> seen(n);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t value = permutation(i);
        ASSERT_LT(value, n);
        EXPECT_FALSE(seen[value]) << n << ": " << value << " comes twice";
        seen[value] = true;
      }
    }
  }
}

TEST(PermutationTest, WorksForVeryLargeSets) {
  const Permutation permutation(uint64_t{1} << 62, 1, 1);
  EXPECT_LT(permutation((uint64_t{1} << 62) - 1), uint64_t{1} << 62);
}

// Checkpoints hold positions in this order: these numbers may never change.
TEST(PermutationTest, TheOrderIsTheSameForEver) {
  const Permutation permutation(5656, 42, 0);
  std::vector<uint64_t> first;
  for (uint64_t i = 0; i < 8; ++i) first.push_back(permutation(i));
  EXPECT_THAT(first, testing::ElementsAre(2402, 2045, 2794, 3121, 1127, 3745,
                                          4682, 2594));
}

TEST(PermutationTest, OrderLooksRandomAndDiffersByEpochAndSeed) {
  constexpr uint64_t kN = 5656;
  const Permutation a(kN, 1, 0), b(kN, 1, 1), c(kN, 2, 0), d(kN, 0, 1);
  uint64_t fixed = 0, neighbours = 0, same_ab = 0, same_ac = 0, same_ad = 0;
  double first_half = 0;
  for (uint64_t i = 0; i < kN; ++i) {
    fixed += a(i) == i;
    same_ab += a(i) == b(i);
    same_ac += a(i) == c(i);
    same_ad += a(i) == d(i);
    if (i + 1 < kN) neighbours += a(i) + 1 == a(i + 1);
    if (i < kN / 2) first_half += static_cast<double>(a(i));
  }
  // Each is 1 on average for random orders.
  EXPECT_LT(fixed, 8u);
  EXPECT_LT(same_ab, 8u);
  EXPECT_LT(same_ac, 8u);
  EXPECT_LT(same_ad, 8u);
  EXPECT_LT(neighbours, 8u);
  // The mean of half the numbers: 2827.5 with a standard deviation of 22.
  EXPECT_NEAR(first_half / (kN / 2), 2827.5, 110);
}

TEST(ShardPlanTest, StepsAnEpochAreThoseOfTheSeeds) {
  EXPECT_EQ(Plan(CatsAndDogs(), 64).steps_per_epoch(), 89u);
  EXPECT_EQ(Plan(CatsAndDogs(), 128).steps_per_epoch(), 45u);
  EXPECT_EQ(Plan({128}, 64).steps_per_epoch(), 2u);
  EXPECT_EQ(Plan({129}, 64).steps_per_epoch(), 3u);
  EXPECT_EQ(Plan({1}, 64).steps_per_epoch(), 1u);
}

TEST(ShardPlanTest, EachSampleIsReadOnceAnEpochForAnyWorld) {
  const ShardPlan plan = Plan({10, 0, 3, 24, 1}, 7);
  for (const uint64_t world : {1, 2, 3, 5, 7, 8, 13}) {
    DataCursor cursor;
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<Sample> seen;
      uint64_t read = 0, steps = 0;
      while (cursor.epoch == epoch) {
        const DataStep step = plan.StepAt(cursor).value();
        uint64_t of_step = 0;
        for (uint64_t rank = 0; rank < world; ++rank) {
          const auto samples = SamplesOf(plan, step, rank, world);
          of_step += samples.size();
          seen.insert(samples.begin(), samples.end());
        }
        EXPECT_EQ(of_step, step.count);
        read += of_step;
        ++steps;
        cursor = step.end;
      }
      EXPECT_EQ(read, 38u);
      EXPECT_EQ(seen.size(), 38u);
      EXPECT_EQ(steps, plan.steps_per_epoch());
    }
  }
}

TEST(ShardPlanTest, TwoRanksOf64ReadInEachStepWhatOneOf128Reads) {
  const ShardPlan plan = Plan(CatsAndDogs(), 128);
  DataCursor cursor;
  uint64_t steps = 0;
  while (cursor.epoch == 0) {
    const DataStep step = plan.StepAt(cursor).value();
    auto both = SamplesOf(plan, step, 0, 2);
    const auto second = SamplesOf(plan, step, 1, 2);
    EXPECT_LE(both.size(), 64u);
    EXPECT_LE(second.size(), 64u);
    both.insert(both.end(), second.begin(), second.end());
    EXPECT_EQ(both, SamplesOf(plan, step, 0, 1));
    cursor = step.end;
    ++steps;
  }
  EXPECT_EQ(steps, 45u);
}

TEST(ShardPlanTest, AResizeInTheMiddleOfAnEpochLosesAndRepeatsNothing) {
  const ShardPlan plan = Plan(CatsAndDogs(), 128);
  std::set<Sample> seen;
  DataCursor cursor;
  for (uint64_t s = 0; cursor.epoch == 0; ++s) {
    const DataStep step = plan.StepAt(cursor).value();
    const uint64_t world = s < 20 ? 4 : 3;
    for (uint64_t rank = 0; rank < world; ++rank) {
      for (const Sample& sample : SamplesOf(plan, step, rank, world)) {
        EXPECT_TRUE(seen.insert(sample).second);
      }
    }
    cursor = step.end;
  }
  EXPECT_EQ(seen.size(), 5656u);
}

TEST(ShardPlanTest, ShortLastStepIsSplitEvenlyAndMayLeaveARankWithNothing) {
  const ShardPlan plan = Plan({10}, 8);
  const DataStep last = plan.StepAt({0, 8}).value();
  EXPECT_EQ(last.count, 2u);
  EXPECT_EQ(last.end, (DataCursor{1, 0}));
  EXPECT_EQ(ShardPlan::StripeOf(last, 0, 3).count, 1u);
  EXPECT_EQ(ShardPlan::StripeOf(last, 1, 3).count, 1u);
  EXPECT_EQ(ShardPlan::StripeOf(last, 2, 3).count, 0u);
}

TEST(ShardPlanTest, EpochsDifferAndAnEvaluationIsInOrder) {
  const ShardPlan shuffled = Plan({100}, 100);
  EXPECT_NE(shuffled.Samples(0, {0, 100}), shuffled.Samples(1, {0, 100}));
  EXPECT_EQ(shuffled.Samples(1, {0, 100}), shuffled.Samples(1, {0, 100}));
  const ShardPlan ordered = Plan({2, 0, 2}, 4, 7, /*shuffle=*/false);
  EXPECT_THAT(ordered.Samples(0, {0, 4}),
              testing::ElementsAre(SampleRef{0, 0}, SampleRef{0, 1},
                                   SampleRef{2, 0}, SampleRef{2, 1}));
}

TEST(ShardPlanTest, CursorAtTheEndIsTheNextEpochAndBeyondIsRefused) {
  const ShardPlan plan = Plan({10}, 4);
  EXPECT_EQ(plan.StepAt({0, 10})->begin, (DataCursor{1, 0}));
  const Status beyond = plan.StepAt({0, 11}).status();
  EXPECT_EQ(beyond.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(beyond), HasSubstr("position 11"));
}

TEST(ShardPlanTest, NoSamplesNoBatchAndTooManySamplesAreRefused) {
  EXPECT_FALSE(ShardPlan::Create({}, {0, 1, true}).ok());
  EXPECT_FALSE(ShardPlan::Create({0, 0}, {0, 1, true}).ok());
  EXPECT_FALSE(ShardPlan::Create({5}, {0, 0, true}).ok());
  const uint64_t huge = uint64_t{1} << 62;
  EXPECT_FALSE(ShardPlan::Create({huge, huge, huge, huge}, {0, 1, true}).ok());
}

}  // namespace
}  // namespace lockstep::worker::data
