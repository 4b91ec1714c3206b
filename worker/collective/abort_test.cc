// How operations end that cannot succeed: abort, deadline, a peer that dies,
// freezes or leaves. Bounds are far above what is measured (milliseconds), and
// far below the 30 s at which an operation would end by itself.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <thread>

#include "worker/collective/communicator.h"
#include "worker/collective/testing.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr Duration kSoon = seconds(3);
constexpr Duration kLong = seconds(30);

// Waits for a condition, which must come true within 20 s.
template <typename Condition>
void Await(Condition condition) {
  const MonoTime deadline = Now() + seconds(20);
  while (!condition()) {
    ASSERT_LT(Now(), deadline);
    std::this_thread::sleep_for(milliseconds(1));
  }
}

Operation AllReduce(Communicator* c, size_t count) {
  auto buffer = c->Allocate(count * 4);
  return {.slice = {*buffer, 0, count, DataType::kFloat32}};
}

// Ranks as threads of this process, seen from one thread.
class ThreadRanks {
 public:
  explicit ThreadRanks(int n) : communicators_(n) {
    signal(SIGPIPE, SIG_IGN);
    MapRendezvousStore store;
    SpawnRanks(n, [&](int rank) {
      auto formed = FormCommunicator(TestOptions(rank, n, &store));
      EXPECT_TRUE(formed.ok()) << formed.status();
      if (formed.ok()) communicators_[rank] = std::move(*formed);
    });
  }
  Communicator* operator[](int rank) { return communicators_[rank].get(); }
  void Destroy(int rank) { communicators_[rank].reset(); }

 private:
  std::vector<std::unique_ptr<Communicator>> communicators_;
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
  const MonoTime start = Now();
  SpawnRanks(3, [&](int rank) {
    ranks[rank]->Abort("the job was cancelled");
    ranks[rank]->Abort("a later reason");
  });
  for (int rank = 0; rank < 3; ++rank) {
    const Status first = works[2 * rank]->Wait(start + kLong);
    // The abort of another rank may have been seen before our own.
    if (first.code() != StatusCode::kUnavailable) {
      EXPECT_EQ(first.code(), StatusCode::kAborted) << first;
      EXPECT_EQ(Message(first), "job test g1: the job was cancelled");
    }
    EXPECT_EQ(works[2 * rank + 1]->Wait(start + kLong), first);
    EXPECT_EQ(ranks[rank]->Start({.kind = CollectiveKind::kBarrier}).status(),
              first);
  }
  EXPECT_LT(Now() - start, kSoon);
}

TEST(AbortTest, OfOneRankIsSeenByAllOthers) {
  ThreadRanks ranks(4);
  std::vector<std::unique_ptr<Work>> works;
  for (int rank = 0; rank < 3; ++rank) {
    auto work = ranks[rank]->Start(AllReduce(ranks[rank], 100000));
    ASSERT_TRUE(work.ok());
    works.push_back(std::move(*work));
  }
  const MonoTime start = Now();
  ranks[1]->Abort("stop");
  EXPECT_EQ(works[1]->Wait(start + kLong).code(), StatusCode::kAborted);
  for (const int rank : {0, 2}) {
    const Status status = works[rank]->Wait(start + kLong);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status), HasSubstr("connection to rank"));
  }
  // Rank 3 waits for nothing yet; it learns as soon as it starts.
  EXPECT_EQ(lockstep::Run(ranks[3], AllReduce(ranks[3], 100000), kLong).code(),
            StatusCode::kUnavailable);
  EXPECT_LT(Now() - start, kSoon);
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
      Await([&] { return steps[round % 3] >= 2; });
      std::this_thread::sleep_for(milliseconds(round));
      start = Now();
      aborted = true;
      ranks[round % 3]->Abort("stop");
    });
    SpawnRanks(3, [&](int rank) {
      const Operation operation = AllReduce(ranks[rank], 4 << 20);
      do {
        ends[rank] = lockstep::Run(ranks[rank], operation, kLong);
        ++steps[rank];
      } while (ends[rank].ok());
      times[rank] = Now();
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

TEST(DeadlineTest, BreaksTheCommunicatorAndNamesThePeer) {
  ThreadRanks ranks(2);
  const MonoTime start = Now();
  const Status late = lockstep::Run(
      ranks[0], {.kind = CollectiveKind::kBarrier}, milliseconds(100));
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Message(late),
            "job test g1: barrier did not end before its deadline, waiting for "
            "rank 1");
  EXPECT_EQ(ranks[0]->Start({.kind = CollectiveKind::kBarrier}).status(), late);
  EXPECT_EQ(
      lockstep::Run(ranks[1], {.kind = CollectiveKind::kBarrier}, kLong).code(),
      StatusCode::kUnavailable);
  EXPECT_LT(Now() - start, kSoon);
}

TEST(DeadlineTest, OperationTimeoutEndsAbandonedWork) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  SpawnRanks(2, [&](int rank) {
    auto options = TestOptions(rank, 2, &store);
    options.operation_timeout = milliseconds(100);
    auto c = FormCommunicator(options);
    ASSERT_TRUE(c.ok());
    if (rank == 1) {
      // Leaves only when rank 0 has broken it off.
      EXPECT_TRUE(store.Get("over", Now() + kLong).ok());
      return;
    }
    const MonoTime start = Now();
    {
      auto work = (*c)->Start({.kind = CollectiveKind::kBarrier});
      ASSERT_TRUE(work.ok());
    }  // waits for the end
    EXPECT_GE(Now() - start, milliseconds(100));
    EXPECT_LT(Now() - start, kSoon);
    EXPECT_EQ((*c)->Start({.kind = CollectiveKind::kBarrier}).status().code(),
              StatusCode::kDeadlineExceeded);
    ASSERT_TRUE(store.Put("over", "").ok());
  });
}

TEST(LeaveTest, ARankThatIsDoneMayLeaveBeforeTheOthers) {
  signal(SIGPIPE, SIG_IGN);
  for (int round = 0; round < 10; ++round) {
    MapRendezvousStore store;
    SpawnRanks(4, [&](int rank) {
      auto c = FormCommunicator(TestOptions(rank, 4, &store));
      ASSERT_TRUE(c.ok()) << c.status();
      const Operation reduce = AllReduce(c->get(), 50000);
      EXPECT_TRUE(lockstep::Run(c->get(), reduce, kLong).ok());
      const Status last =
          lockstep::Run(c->get(), {.kind = CollectiveKind::kBarrier}, kLong);
      EXPECT_TRUE(last.ok()) << last;
    });
  }
}

// Counters shared by processes.
struct Board {
  std::atomic<int> steps[8];
  std::atomic<int64_t> ended[8];  // nanoseconds of the monotonic clock
  std::atomic<bool> abort;
};

class ProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    char name[] = "/tmp/lockstep-abort-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    board_ = new (memory) Board{};
  }
  void TearDown() override {
    munmap(board_, sizeof(Board));
    std::filesystem::remove_all(dir_);
  }

  // Forms, then runs `operation(c)` until an error, whose code is the result.
  // A second thread aborts when the board says so.
  template <typename Make>
  int Loop(int rank, int n, Make make) {
    DirectoryRendezvousStore store(dir_);
    auto c = FormCommunicator(TestOptions(rank, n, &store));
    if (!c.ok()) return 100;
    const Operation operation = make(c->get());
    std::atomic<bool> over{false};
    std::thread watchdog([&] {
      while (!over && !board_->abort) {
        std::this_thread::sleep_for(milliseconds(1));
      }
      if (!over) (*c)->Abort("told to");
    });
    Status status;
    while (status.ok()) {
      status = lockstep::Run(c->get(), operation, kLong);
      ++board_->steps[rank];
    }
    board_->ended[rank] = Now().time_since_epoch().count();
    over = true;
    watchdog.join();
    return static_cast<int>(status.code());
  }

  bool AllRun(int n, int steps) {
    for (int rank = 0; rank < n; ++rank) {
      if (board_->steps[rank] < steps) return false;
    }
    return true;
  }

  Duration EndedAfter(int rank, MonoTime start) {
    return MonoTime(Duration(board_->ended[rank].load())) - start;
  }

  std::string dir_;
  Board* board_ = nullptr;
};

class KillTest : public ProcessTest,
                 public ::testing::WithParamInterface<size_t> {};
// Elements: a small message, and 16 MiB that are always in flight.
INSTANTIATE_TEST_SUITE_P(Sizes, KillTest, ::testing::Values(16, 4 << 20));

TEST_P(KillTest, SurvivorsAreToldAtOnce) {
  constexpr int kRanks = 4;
  RankProcesses ranks(kRanks, [&](int rank) {
    return Loop(rank, kRanks,
                [](Communicator* c) { return AllReduce(c, GetParam()); });
  });
  Await([&] { return AllRun(kRanks, 2); });
  const MonoTime start = Now();
  ranks.Signal(1, SIGKILL);
  for (const int rank : {0, 2, 3}) {
    EXPECT_EQ(ranks.Join(rank, start + kLong),
              static_cast<int>(StatusCode::kUnavailable));
    EXPECT_LT(EndedAfter(rank, start), kSoon) << rank;
    RecordProperty(fmt::format("rank{}_us", rank),
                   EndedAfter(rank, start) / std::chrono::microseconds(1));
  }
}

TEST_P(KillTest, FrozenPeerIsLeftByAbort) {
  constexpr int kRanks = 3;
  RankProcesses ranks(kRanks, [&](int rank) {
    return Loop(rank, kRanks,
                [](Communicator* c) { return AllReduce(c, GetParam()); });
  });
  Await([&] { return AllRun(kRanks, 2); });
  ranks.Signal(2, SIGSTOP);
  // The others stand still once they wait for the frozen one.
  int seen = -1;
  Await([&] {
    const int sum = board_->steps[0] + board_->steps[1];
    std::this_thread::sleep_for(milliseconds(20));
    return std::exchange(seen, sum) == sum;
  });
  const MonoTime start = Now();
  board_->abort = true;
  for (const int rank : {0, 1}) {
    // Aborted, or told so by the other one's abort.
    const int code = ranks.Join(rank, start + kLong);
    EXPECT_TRUE(code == static_cast<int>(StatusCode::kAborted) ||
                code == static_cast<int>(StatusCode::kUnavailable))
        << code;
    EXPECT_LT(EndedAfter(rank, start), kSoon) << rank;
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
  Await([&] { return AllRun(2, 1); });
  ranks.Signal(1, SIGSTOP);
  int seen = -1;
  Await([&] {
    const int steps = board_->steps[0];
    std::this_thread::sleep_for(milliseconds(50));
    return std::exchange(seen, steps) == steps;
  });
  const MonoTime start = Now();
  board_->abort = true;
  EXPECT_EQ(ranks.Join(0, start + kLong),
            static_cast<int>(StatusCode::kAborted));
  EXPECT_LT(EndedAfter(0, start), kSoon);
}

int Entries(const char* dir) {
  int count = 0;
  DIR* d = opendir(dir);
  while (d != nullptr && readdir(d) != nullptr) ++count;
  if (d != nullptr) closedir(d);
  return count;
}

TEST_F(ProcessTest, HundredGenerationsLeaveNothingBehind) {
  RankProcesses ranks(2, [&](int rank) {
    int fds = 0;
    int threads = 0;
    for (int generation = 0; generation < 100; ++generation) {
      const std::string dir = fmt::format("{}/{}", dir_, generation);
      std::filesystem::create_directories(dir);
      DirectoryRendezvousStore store(dir);
      {
        auto c = FormCommunicator(TestOptions(rank, 2, &store));
        if (!c.ok()) return 100;
        const Operation reduce = AllReduce(c->get(), 1000);
        // Every other generation ends by an abort, which may meet the other
        // rank at the end of the operation.
        const bool aborts = generation % 2 == 1;
        if (!lockstep::Run(c->get(), reduce, kLong).ok() && !aborts) return 101;
        if (aborts) (*c)->Abort("next");
      }
      if (generation == 4) {
        fds = Entries("/proc/self/fd");
        threads = Entries("/proc/self/task");
      }
    }
    if (Entries("/proc/self/fd") != fds) return 102;
    // A thread that was joined may still be listed for a moment.
    const MonoTime deadline = Now() + seconds(5);
    while (Entries("/proc/self/task") != threads && Now() < deadline) {
      std::this_thread::yield();
    }
    return Entries("/proc/self/task") == threads ? 0 : 103;
  });
  const MonoTime deadline = Now() + seconds(50);
  EXPECT_EQ(ranks.Join(0, deadline), 0);
  EXPECT_EQ(ranks.Join(1, deadline), 0);
}

// Forming fails, and says which rank, when a peer dies after it has published
// its address.
TEST_F(ProcessTest, PeerThatDiesWhileFormingIsNamed) {
  DirectoryRendezvousStore store(dir_);
  {
    RankProcesses ranks(1, [&](int) {
      auto options = TestOptions(1, 2, &store);
      options.forming_deadline = Now();
      return FormCommunicator(options).ok() ? 1 : 0;
    });
    ASSERT_EQ(ranks.Join(0, Now() + kLong), 0);
  }
  const MonoTime start = Now();
  const Status status = FormCommunicator(TestOptions(0, 2, &store)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(Message(status), HasSubstr("rank 1"));
  EXPECT_LT(Now() - start, seconds(10));
}

}  // namespace
}  // namespace lockstep
