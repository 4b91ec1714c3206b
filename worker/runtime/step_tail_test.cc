#include "worker/runtime/step_tail.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::worker::runtime {
namespace {

using std::chrono::microseconds;

std::vector<float> Sum(const std::vector<StepTail>& tails) {
  const int n = static_cast<int>(tails.size());
  std::vector<float> sum(TailWords(n));
  std::vector<float> words(TailWords(n));
  for (int r = 0; r < n; ++r) {
    WriteTail(tails[r], r, words);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += words[i];
  }
  return sum;
}

TEST(StepTailTest, SamplesAreExactAtTheirLargest) {
  StepTail tail;
  tail.samples = kMaxStepSamples;
  const std::vector<StepTail> tails(kMaxControlRanks, tail);
  EXPECT_EQ(ReadTail(Sum(tails), 0).samples,
            kMaxStepSamples * kMaxControlRanks);
}

TEST(StepTailTest, LossesAreSummed) {
  std::vector<StepTail> tails(2);
  tails[0].loss_sum = 147.25;
  tails[1].loss_sum = 0.5;
  EXPECT_EQ(ReadTail(Sum(tails), 0).loss_sum, 147.75);
}

TEST(StepTailTest, ALossThatNoFloatHoldsGoesAsZero) {
  for (const double loss :
       {std::nan(""), std::numeric_limits<double>::infinity(), 1e300}) {
    StepTail tail;
    tail.loss_sum = loss;
    EXPECT_EQ(ReadTail(Sum({tail}), 0).loss_sum, 0);
  }
}

TEST(StepTailTest, StragglerWaitIsWhatOneWaitedBeyondTheLastToCome) {
  std::vector<StepTail> tails(3);
  tails[0].waited = microseconds(900);
  tails[1].waited = microseconds(200);
  tails[2].waited = microseconds(500);
  const std::vector<float> sum = Sum(tails);
  EXPECT_EQ(ReadTail(sum, 0).straggler_wait, microseconds(700));
  EXPECT_EQ(ReadTail(sum, 1).straggler_wait, Duration(0));
  EXPECT_EQ(ReadTail(sum, 2).straggler_wait, microseconds(300));
}

TEST(StepTailTest, LagIsBehindTheMedianRank) {
  std::vector<StepTail> tails(3);
  tails[0].waited = microseconds(900);
  tails[1].waited = microseconds(200);
  tails[2].waited = microseconds(500);
  const std::vector<float> sum = Sum(tails);
  EXPECT_EQ(ReadTail(sum, 0).lag, microseconds(-400));
  EXPECT_EQ(ReadTail(sum, 1).lag, microseconds(300));
  EXPECT_EQ(ReadTail(sum, 2).lag, microseconds(0));
  // Of two, each is half as far from the middle.
  tails.pop_back();
  EXPECT_EQ(ReadTail(Sum(tails), 1).lag, microseconds(350));
  // In the first step there was none before.
  EXPECT_FALSE(ReadTail(Sum(std::vector<StepTail>(2)), 0).lag.has_value());
}

TEST(StepTailTest, TheLateRankIsTheOneThatWaitedLeast) {
  std::vector<StepTail> tails(3);
  tails[0].waited = microseconds(900);
  tails[1].waited = microseconds(200);
  tails[2].waited = microseconds(500);
  for (int rank = 0; rank < 3; ++rank) {
    const StepTailSum sum = ReadTail(Sum(tails), rank);
    EXPECT_EQ(sum.late_rank, 1);
    // With rank 1 on time, all would still wait for rank 2.
    EXPECT_EQ(sum.late_by, microseconds(300));
  }
  EXPECT_EQ(ReadTail(Sum(std::vector<StepTail>(2)), 0).late_rank, -1);
  tails.resize(1);
  EXPECT_EQ(ReadTail(Sum(tails), 0).late_rank, -1);
}

TEST(StepTailTest, WordsThatCannotBeAreTakenForNone) {
  for (const float bad :
       {std::nanf(""), -1.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    std::vector<float> words(TailWords(2), bad);
    EXPECT_EQ(ReadTail(words, 1).samples, 0);
    EXPECT_EQ(ReadTail(words, 1).straggler_wait, Duration(0));
    EXPECT_FALSE(ReadTail(words, 1).lag.has_value());
    EXPECT_EQ(ReadTail(words, 1).late_rank, -1);
  }
}

// Ranks 0 and 3 of 4 are members; rank 0 computes shards 0, 1 and rank 3 the
// others.
TEST(ShardTailTest, HasLossesByShardAndWaitsByPlace) {
  std::vector<float> sum(ShardTailWords(4));
  std::vector<float> words(ShardTailWords(4));
  const StepTail tails[] = {
      {.samples = 3,
       .shard_losses = {{0, 0.25}, {1, std::nan("")}},
       .waited = microseconds(500)},
      {.samples = 4, .shard_losses = {{3, 2}, {2, 4}}, .waited = {}}};
  for (int place = 0; place < 2; ++place) {
    WriteShardTail(tails[place], place, 4, words);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += words[i];
  }
  const StepTailSum read = ReadShardTail(sum, 0, 2, 4);
  EXPECT_EQ(read.samples, 7);
  EXPECT_EQ(read.loss_sum, 6.25);
  EXPECT_EQ(read.late_rank, 1) << "a place; ranks that are away are never late";
  EXPECT_EQ(read.late_by, microseconds(500));
}

TEST(ShardTailTest, TheLossIsASumInTheOrderOfShards) {
  std::vector<float> words(ShardTailWords(3));
  // From the last to the first it would be 1.
  WriteShardTail({.shard_losses = {{2, -1e16}, {1, 1}, {0, 1e16}}}, 0, 3,
                 words);
  EXPECT_EQ(ReadShardTail(words, 0, 1, 3).loss_sum, 0);
}

}  // namespace
}  // namespace lockstep::worker::runtime
