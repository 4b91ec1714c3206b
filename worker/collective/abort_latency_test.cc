// How long it takes until every rank has left a collective, once one of them
// is told to: while it waits, with data in flight, beside a frozen peer, and
// when the one that gives up is not connected with those who wait; and once one
// of them was killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "worker/collective/all_to_all_test_util.h"
#include "worker/collective/communicator.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/latency_test_util.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRanks = 4;
constexpr int kTries = LeavingTimes::kTries;
constexpr Duration kLatencyLimit = seconds(30);
// Long enough to be always in flight.
constexpr size_t kMany = kSanitized ? 1 << 16 : 1 << 20;

Operation Floats(Communicator* c, size_t count) {
  auto buffer = c->Allocate(count * 4);
  return {.slice = {*buffer, 0, count, DataType::kFloat32}};
}

class ThreadsTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Every rank runs what `count` says until it fails, but `absent` (-1: none),
  // which starts nothing. `who` aborts from a thread of its own. Returns the
  // time of the last.
  Duration Try(size_t count, int absent, int who, int delay_us) {
    return TryWith(absent, who, delay_us,
                   [&](Communicator* c, const RunsUntilError& run) {
                     run(Floats(c, count));
                   });
  }

  using RunsUntilError = std::function<void(const Operation&)>;
  // The same with an operation that `with` hands over.
  Duration TryWith(
      int absent, int who, int delay_us,
      const std::function<void(Communicator*, const RunsUntilError&)>& with) {
    MapRendezvousStore store;
    std::atomic<int> steps{0};
    std::atomic<int> in{0};
    std::atomic<int> out{0};
    std::atomic<int64_t> start{0};
    std::vector<MonoTime> ends(kRanks);
    SpawnRanks(kRanks, [&](int rank) {
      auto formed =
          FormCommunicator(TestOptionsOf(GetParam(), rank, kRanks, &store));
      ASSERT_TRUE(formed.ok()) << formed.status();
      Communicator* const c = formed->get();
      std::thread aborter;
      if (rank == who) {
        aborter = std::thread([&, c] {
          while (absent >= 0 ? in < kRanks - 1 : steps < 2 * kRanks) {
            std::this_thread::sleep_for(microseconds(100));
          }
          std::this_thread::sleep_for(microseconds(delay_us));
          start = MonotonicNow().time_since_epoch().count();
          c->Abort("told to");
        });
      }
      Status status;
      if (rank != absent) {
        with(c, [&](const Operation& operation) {
          ++in;
          while (status.ok()) {
            status = collective::Run(c, operation, kLatencyLimit);
            ++steps;
          }
          ends[rank] = MonotonicNow();
        });
        EXPECT_EQ(status.code(),
                  rank == who ? StatusCode::kAborted : StatusCode::kUnavailable)
            << rank << ": " << status;
      }
      // Leaves only when all have: leaving is not what ends them.
      ++out;
      const MonoTime deadline = MonotonicNow() + kLatencyLimit;
      while (out < kRanks && MonotonicNow() < deadline) {
        std::this_thread::sleep_for(microseconds(200));
      }
      if (aborter.joinable()) aborter.join();
    });
    return *std::max_element(ends.begin(), ends.end()) -
           MonoTime(Duration(start.load()));
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, ThreadsTest,
                         ::testing::Values("shm", "tcp", "hierarchical",
                                           "hierarchical_0012"),
                         [](const auto& info) { return info.param; });

TEST_P(ThreadsTest, AllLeaveAWaitAtOnce) {
  signal(SIGPIPE, SIG_IGN);
  LeavingTimes times;
  // The last starts nothing; another gives up.
  for (int i = 0; i < kTries; ++i) {
    times.Add(Try(kMany, kRanks - 1, i % (kRanks - 1), 5000));
  }
  times.Check();
}

TEST_P(ThreadsTest, AllLeaveDataInFlightAtOnce) {
  signal(SIGPIPE, SIG_IGN);
  LeavingTimes times;
  // Somewhere within an operation, elsewhere in each try.
  for (int i = 0; i < kTries; ++i) {
    times.Add(Try(kMany, -1, i % kRanks, 300 * i));
  }
  times.Check();
}

// Over tcp each rank hears from all others, and waits for one at a time.
TEST_P(ThreadsTest, AllLeaveASumOf16BitFloatsAtOnce) {
  signal(SIGPIPE, SIG_IGN);
  LeavingTimes times;
  for (int i = 0; i < kTries; ++i) {
    times.Add(TryWith(kRanks - 1, i % (kRanks - 1), 5000,
                      [](Communicator* c, const RunsUntilError& run) {
                        Operation operation = Floats(c, kMany);
                        operation.slice.type = DataType::kBfloat16;
                        run(operation);
                      }));
  }
  times.Check();
}

TEST_P(ThreadsTest, AllLeaveAnAllToAllAtOnce) {
  signal(SIGPIPE, SIG_IGN);
  LeavingTimes times;
  for (int i = 0; i < kTries; ++i) {
    // In every second try the last starts nothing.
    const bool waits = i % 2 == 0;
    times.Add(TryWith(
        waits ? kRanks - 1 : -1, i % (kRanks - 1), waits ? 5000 : 300 * i,
        [](Communicator* c, const RunsUntilError& run) {
          AllToAllCase one(
              c, [](int, int) { return kMany; }, DataType::kFloat32);
          run(one.operation());
        }));
  }
  times.Check();
}

// What ranks as processes share.
struct Board {
  std::atomic<int> steps[kTries][kRanks];
  std::atomic<int64_t> ended[kTries][kRanks];
  std::atomic<int> aborted;  // generations
};

class ProcessesTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    char name[] = "/tmp/lockstep-latency-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    void* const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    board_ = new (memory) Board{};
    for (int i = 0; i < kTries; ++i) {
      std::filesystem::create_directories(DirOf(i));
    }
  }
  void TearDown() override {
    if (board_ != nullptr) munmap(board_, sizeof(Board));
    std::filesystem::remove_all(dir_);
  }

  std::string DirOf(int i) const { return fmt::format("{}/{}", dir_, i); }

  // A rank: a generation, until it fails; the code of its error. Rank 0 aborts
  // when it is told to.
  int RunTry(int i, int rank) {
    DirectoryRendezvousStore store(DirOf(i));
    auto formed =
        FormCommunicator(TestOptionsOf(GetParam(), rank, kRanks, &store));
    if (!formed.ok()) {
      fprintf(stderr, "%s\n", Message(formed.status()).c_str());
      return kNotFormed;
    }
    Communicator* const c = formed->get();
    const Operation operation = Floats(c, kMany);
    std::thread aborter;
    if (rank == 0) {
      aborter = std::thread([&] {
        while (board_->aborted <= i) {
          std::this_thread::sleep_for(microseconds(200));
        }
        c->Abort("told to");
      });
    }
    Status status;
    while (status.ok()) {
      status = collective::Run(c, operation, kLatencyLimit);
      ++board_->steps[i][rank];
    }
    board_->ended[i][rank] = MonotonicNow().time_since_epoch().count();
    if (aborter.joinable()) aborter.join();
    return static_cast<int>(status.code());
  }

  // Generation after generation.
  int RunTries(int rank) {
    for (int i = 0; i < kTries; ++i) {
      if (RunTry(i, rank) == kNotFormed) return kNotFormed;
    }
    return 0;
  }

  bool AwaitAllIn(int i) {
    const auto& steps = board_->steps[i];
    return Await([&] {
      return std::all_of(std::begin(steps), std::end(steps),
                         [](const auto& done) { return done >= 1; });
    });
  }

  // When the last has left but `absent`.
  MonoTime LastEnd(int i, int absent) {
    int64_t last = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == absent) continue;
      const auto& ended = board_->ended[i][rank];
      EXPECT_TRUE(Await([&] { return ended != 0; })) << rank;
      last = std::max<int64_t>(last, ended);
    }
    return MonoTime(Duration(last));
  }

  template <typename Condition>
  bool Await(Condition condition) {
    const MonoTime deadline = MonotonicNow() + seconds(20);
    while (!condition()) {
      if (MonotonicNow() >= deadline) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  static constexpr int kNotFormed = 100;
  std::string dir_;
  Board* board_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Backends, ProcessesTest,
                         ::testing::Values("shm", "tcp", "hierarchical"),
                         [](const auto& info) { return info.param; });

TEST_P(ProcessesTest, AllOthersLeaveAFrozenOneAtOnce) {
  RankProcesses ranks(kRanks, [&](int rank) { return RunTries(rank); });
  constexpr int kFrozen = kRanks - 1;
  LeavingTimes times;
  for (int i = 0; i < kTries; ++i) {
    ASSERT_TRUE(AwaitAllIn(i)) << "try " << i;
    ranks.Signal(kFrozen, SIGSTOP);
    // The others stand still once they wait for the frozen one.
    const auto& steps = board_->steps[i];
    int seen = -1;
    ASSERT_TRUE(Await([&] {
      std::this_thread::sleep_for(milliseconds(15));
      const int sum = steps[0] + steps[1] + steps[2];
      return std::exchange(seen, sum) == sum;
    }));
    const MonoTime start = MonotonicNow();
    board_->aborted = i + 1;
    const MonoTime last = LastEnd(i, kFrozen);
    ranks.Signal(kFrozen, SIGCONT);
    times.Add(last - start);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks.Join(rank, MonotonicNow() + kLatencyLimit), 0) << rank;
  }
  times.Check();
}

TEST_P(ProcessesTest, AllOthersLeaveAKilledOneAtOnce) {
  LeavingTimes times;
  for (int i = 0; i < kTries; ++i) {
    RankProcesses ranks(kRanks, [&](int rank) { return RunTry(i, rank); });
    ASSERT_TRUE(AwaitAllIn(i)) << "try " << i;
    // Also the one through whom a host's ranks reach the others'.
    const int killed = i % kRanks;
    const MonoTime start = MonotonicNow();
    ranks.Signal(killed, SIGKILL);
    times.Add(LastEnd(i, killed) - start);
    board_->aborted = i + 1;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == killed) continue;
      EXPECT_EQ(ranks.Join(rank, MonotonicNow() + kLatencyLimit),
                static_cast<int>(StatusCode::kUnavailable))
          << rank;
    }
  }
  times.Check();
}

}  // namespace
}  // namespace lockstep::worker::collective
