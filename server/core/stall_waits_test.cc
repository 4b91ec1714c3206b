// Stalls of ranks that say for whom they wait.
#include <gtest/gtest.h>

#include "server/core/stall.h"
#include "server/core/stall_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// All ranks say for whom they wait.
class TellingStallTest : public StallTest {
 protected:
  TellingStallTest() {
    for (int32_t rank = 0; rank < 3; ++rank) Say(rank, -1);
    Beat();
    Steps(50);
  }
  // `peer` -1: it waits for none.
  void Say(int32_t rank, int32_t peer) {
    auto& said = ranks_[rank].progress.collective_wait;
    if (!said) said.emplace();
    said->responsive = true;
    said->waiting = peer >= 0;
    said->peer.reset();
    if (peer >= 0) said->peer = peer;
    ++said->waits;
  }
  void Stop(int32_t rank) {
    ranks_[rank].progress.collective_wait->responsive = false;
  }
  // All are in the all-reduce of this step; 0 and 2 wait for 1, which waited
  // for 2 when it was stopped.
  void AllReduce() {
    for (int32_t rank = 0; rank < 3; ++rank) Put(rank, "allreduce");
    Say(0, 1);
    Say(1, 2);
    Say(2, 1);
    Beat();
  }
};

TEST_F(TellingStallTest, ARankThatIsStoppedInTheAllReduceIsNamedAtD) {
  AllReduce();
  for (int i = 0; i < 6; ++i) Beat();
  Stop(1);  // As its daemon sees after three seconds.
  EXPECT_EQ(After(60s), 3s) << "6 s after it was stopped";
  const auto stall = Stalled();
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->rank, 1);
  EXPECT_EQ(stall->phase, "allreduce");
  EXPECT_EQ(stall->step, 51);
  EXPECT_EQ(stall->waiting, 2);
}

TEST_F(TellingStallTest, ItIsSeenBeforeItIsGivenUp) {
  AllReduce();
  Say(1, -1);
  Beat();
  const MonoTime began = now_;
  while (!watch_.StalledRank({3, {}}, now_) && now_ - began < 10s) Beat();
  EXPECT_EQ(now_ - began, 3s);
  const auto seen = watch_.StalledRank({3, {}}, now_);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->rank, 1);
  EXPECT_LE(seen->limit, 6s);
}

// What was told of all ranks before they had said for whom they wait would hold
// the limit of the one up.
TEST_F(TellingStallTest, NoLimitIsToldBeforeTheRanksHaveSaidIt) {
  AllReduce();
  const MonoTime began = now_;
  while (now_ - began <= 4s) {
    EXPECT_FALSE(watch_.StalledRank({3, {}}, now_));
    Beat();
  }
  // A circle so far.
  while (!watch_.StalledRank({3, {}}, now_) && now_ - began < 10s) Beat();
  EXPECT_EQ(watch_.StalledRank({3, {}}, now_)->rank, -1);
  EXPECT_LE(now_ - began, 5500ms);
  EXPECT_EQ(After(60s), 25s) << "after 30 s in all, as the network's";
}

TEST_F(TellingStallTest, WhileBytesFlowNoRankIsNamed) {
  AllReduce();
  Stop(1);
  const MonoTime began = now_;
  while (now_ - began < 20s) {
    Say(0, 1);
    Beat();
    EXPECT_FALSE(Stalled());
  }
  EXPECT_EQ(watch_.StalledRank({3, {}}, now_)->rank, -1) << "all are slow";
  EXPECT_EQ(After(60s), 3s) << "they stand still, and one is stopped";
  EXPECT_EQ(Stalled()->rank, 1);
}

// It is named, and gets the time of all ranks together.
TEST_F(TellingStallTest, TheOneThatComputesInTheAllReduceIsGivenMoreTime) {
  busy_ = 1;
  AllReduce();
  Say(1, -1);
  EXPECT_EQ(After(20min), 30500ms);
  EXPECT_EQ(Stalled()->rank, 1);
}

// Its children go on: input workers, a profiler.
TEST_F(TellingStallTest, AStoppedProcessDoesNotCompute) {
  busy_ = 1;
  AllReduce();
  Stop(1);
  ASSERT_TRUE(After(60s));
  EXPECT_LE(Stalled()->still, 7s);
  EXPECT_EQ(Stalled()->rank, 1);
}

// Rank 0 has left the all-reduce of the step before. Of the two that have not,
// rank 2 came there first.
TEST_F(TellingStallTest, TheOneThatNeverLeftTheLastStepIsTheOneThatIsStopped) {
  Put(2, "allreduce");
  Beat();
  Put(1, "allreduce");
  Beat();
  ++step_;
  Put(0, "allreduce");
  Say(0, 2);
  Say(2, 1);
  Say(1, 2);
  Beat();
  Stop(1);
  ASSERT_TRUE(After(60s));
  EXPECT_EQ(Stalled()->rank, 1);
  EXPECT_EQ(Stalled()->step, 51);
  EXPECT_EQ(Stalled()->waiting, 2);
  EXPECT_LE(Stalled()->still, 7s);
}

// The network lost the bytes that rank 1 lacks: it is not stuck.
TEST_F(TellingStallTest, ACircleOverTwoStepsIsTheNetworksToo) {
  Put(1, "allreduce");
  ++step_;
  Put(0, "allreduce");
  Put(2, "allreduce");
  Say(0, 1);
  Say(1, 2);
  Say(2, 1);
  Beat();
  EXPECT_EQ(After(60s), 30500ms);
  EXPECT_EQ(Stalled()->rank, -1);
  EXPECT_EQ(Stalled()->waiting, 3);
}

TEST_F(TellingStallTest, OneThatIsFrozenInItsComputationIsNamedAtD) {
  Freeze("compute");
  Say(0, 1);
  Say(1, -1);
  Say(2, 0);
  EXPECT_EQ(After(60s), 5500ms);
  EXPECT_EQ(Stalled()->rank, 1);
  EXPECT_EQ(Stalled()->waiting, 2);
}

// Backends that tell no peers.
TEST_F(TellingStallTest, WhereTheWordsTellNothingThePagesDo) {
  for (RankStatus& rank : ranks_)
    rank.progress.collective_wait->waiting.reset();
  Freeze("compute");
  const MonoTime began = now_;
  while (!watch_.StalledRank({3, {}}, now_) && now_ - began < 20s) Beat();
  EXPECT_EQ(now_ - began, 3s) << "half of D";
  EXPECT_EQ(After(60s), 2500ms);
  EXPECT_EQ(Stalled()->rank, 1);
}

// All ranks waited for it for long, as it computed. Now it is a part of the
// all-reduce.
TEST_F(TellingStallTest, ALateRankLeavesTheOthersTheirTime) {
  busy_ = 0;
  Put(1, "allreduce");
  Put(2, "allreduce");
  for (int i = 0; i < 80; ++i) {
    Beat();
    EXPECT_FALSE(Stalled());
  }
  Put(0, "allreduce");
  busy_ = 1;
  Say(0, 1);
  Say(1, -1);
  Say(2, 1);
  Beat();
  EXPECT_EQ(After(20min), 20500ms) << "a minute after it came";
  EXPECT_EQ(Stalled()->rank, 1);
}

// Its host has no processor for it for a moment.
TEST_F(TellingStallTest, AShortSilenceIsNoStop) {
  busy_ = 1;
  Freeze("compute");
  Say(0, 1);
  Say(2, 1);
  for (int i = 0; i < 40; ++i) Beat();
  Stop(1);
  for (int i = 0; i < 3; ++i) {
    Beat();
    EXPECT_FALSE(Stalled());
  }
  Say(1, -1);
  Beat();
  EXPECT_FALSE(Stalled());
  for (int i = 0; i < 6; ++i) Beat();
  Stop(1);
  EXPECT_EQ(After(60s), 3s) << "it has said nothing for 5 s then";
  EXPECT_EQ(Stalled()->rank, 1);
}

// Before its daemon sees that it is stopped, it waits for input, which may take
// long.
TEST_F(TellingStallTest, OneThatIsStoppedAtItsInputIsNamedAtD) {
  Freeze("input");
  Say(0, 1);
  Say(2, 1);
  const MonoTime began = now_;
  for (int i = 0; i < 8; ++i) {
    Beat();
    if (i == 6) Stop(1);
    if (const auto seen = watch_.StalledRank({3, {}}, now_)) {
      EXPECT_LE(seen->limit, 8s);
      watch_.RecordAnnounced(*seen);
    }
  }
  ASSERT_TRUE(After(60s));
  EXPECT_LE(now_ - began, 7s);
  EXPECT_EQ(Stalled()->rank, 1);
}

TEST_F(TellingStallTest, OneThatDoesNotTellLeavesTheOldLimit) {
  AllReduce();
  Stop(1);
  ranks_[2].progress.collective_wait.reset();
  EXPECT_EQ(After(60s), 30500ms);
  EXPECT_EQ(Stalled()->rank, -1);
}

}  // namespace
}  // namespace lockstep::server
