#include "worker/gpu_check/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace lockstep::worker::gpu_check {
namespace {

TEST(GpuCheckValuesTest, EachBitIsBothAndNeighboursDiffer) {
  std::set<uint64_t> words;
  for (uint32_t round = 0; round < 6; round += 2) {
    uint64_t ones = 0, zeros = 0;
    for (uint64_t i = 0; i < 1000; ++i) {
      const uint64_t word = PatternWord(i, round);
      EXPECT_EQ(PatternWord(i, round + 1), ~word);
      ones |= word;
      zeros |= ~word;
      words.insert(word);
    }
    EXPECT_EQ(ones, ~uint64_t{0});
    EXPECT_EQ(zeros, ~uint64_t{0});
  }
  EXPECT_EQ(words.size(), 3000u);
}

TEST(GpuCheckValuesTest, TheTableHasTheProduct) {
  constexpr uint32_t kSize = 37;
  for (uint32_t round = 0; round < 9; ++round) {
    for (const uint32_t depth : {1u, 16u, 70u}) {
      const std::vector<float> table = ProductTable(depth);
      for (uint32_t row = 0; row < kSize; ++row) {
        for (uint32_t column = 0; column < kSize; ++column) {
          double sum = 0;
          for (uint32_t k = 0; k < depth; ++k) {
            sum += double{LeftValue(row, k, round)} *
                   double{RightValue(k, column, round)};
          }
          ASSERT_EQ(table.at(ProductIndex(row, column, round)), sum)
              << row << ' ' << column << ' ' << depth << ' ' << round;
        }
      }
    }
  }
}

TEST(GpuCheckValuesTest, AllSumsAreExact) {
  for (const float value : ProductTable(kMostDepth)) {
    EXPECT_LT(value, 1 << 24);
  }
  EXPECT_EQ(ReducedValue(100'002, 0), 2 * 100'002 + 1);
  EXPECT_EQ(ReduceValue(100'002, 1, 1), 1);
}

}  // namespace
}  // namespace lockstep::worker::gpu_check
