#include "worker/runtime/late_ranks.h"

#include <gtest/gtest.h>

namespace lockstep::worker::runtime {
namespace {

using std::chrono::milliseconds;

TEST(LateRanksTest, TheStragglerIsWhoCostMostOfTheLastSteps) {
  LateRanks ranks;
  EXPECT_EQ(ranks.straggler().rank, -1);
  // Rank 3 is last in most steps, by little; rank 1 seldom, by much.
  for (int i = 0; i < 100; ++i) {
    const bool rare = i % 10 == 0;
    ranks.Add(rare ? 1 : 3, milliseconds(rare ? 20 : 1), milliseconds(5),
              milliseconds(10 + (rare ? 20 : 1)));
  }
  EXPECT_EQ(ranks.straggler().rank, 1);
  EXPECT_EQ(ranks.straggler().steps, 100u);
  EXPECT_EQ(ranks.straggler().late_steps, 10u);
  EXPECT_NEAR(ranks.straggler().cost, 200.0 / (1000 + 200 + 90), 1e-9);
  // A hundred steps later it is forgotten.
  for (int i = 0; i < 100; ++i) {
    ranks.Add(3, milliseconds(1), milliseconds(1), milliseconds(10));
  }
  EXPECT_EQ(ranks.straggler().rank, 3);
  EXPECT_EQ(ranks.straggler().late_steps, 100u);
  EXPECT_NEAR(ranks.straggler().cost, 0.1, 1e-9);
}

TEST(LateRanksTest, ThoseUnknownSayNothingAndNobodyCostsMoreThanTheStep) {
  LateRanks ranks;
  ranks.Add(-1, milliseconds(5), milliseconds(5), milliseconds(5));
  EXPECT_EQ(ranks.straggler().steps, 0u);
  ranks.Add(0, milliseconds(9), milliseconds(9), milliseconds(5));
  EXPECT_EQ(ranks.straggler().cost, 1);
  LateRanks none;
  none.Add(0, Duration(0), Duration(0), Duration(0));
  EXPECT_EQ(none.straggler().cost, 0);
}

TEST(LateRanksTest, TheLongestWaitsAreExact) {
  LateRanks ranks;
  // Rank r is waited for r ms in each of 50 steps; the heaviest come last.
  for (int round = 0; round < 50; ++round) {
    for (int r = 0; r < 20; ++r) {
      ranks.Add(r, milliseconds(r), milliseconds(r), milliseconds(100));
    }
  }
  for (size_t i = 0; i < task::kLateRanks; ++i) {
    const task::LateRankReading& straggler = ranks.longest_waits()[i];
    EXPECT_EQ(straggler.rank, 19 - static_cast<int>(i));
    EXPECT_EQ(straggler.steps, 50u);
    EXPECT_NEAR(straggler.waited_seconds, straggler.rank * 0.05, 1e-9);
  }
}

TEST(LateRanksTest, FewerStragglersLeavePlacesUnused) {
  LateRanks ranks;
  ranks.Add(4, milliseconds(1), milliseconds(1), milliseconds(10));
  ranks.Add(2, milliseconds(3), milliseconds(3), milliseconds(10));
  EXPECT_EQ(ranks.longest_waits()[0].rank, 2);
  EXPECT_EQ(ranks.longest_waits()[1].rank, 4);
  EXPECT_EQ(ranks.longest_waits()[2].rank, -1);
}

}  // namespace
}  // namespace lockstep::worker::runtime
