// How operations end that cannot succeed: abort, deadline, a peer that dies,
// freezes or leaves. Bounds are far above what is measured (milliseconds), and
// far below the 30 s at which an operation would end by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <thread>

#include "worker/collective/communicator.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Duration kSoon = seconds(10);
constexpr Duration kAbortLimit = seconds(30);

Operation AllReduce(Communicator* c, size_t count) {
  auto buffer = c->Allocate(count * 4);
  return {.slice = {*buffer, 0, count, DataType::kFloat32}};
}

// Of all threads of this process.
double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

class ThreadRanks : public FormedRanks {
 public:
  explicit ThreadRanks(int n)
      : FormedRanks(n, [n](int rank, RendezvousStore* store) {
          return FormCommunicator(TestOptions(rank, n, store));
        }) {
    EXPECT_TRUE(status().ok()) << status();
  }
};

TEST(AbortTest, EndsWhatWaitsAndWhatComesLater) {
  ThreadRanks ranks(4);
  // Rank 3 never starts its part.
  std::vector<std::unique_ptr<Work>> works;
  for (int rank = 0; rank < 3; ++rank) {
    const Operation operation = AllReduce(ranks[rank], 100000);
    // The second one is still in the queue.
    for (int i = 0; i < 2; ++i) {
      auto work = ranks[rank]->Start(operation);
      ASSERT_TRUE(work.ok());
      EXPECT_FALSE((*work)->Poll());
      works.push_back(std::move(*work));
    }
  }
  const MonoTime start = MonotonicNow();
  SpawnRanks(3, [&](int rank) {
    ranks[rank]->Abort("the job was cancelled");
    ranks[rank]->Abort("a later reason");
  });
  for (int rank = 0; rank < 3; ++rank) {
    const Status first = works[2 * rank]->Wait(start + kAbortLimit);
    // The abort of another rank may have been seen before our own.
    if (first.code() != StatusCode::kUnavailable) {
      EXPECT_EQ(first.code(), StatusCode::kAborted) << first;
      EXPECT_EQ(Message(first), "job test g1: the job was cancelled");
    }
    EXPECT_EQ(works[2 * rank + 1]->Wait(start + kAbortLimit), first);
    EXPECT_EQ(ranks[rank]->Start({.kind = CollectiveKind::kBarrier}).status(),
              first);
  }
  EXPECT_LT(MonotonicNow() - start, kSoon);
}

TEST(AbortTest, OfOneRankIsSeenByAllOthers) {
  ThreadRanks ranks(4);
  std::vector<std::unique_ptr<Work>> works;
  for (int rank = 0; rank < 3; ++rank) {
    auto work = ranks[rank]->Start(AllReduce(ranks[rank], 100000));
    ASSERT_TRUE(work.ok());
    works.push_back(std::move(*work));
  }
  const MonoTime start = MonotonicNow();
  ranks[1]->Abort("stop");
  EXPECT_EQ(works[1]->Wait(start + kAbortLimit).code(), StatusCode::kAborted);
  for (const int rank : {0, 2}) {
    const Status status = works[rank]->Wait(start + kAbortLimit);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status), HasSubstr("connection to rank"));
  }
  // Rank 3 waits for nothing yet; it learns as soon as it starts.
  EXPECT_EQ(collective::Run(ranks[3], AllReduce(ranks[3], 100000), kAbortLimit)
                .code(),
            StatusCode::kUnavailable);
  EXPECT_LT(MonotonicNow() - start, kSoon);
}

TEST(AbortTest, WithDataInFlight) {
  for (int round = 0; round < 10; ++round) {
    ThreadRanks ranks(3);
    std::array<std::atomic<int>, 3> steps{};
    std::array<Status, 3> ends;
    std::array<MonoTime, 3> times;
    std::atomic<bool> aborted{false};
    MonoTime start;
    std::thread aborter([&] {
      // Somewhere within the next operation, elsewhere in each round.
      EXPECT_TRUE(AwaitTrue([&] { return steps[round % 3] >= 2; }));
      std::this_thread::sleep_for(milliseconds(round));
      start = MonotonicNow();
      aborted = true;
      ranks[round % 3]->Abort("stop");
    });
    SpawnRanks(3, [&](int rank) {
      const Operation operation =
          AllReduce(ranks[rank], kSanitized ? 1 << 20 : 4 << 20);
      do {
        ends[rank] = collective::Run(ranks[rank], operation, kAbortLimit);
        ++steps[rank];
      } while (ends[rank].ok());
      times[rank] = MonotonicNow();
    });
    aborter.join();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ends[rank].code(), rank == round % 3 ? StatusCode::kAborted
                                                     : StatusCode::kUnavailable)
          << ends[rank];
      EXPECT_LT(times[rank] - start, kSoon);
    }
  }
}

// It spins for a moment, then sleeps.
TEST(DeadlineTest, IsAwaitedAsleep) {
  ThreadRanks ranks(2);
  const Operation operation = AllReduce(ranks[0], 100000);
  const double before = CpuSeconds();
  EXPECT_EQ(collective::Run(ranks[0], operation, milliseconds(500)).code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_LT(CpuSeconds() - before, 0.1);
}

TEST(DeadlineTest, BreaksTheCommunicatorAndNamesThePeer) {
  ThreadRanks ranks(2);
  const MonoTime start = MonotonicNow();
  const Status late = collective::Run(
      ranks[0], {.kind = CollectiveKind::kBarrier}, milliseconds(100));
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  // A hierarchy says on which of its sides.
  EXPECT_THAT(Message(late),
              AllOf(StartsWith("job test g1: "),
                    EndsWith("barrier did not end before its deadline, waiting "
                             "for rank 1")));
  EXPECT_EQ(ranks[0]->Start({.kind = CollectiveKind::kBarrier}).status(), late);
  EXPECT_EQ(
      collective::Run(ranks[1], {.kind = CollectiveKind::kBarrier}, kAbortLimit)
          .code(),
      StatusCode::kUnavailable);
  EXPECT_LT(MonotonicNow() - start, kSoon);
}

// Rank 0 starts a barrier, to which rank 1 never comes, with an operation
// timeout of 100 ms, and does `end` with it.
template <typename End>
void LeaveABarrierAlone(End end) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  SpawnRanks(2, [&](int rank) {
    auto options = TestOptions(rank, 2, &store);
    options.operation_timeout = milliseconds(100);
    auto c = FormCommunicator(options);
    ASSERT_TRUE(c.ok());
    if (rank == 1) {
      // Leaves only when rank 0 has broken it off.
      EXPECT_TRUE(store.Get("over", MonotonicNow() + kAbortLimit).ok());
      return;
    }
    const MonoTime start = MonotonicNow();
    {
      auto work = (*c)->Start({.kind = CollectiveKind::kBarrier});
      ASSERT_TRUE(work.ok());
      end(work->get());
    }  // waits for the end
    EXPECT_GE(MonotonicNow() - start, milliseconds(100));
    EXPECT_LT(MonotonicNow() - start, kSoon);
    EXPECT_EQ((*c)->Start({.kind = CollectiveKind::kBarrier}).status().code(),
              StatusCode::kDeadlineExceeded);
    ASSERT_TRUE(store.Put("over", "").ok());
  });
}

TEST(DeadlineTest, OperationTimeoutEndsAbandonedWork) {
  LeaveABarrierAlone([](Work*) {});
}

TEST(DeadlineTest, OperationTimeoutEndsAWaitWithoutADeadline) {
  LeaveABarrierAlone([](Work* work) {
    EXPECT_EQ(work->Wait(MonoTime::max()).code(),
              StatusCode::kDeadlineExceeded);
  });
}

// Several leave at once, each as soon as it is done, while others are still
// passing on the last operation.
TEST(LeaveTest, ARankThatIsDoneMayLeaveBeforeTheOthers) {
  signal(SIGPIPE, SIG_IGN);
  constexpr int kRanks = 8;
  for (int round = 0; round < 20; ++round) {
    MapRendezvousStore store;
    SpawnRanks(kRanks, [&](int rank) {
      auto c = FormCommunicator(TestOptions(rank, kRanks, &store));
      ASSERT_TRUE(c.ok()) << c.status();
      const Operation reduce = AllReduce(c->get(), 50000);
      const Status first = collective::Run(c->get(), reduce, kAbortLimit);
      EXPECT_TRUE(first.ok()) << first;
      Operation last{.kind = CollectiveKind::kBarrier};
      if (round % 2 == 0) {
        last = AllReduce(c->get(), 50000);
        last.kind = CollectiveKind::kBroadcast;
        last.root = round / 2 % kRanks;
      }
      const Status status = collective::Run(c->get(), last, kAbortLimit);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
}

// Ranks that are processes, each running one operation again and again.
class ProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { signal(SIGPIPE, SIG_IGN); }

  template <typename Make>
  int Loop(int rank, int n, Make make) {
    DirectoryRendezvousStore store(board_.dir());
    auto c = FormCommunicator(TestOptions(rank, n, &store));
    if (!c.ok()) return 100;
    return board_.RunUntilError(c->get(), rank, make(c->get()));
  }

  RankBoard board_;
};

class KillTest : public ProcessTest,
                 public ::testing::WithParamInterface<size_t> {};
// Elements: of each of tcp's algorithms; 16 MiB are always in flight.
INSTANTIATE_TEST_SUITE_P(Sizes, KillTest,
                         ::testing::Values(16, 20000, 4 << 20));

TEST_P(KillTest, SurvivorsAreToldAtOnce) {
  constexpr int kRanks = 4;
  RankProcesses ranks(kRanks, [&](int rank) {
    return Loop(rank, kRanks,
                [](Communicator* c) { return AllReduce(c, GetParam()); });
  });
  ASSERT_TRUE(AwaitTrue([&] { return board_.AllMade(kRanks, 2); }));
  const MonoTime start = MonotonicNow();
  ranks.Signal(1, SIGKILL);
  for (const int rank : {0, 2, 3}) {
    EXPECT_EQ(ranks.Join(rank, start + kAbortLimit),
              static_cast<int>(StatusCode::kUnavailable));
    EXPECT_LT(board_.EndedAfter(rank, start), kSoon) << rank;
    RecordProperty(
        fmt::format("rank{}_us", rank),
        board_.EndedAfter(rank, start) / std::chrono::microseconds(1));
  }
}

TEST_P(KillTest, FrozenPeerIsLeftByAbort) {
  constexpr int kRanks = 3;
  RankProcesses ranks(kRanks, [&](int rank) {
    return Loop(rank, kRanks,
                [](Communicator* c) { return AllReduce(c, GetParam()); });
  });
  ASSERT_TRUE(AwaitTrue([&] { return board_.AllMade(kRanks, 2); }));
  ranks.Signal(2, SIGSTOP);
  // The others stand still once they wait for the frozen one.
  ASSERT_TRUE(board_.AwaitStill(2));
  const MonoTime start = MonotonicNow();
  board_->abort = true;
  for (const int rank : {0, 1}) {
    // Aborted, or told so by the other one's abort.
    const int code = ranks.Join(rank, start + kAbortLimit);
    EXPECT_TRUE(code == static_cast<int>(StatusCode::kAborted) ||
                code == static_cast<int>(StatusCode::kUnavailable))
        << code;
    EXPECT_LT(board_.EndedAfter(rank, start), kSoon) << rank;
  }
}

TEST_F(ProcessTest, HalfSentBroadcastToAFrozenPeerIsLeftByAbort) {
  RankProcesses ranks(2, [&](int rank) {
    return Loop(rank, 2, [](Communicator* c) {
      Operation operation = AllReduce(c, 16 << 20);
      operation.kind = CollectiveKind::kBroadcast;
      return operation;
    });
  });
  ASSERT_TRUE(AwaitTrue([&] { return board_.AllMade(2, 1); }));
  ranks.Signal(1, SIGSTOP);
  ASSERT_TRUE(board_.AwaitStill(1));
  const MonoTime start = MonotonicNow();
  board_->abort = true;
  EXPECT_EQ(ranks.Join(0, start + kAbortLimit),
            static_cast<int>(StatusCode::kAborted));
  EXPECT_LT(board_.EndedAfter(0, start), kSoon);
}

// Of hierarchical, two ranks on each of two hosts.
TEST_F(ProcessTest, FiveHundredGenerationsLeaveNothingBehind) {
  const int n = TestOptions(0, 2, nullptr).backend == "hierarchical" ? 4 : 2;
  RankProcesses ranks(n, [&](int rank) {
    Usage first;
    for (int generation = 0; generation < (kSanitized ? 100 : 500);
         ++generation) {
      const std::string dir = fmt::format("{}/{}", board_.dir(), generation);
      std::filesystem::create_directories(dir);
      DirectoryRendezvousStore store(dir);
      {
        auto c = FormCommunicator(TestOptions(rank, n, &store));
        if (!c.ok()) return 100;
        const Operation reduce = AllReduce(c->get(), 1000);
        // Every other generation ends by an abort, which may meet the other
        // ranks at the end of the operation.
        const bool aborts = generation % 2 == 1;
        if (!collective::Run(c->get(), reduce, kAbortLimit).ok() && !aborts)
          return 101;
        if (aborts) (*c)->Abort("next");
      }
      if (generation == 50) first = UsageNow();
    }
    const Status status = CheckNoGrowth(first);
    if (!status.ok()) {
      fprintf(stderr, "%s\n", Message(status).c_str());
      return 102;
    }
    // Of 450 generations: 2 KiB of each, and no segment of any.
    const Usage last = UsageNow();
    if (!kSanitized && (last.resident_kib > first.resident_kib + 1024 ||
                        last.mappings > first.mappings + 4)) {
      return 103;
    }
    return 0;
  });
  const MonoTime deadline = MonotonicNow() + seconds(100);
  for (int rank = 0; rank < n; ++rank) {
    EXPECT_EQ(ranks.Join(rank, deadline), 0) << rank;
  }
}

}  // namespace
}  // namespace lockstep::worker::collective
