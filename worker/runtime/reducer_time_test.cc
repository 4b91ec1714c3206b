#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "worker/runtime/reducer_test_util.h"
#include "worker/runtime/stepped_reducer.h"

namespace lockstep::worker::runtime {
namespace {

using std::chrono::milliseconds;

void SpinFor(Duration time) {
  const MonoTime until = MonotonicNow() + time;
  while (MonotonicNow() < until) std::this_thread::yield();
}

TEST(ReducerTimeTest, WaitingForALateRankIsStragglerWait) {
  FakeGroup group(2);
  RunRanks(2, [&](int r) {
    const MonoTime start = MonotonicNow();
    ReducingRank rank(&group, r);
    if (r == 1) {
      // Late by 30 ms after the other has come.
      while (!group.Waits(0)) std::this_thread::yield();
      SpinFor(milliseconds(30));
    }
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(rank.reducer->Finish({}).ok());
      ASSERT_TRUE(rank.reducer->Commit().ok());
    }
    // The first step's split is known since the second.
    if (r == 0) {
      EXPECT_GT(rank.Seconds(task::RankPhase::kStragglerWait),
                milliseconds(10));
    } else {
      EXPECT_EQ(rank.Seconds(task::RankPhase::kStragglerWait), Duration(0));
    }
    // Rank 1 came late, by half the difference of two.
    const double lag = rank.progress->counters().straggler_lag_seconds;
    EXPECT_GT(r == 0 ? -lag : lag, 0.005);
    // Waiting for it was not busy.
    const Duration wall = MonotonicNow() - start;
    EXPECT_GE(rank.Busy() + milliseconds(1),
              rank.Seconds(task::RankPhase::kAllReduce));
    EXPECT_LE(rank.Busy(),
              wall - rank.Seconds(task::RankPhase::kStragglerWait));
  });
}

TEST(ReducerTimeTest, BusyIsFromTheFirstBucketOn) {
  FakeGroup group(2);
  std::atomic<bool> hidden = false;
  RunRanks(2, [&](int r) {
    ReducingRank rank(&group, r);
    // The bucket of rank 0 is under way until rank 1 has come, too.
    if (r == 0) {
      ASSERT_TRUE(rank.reducer->Ready(2).ok());
      SpinFor(milliseconds(30));
      hidden = true;
    }
    while (!hidden) std::this_thread::yield();
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(rank.reducer->Finish({}).ok());
      ASSERT_TRUE(rank.reducer->Commit().ok());
    }
    if (r == 0) {
      EXPECT_GE(rank.Busy(), milliseconds(30));
    }
    EXPECT_GE(rank.Busy() + milliseconds(1),
              rank.Seconds(task::RankPhase::kAllReduce));
  });
}

TEST(ReducerTimeTest, BusyIsWhatWasHiddenAndAllOfTheWait) {
  FakeGroup group(2);
  RunRanks(2, [&](int r) {
    ReducingRank rank(&group, r);
    if (r == 0) {
      ASSERT_TRUE(rank.reducer->Ready(2).ok());
      SpinFor(milliseconds(30));
    } else {
      while (!group.Waits(0)) std::this_thread::yield();
      SpinFor(milliseconds(30));
    }
    ASSERT_TRUE(rank.reducer->Finish({}).ok());
    rank.progress->SettleHeldBack(Duration(0));
    if (r == 0) {
      EXPECT_GE(rank.Busy(), milliseconds(60));
    }
  });
}

TEST(ReducerTimeTest, SettlingIsBusy) {
  FakeGroup group(2);
  RunRanks(2, [&](int r) {
    ReducingRank rank(&group, r);
    if (r == 1) {
      while (!group.Waits(0)) std::this_thread::yield();
      SpinFor(milliseconds(30));
    }
    ASSERT_TRUE(rank.reducer->Settle().ok());
    if (r == 0) {
      EXPECT_GE(rank.Busy(), milliseconds(30));
    }
    // All of it: a rounding of seconds apart.
    EXPECT_GE(rank.Busy() + std::chrono::microseconds(1),
              rank.Seconds(task::RankPhase::kAllReduce));
  });
}

TEST(ReducerTimeTest, BusyEndsWithTheBucketAndNotWhenItIsSeen) {
  FakeGroup group(1);
  ReducingRank rank(&group, 0);
  const MonoTime start = MonotonicNow();
  ASSERT_TRUE(rank.reducer->Ready(2).ok());
  SpinFor(milliseconds(50));
  ASSERT_TRUE(rank.reducer->Ready(1).ok());
  ASSERT_TRUE(rank.reducer->Finish({}).ok());
  ASSERT_TRUE(rank.reducer->Commit().ok());
  rank.progress->SettleHeldBack(Duration(0));
  EXPECT_GT(rank.Busy(), Duration(0));
  EXPECT_LE(rank.Busy(), MonotonicNow() - start - milliseconds(50));
}

TEST(ReducerTimeTest, InlineBucketsMoveOnAtEachGradient) {
  FakeGroup group(2);
  std::atomic<int> started = 0;
  RunRanks(2, [&](int r) {
    ReducingRank rank(&group, r, {}, collective::ProgressMode::kInline);
    const auto gradients = RandomGradients(static_cast<uint32_t>(r));
    const auto others = RandomGradients(static_cast<uint32_t>(1 - r));
    EXPECT_TRUE(rank.reducer->Put(2, gradients[2]).ok());
    EXPECT_EQ(rank.progress->counters().collectives, 1u);
    ++started;
    while (started < 2) std::this_thread::yield();
    // Both have started it, so that now it can end.
    EXPECT_TRUE(rank.reducer->Put(1, gradients[1]).ok());
    ++started;
    while (started < 4) std::this_thread::yield();
    EXPECT_FLOAT_EQ(rank.reducer->gradient(2)[7],
                    gradients[2][7] + others[2][7]);
    EXPECT_TRUE(rank.reducer->Put(0, gradients[0]).ok());
    ASSERT_TRUE(rank.reducer->Finish({}).ok());
    for (size_t i = 0; i < 3; ++i) {
      for (size_t k = 0; k < kParameters[i].elements; ++k) {
        ASSERT_EQ(rank.reducer->gradient(i)[k], gradients[i][k] + others[i][k]);
      }
    }
    ASSERT_TRUE(rank.reducer->Commit().ok());
    rank.progress->SettleHeldBack(Duration(0));
    rank.progress->Publish();
    // What was done in the hooks is neither hidden nor computing.
    EXPECT_NEAR(ToSeconds(rank.Busy()),
                ToSeconds(rank.Seconds(task::RankPhase::kAllReduce)), 20e-3);
    EXPECT_GT(rank.Busy(), Duration(0));
  });
}

TEST(ReducerTimeTest, TheLateRankIsNamedByAll) {
  FakeGroup group(2);
  RunRanks(2, [&](int r) {
    ReducingRank rank(&group, r);
    for (int step = 0; step < 5; ++step) {
      if (r == 1) {
        // Late after the other has come, however busy the machine is.
        while (!group.Waits(0)) std::this_thread::yield();
        SpinFor(milliseconds(100));
      }
      ASSERT_TRUE(rank.reducer->Finish({}).ok());
      ASSERT_TRUE(rank.reducer->Commit().ok());
    }
    const task::CommunicationReading& c =
        rank.progress->counters().communication;
    EXPECT_EQ(c.late_rank, 1);
    EXPECT_EQ(c.straggler.rank, 1);
    EXPECT_EQ(c.straggler.steps, 4u);
    EXPECT_GT(c.straggler.cost, 0);
    EXPECT_EQ(c.longest_waits[0].rank, 1);
    if (r == 0) {
      EXPECT_GT(c.late_waited_seconds, 0.005);
      EXPECT_GT(c.longest_waits[0].waited_seconds, 0.02);
    } else {
      EXPECT_EQ(c.late_waited_seconds, 0);
    }
    EXPECT_GT(c.bus_bytes_per_second, 0);
  });
}

}  // namespace
}  // namespace lockstep::worker::runtime
