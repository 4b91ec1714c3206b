#include "worker/runtime/phase_timer.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lockstep::worker::runtime {
namespace {

using std::chrono::milliseconds;
using task::RankPhase;

class PhaseTimerTest : public ::testing::Test {
 protected:
  Duration Of(RankPhase phase) const {
    return timer_.Totals(now_)[static_cast<size_t>(phase)];
  }
  Duration Sum() const {
    const auto totals = timer_.Totals(now_);
    return std::accumulate(totals.begin(), totals.end(), Duration(0));
  }

  MonoTime now_{milliseconds(1000)};
  PhaseTimer timer_{now_};
};

TEST_F(PhaseTimerTest, PhasesAddUpToWallTime) {
  timer_.Switch(RankPhase::kInput, now_ += milliseconds(3));
  timer_.Switch(RankPhase::kCompute, now_ += milliseconds(5));
  timer_.Switch(RankPhase::kOptimizer, now_ += milliseconds(7));
  now_ += milliseconds(11);
  EXPECT_EQ(Of(RankPhase::kOther), milliseconds(3));
  EXPECT_EQ(Of(RankPhase::kInput), milliseconds(5));
  EXPECT_EQ(Of(RankPhase::kCompute), milliseconds(7));
  EXPECT_EQ(Of(RankPhase::kOptimizer), milliseconds(11));
  EXPECT_EQ(Sum(), milliseconds(26));
}

TEST_F(PhaseTimerTest, FormingCountsAsOther) {
  timer_.Switch(RankPhase::kForming, now_);
  timer_.Switch(RankPhase::kFinished, now_ += milliseconds(4));
  now_ += milliseconds(1);
  EXPECT_EQ(Of(RankPhase::kOther), milliseconds(5));
}

TEST_F(PhaseTimerTest, WhatWasHeldBackIsSplitLater) {
  timer_.Switch(RankPhase::kAllReduce, now_);
  timer_.HoldBack(milliseconds(9), now_ += milliseconds(10));
  EXPECT_EQ(Of(RankPhase::kAllReduce), milliseconds(1));
  EXPECT_EQ(Sum() + timer_.held_back(), milliseconds(10));
  timer_.SettleHeldBack(milliseconds(4));
  EXPECT_EQ(Of(RankPhase::kStragglerWait), milliseconds(4));
  EXPECT_EQ(Of(RankPhase::kAllReduce), milliseconds(6));
  EXPECT_EQ(Sum(), milliseconds(10));
}

TEST_F(PhaseTimerTest, NoMoreIsSplitThanWasHeldBack) {
  timer_.Switch(RankPhase::kAllReduce, now_);
  timer_.HoldBack(milliseconds(90), now_ += milliseconds(10));
  timer_.SettleHeldBack(milliseconds(50));
  EXPECT_EQ(Of(RankPhase::kStragglerWait), milliseconds(10));
  EXPECT_EQ(Of(RankPhase::kAllReduce), milliseconds(0));
}

TEST_F(PhaseTimerTest, NotSettledIsAllReduce) {
  timer_.Switch(RankPhase::kAllReduce, now_);
  timer_.HoldBack(milliseconds(6), now_ += milliseconds(6));
  timer_.HoldBack(milliseconds(2), now_ += milliseconds(2));
  EXPECT_EQ(Of(RankPhase::kAllReduce), milliseconds(6));
  EXPECT_EQ(timer_.held_back(), milliseconds(2));
}

TEST_F(PhaseTimerTest, TimeOfAnotherPhaseIsMovedThere) {
  timer_.Switch(RankPhase::kCompute, now_);
  timer_.Move(RankPhase::kAllReduce, milliseconds(3), now_ += milliseconds(10));
  EXPECT_EQ(Of(RankPhase::kCompute), milliseconds(7));
  EXPECT_EQ(Of(RankPhase::kAllReduce), milliseconds(3));
  // Never more than there is.
  timer_.Move(RankPhase::kAllReduce, milliseconds(90), now_);
  EXPECT_EQ(Of(RankPhase::kCompute), milliseconds(0));
  EXPECT_EQ(Sum(), milliseconds(10));
}

}  // namespace
}  // namespace lockstep::worker::runtime
