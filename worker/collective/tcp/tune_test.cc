// Tuning: which plan the measurements make, and that it is safe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <functional>
#include <thread>
#include <vector>

#include "worker/collective/tcp/plan.h"
#include "worker/collective/tcp/tcp_test_util.h"
#include "worker/collective/tcp/tuner.h"

namespace lockstep::worker::collective::tcp {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Lines between ranks: seconds for a message, and bytes per second of one
// connection and of all.
struct Line {
  double latency = 20e-6;
  double flow = 1e9;
  double all = 1e9;
};

// What an all-reduce takes by the alpha-beta model.
double Takes(const Line& line, int ranks, size_t bytes, const Plan& plan) {
  const double rate = std::min(line.flow * plan.streams, line.all);
  const double n = static_cast<double>(bytes);
  const int rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
  if (bytes < plan.doubling_below) return rounds * (line.latency + n / rate);
  const double moved = 2 * n * (ranks - 1) / ranks / rate;
  if (bytes < plan.halving_below) {
    // Its messages do not overlap with the arithmetic.
    return 2 * rounds * line.latency + moved * 1.3;
  }
  return 2 * (ranks - 1) * line.latency + moved;
}

struct Tuned {
  Plan plan;
  double spent = 0;
  int connects = 0;
  size_t largest = 0;
};

Tuned TuneOver(const Line& line, int ranks, double budget, const Plan& base) {
  Tuned tuned;
  Tuner tuner(base, ranks,
              duration_cast<Duration>(std::chrono::duration<double>(budget)));
  const double control =
      line.latency * std::bit_width(static_cast<unsigned>(ranks - 1));
  for (int steps = 0; steps < 1000; ++steps) {
    const TuneStep step = tuner.Next(
        duration_cast<Duration>(std::chrono::duration<double>(tuned.spent)));
    tuned.spent += control;
    if (step.what == TuneStep::kDone) {
      tuned.plan = step.plan;
      EXPECT_TRUE(CheckPlan(tuned.plan).ok());
      return tuned;
    }
    if (step.what == TuneStep::kConnect) {
      ++tuned.connects;
      tuned.spent += 4 * line.latency;
      tuner.NoteConnected(true);
      continue;
    }
    tuned.largest = std::max(tuned.largest, step.bytes);
    const double took =
        step.repeats * Takes(line, ranks, step.bytes, step.plan);
    tuned.spent += took;
    tuner.NoteTime(
        duration_cast<Duration>(std::chrono::duration<double>(took)));
  }
  ADD_FAILURE() << "it does not end";
  return tuned;
}

TEST(TunerTest, ThresholdsLieWhereTheModelCrosses) {
  for (const int ranks : {2, 4, 8, 64}) {
    for (const double latency : {5e-6, 20e-6, 100e-6}) {
      const Line line{.latency = latency};
      const Plan base = MakePlan(ranks, HostSharing::kNone);
      const Plan plan = TuneOver(line, ranks, 1.0, base).plan;
      for (size_t bytes = 8 << 10; bytes <= (2 << 20); bytes *= 2) {
        double best = 1e9;
        for (const auto& [doubling, halving] :
             {std::pair<size_t, size_t>{1 << 30, 1 << 30},
              {0, 1 << 30},
              {0, 0}}) {
          Plan one = base;
          one.doubling_below = doubling;
          one.halving_below = halving;
          best = std::min(best, Takes(line, ranks, bytes, one));
        }
        // Sizes are measured in steps of four.
        EXPECT_LT(Takes(line, ranks, bytes, plan), best * 1.9)
            << ranks << " ranks, " << latency << " s, " << bytes << " bytes, "
            << PlanLine(plan, ranks);
      }
    }
  }
}

TEST(TunerTest, BudgetsHoldOnAnyLine) {
  for (const int ranks : {2, 4, 16, 512}) {
    for (const double latency : {5e-6, 100e-6, 2e-3, 50e-3}) {
      for (const double rate : {1e5, 1e7, 1e9}) {
        const Line line{.latency = latency, .flow = rate, .all = rate};
        const Plan base = MakePlan(ranks, HostSharing::kNone);
        const Tuned tuned = TuneOver(line, ranks, 0.05, base);
        // It must look once at each line, however slow.
        const double once =
            Takes(line, ranks, 4096, base) +
            4 * latency * std::bit_width(static_cast<unsigned>(ranks - 1));
        EXPECT_LT(tuned.spent, 0.055 + 2 * once)
            << ranks << " ranks, " << latency << " s, " << rate << " B/s";
      }
    }
  }
}

TEST(TunerTest, WhatWasNotMeasuredStays) {
  const Plan base = MakePlan(8, HostSharing::kNone);
  EXPECT_EQ(TuneOver({}, 8, 0, base).plan, base);
  EXPECT_EQ(TuneOver({.latency = 0.2}, 8, 0.05, base).plan, base);
  const Tuned slow =
      TuneOver({.latency = 1e-4, .flow = 2e6, .all = 2e6}, 8, 0.2, base);
  EXPECT_LT(slow.largest, size_t{256} << 10);
  EXPECT_EQ(slow.plan.streams, 1);
  EXPECT_EQ(slow.plan.ahead, base.ahead);
}

TEST(TunerTest, SeveralConnectionsOnlyWhereTheyHelp) {
  const Plan base = MakePlan(4, HostSharing::kNone);
  const Tuned plain = TuneOver({}, 4, 1.0, base);
  EXPECT_EQ(plain.connects, 1);
  EXPECT_EQ(plain.plan.streams, 1);
  const Tuned bonded = TuneOver({.flow = 0.5e9, .all = 1e9}, 4, 1.0, base);
  EXPECT_EQ(bonded.plan.streams, 2);
  const Tuned limited = TuneOver({.flow = 0.25e9, .all = 4e9}, 4, 1.0, base);
  EXPECT_EQ(limited.plan.streams, 4);
}

TEST(TunerTest, RingsWhosePartsAreOnePieceAreNotCompared) {
  const Line line{.flow = 0.25e9, .all = 4e9};
  const Plan pieces = MakePlan(32, HostSharing::kNone);
  EXPECT_EQ(TuneOver(line, 32, 1.0, pieces).connects, 1);
  const Plan one = MakePlan(32, HostSharing::kAll);
  ASSERT_GT(one.chunk, Tuner::kLargest / 32);
  const Tuned tuned = TuneOver(line, 32, 1.0, one);
  EXPECT_EQ(tuned.connects, 0);
  Plan just_one = one;
  just_one.chunk = Tuner::kLargest / 32;
  EXPECT_EQ(TuneOver(line, 32, 1.0, just_one).connects, 0);
}

TEST(TuneTest, AllRanksGetOnePlanThatCanBeFollowedAgain) {
  for (const int n : {2, 3, 5, 18}) {
    std::string plan;
    {
      TcpRanks ranks(n);
      std::vector<std::string> plans(n);
      SpawnRanks(n, [&](int rank) {
        const Status status =
            ranks[rank]->Tune(milliseconds(50), MonotonicNow() + kLong);
        EXPECT_TRUE(status.ok()) << status;
        plans[rank] = ranks[rank]->ReductionPlan();
        const Operation operation = FloatsOf(ranks[rank], 300000);
        static_cast<float*>(operation.slice.buffer->data)[299999] = 1;
        const Status sum = collective::Run(ranks[rank], operation, kLong);
        EXPECT_TRUE(sum.ok()) << sum;
        EXPECT_EQ(static_cast<float*>(operation.slice.buffer->data)[299999], n);
      });
      for (const std::string& other : plans) EXPECT_EQ(other, plans[0]);
      plan = plans[0];
    }
    TcpRanks again(n, plan);
    for (int rank = 0; rank < n; ++rank) {
      EXPECT_EQ(again[rank]->ReductionPlan(), plan);
    }
    // It was given, so nothing is measured: no rank waits for another.
    const MonoTime start = MonotonicNow();
    EXPECT_TRUE(again[0]->Tune(seconds(10), start + kLong).ok());
    EXPECT_LT(MonotonicNow() - start, seconds(5));
    EXPECT_EQ(again[0]->ReductionPlan(), plan);
  }
}

// All ranks but the last tune; what the last does meanwhile ends it for them.
std::vector<Status> TuneWhile(int n, Duration timeout,
                              const std::function<void(TcpRanks*)>& last) {
  TcpRanks ranks(n);
  std::vector<Status> ends(n);
  SpawnRanks(n, [&](int rank) {
    if (rank == n - 1) return last(&ranks);
    const MonoTime start = MonotonicNow();
    ends[rank] = ranks[rank]->Tune(seconds(10), start + timeout);
    EXPECT_LT(MonotonicNow() - start, timeout + kSoon);
    EXPECT_FALSE(ends[rank].ok());
    // It is broken, as by any operation.
    EXPECT_EQ(ranks[rank]->Start(kBarrier).status(), ends[rank]);
    EXPECT_EQ(ranks[rank]->Tune(seconds(1), MonotonicNow() + kLong),
              ends[rank]);
  });
  ends.pop_back();
  return ends;
}

TEST(TuneTest, AnotherOperationIsNamed) {
  for (const int n : {2, 5}) {
    std::atomic<int> named{0};
    const auto ends = TuneWhile(n, kLong, [&](TcpRanks* ranks) {
      Communicator* const c = (*ranks)[n - 1];
      const Status status = collective::Run(c, FloatsOf(c, 100), kLong);
      EXPECT_THAT(status.code(), AnyOf(StatusCode::kFailedPrecondition,
                                       StatusCode::kUnavailable));
      if (status.code() == StatusCode::kFailedPrecondition) {
        ++named;
        EXPECT_THAT(Message(status), HasSubstr("tuning"));
      }
    });
    for (const Status& end : ends) {
      if (end.code() != StatusCode::kFailedPrecondition) continue;
      ++named;
      EXPECT_THAT(Message(end), HasSubstr("operation 2, tuning"));
      EXPECT_THAT(Message(end), HasSubstr("all-reduce (sum) of 100 float32"));
    }
    EXPECT_GE(named, 1);
  }
}

TEST(TuneTest, OneThatLeavesOrDoesNotComeIsNamed) {
  for (const Status& end :
       TuneWhile(2, kLong, [](TcpRanks* ranks) { ranks->Destroy(1); })) {
    EXPECT_EQ(end.code(), StatusCode::kUnavailable);
    EXPECT_EQ(Message(end), "job test g1: tuning: rank 1 has left");
  }
  for (const Status& end : TuneWhile(2, milliseconds(200), [](TcpRanks*) {})) {
    EXPECT_EQ(end.code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Message(end),
              "job test g1: tuning did not end before its deadline, waiting "
              "for rank 1");
  }
}

// At any time of it, also while further connections are made.
TEST(TuneTest, AbortEndsIt) {
  for (int round = 0; round < 20; ++round) {
    constexpr int kRanks = 3;
    TcpRanks ranks(kRanks);
    std::atomic<int> begun{0};
    MonoTime start;
    std::thread aborter([&] {
      EXPECT_TRUE(AwaitTrue([&] { return begun == kRanks; }));
      std::this_thread::sleep_for(milliseconds(2 * round));
      start = MonotonicNow();
      ranks[round % kRanks]->Abort("stop");
    });
    std::array<MonoTime, kRanks> ended;
    SpawnRanks(kRanks, [&](int rank) {
      ++begun;
      Status status;
      while (status.ok()) {
        status = ranks[rank]->Tune(milliseconds(40), MonotonicNow() + kLong);
      }
      EXPECT_EQ(status.code(), rank == round % kRanks
                                   ? StatusCode::kAborted
                                   : StatusCode::kUnavailable)
          << status;
      ended[rank] = MonotonicNow();
    });
    aborter.join();
    for (const MonoTime end : ended) EXPECT_LT(end - start, kSoon);
  }
}

TEST(TuneTest, WaitsForNothingThatIsUnderWay) {
  TcpRanks ranks(2);
  auto work = ranks[0]->Start(kBarrier);
  ASSERT_TRUE(work.ok());
  const Status status =
      ranks[0]->Tune(milliseconds(50), MonotonicNow() + kLong);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(collective::Run(ranks[1], kBarrier, kLong).ok());
  EXPECT_TRUE((*work)->Wait(MonotonicNow() + kLong).ok());
}

class TuneDeathTest : public ::testing::Test {
 protected:
  RankBoard board_;
};

TEST_F(TuneDeathTest, SurvivorsOfAKilledRankAreToldAtOnce) {
  constexpr int kRanks = 3;
  RankProcesses ranks(kRanks, [&](int rank) {
    DirectoryRendezvousStore store(board_.dir());
    auto c = FormTcp(TcpOptions(rank, kRanks, &store));
    if (!c.ok()) return 100;
    Status status;
    while (status.ok()) {
      status = (*c)->Tune(milliseconds(20), MonotonicNow() + kLong);
      ++board_->steps[rank];
    }
    board_->ended[rank] = MonotonicNow().time_since_epoch().count();
    return static_cast<int>(status.code());
  });
  ASSERT_TRUE(AwaitTrue([&] { return board_.AllMade(kRanks, 2); }));
  const MonoTime start = MonotonicNow();
  ranks.Signal(2, SIGKILL);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ranks.Join(rank, start + kLong),
              static_cast<int>(StatusCode::kUnavailable));
    EXPECT_LT(board_.EndedAfter(rank, start), kSoon);
  }
}

}  // namespace
}  // namespace lockstep::worker::collective::tcp
