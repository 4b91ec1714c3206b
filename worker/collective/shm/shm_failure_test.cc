// How operations end that cannot succeed. Bounds are those that are promised
// (50 ms), plus what a machine busy with other tests may add.
#include <gmock/gmock.h>

#include <array>
#include <cstring>

#include "worker/collective/lost_peers.h"
#include "worker/collective/operation.h"
#include "worker/collective/shm/layout.h"
#include "worker/collective/shm/shm_test_util.h"

namespace lockstep::worker::collective::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A fraction of kLong, which those would take that nobody tells.
constexpr Duration kSoon = seconds(5);

TEST(ShmAbortTest, ReturnsAWaitingRankAtOnce) {
  FormedRanks ranks = ShmRanks(2);
  const Buffer* buffer = ranks[0]->Allocate(1 << 20).value();
  std::atomic<bool> waits{false};
  Status status;
  MonoTime ended;
  std::thread waiter([&] {
    auto work = ranks[0]->Start(Floats(buffer, 1 << 18));
    ASSERT_TRUE(work.ok());
    waits = true;
    status = (*work)->Wait(MonotonicNow() + kLong);
    ended = MonotonicNow();
  });
  ASSERT_TRUE(AwaitTrue([&] { return waits.load(); }));
  // Long enough that it sleeps.
  std::this_thread::sleep_for(milliseconds(20));
  const MonoTime start = MonotonicNow();
  ranks[0]->Abort("the job was cancelled");
  ranks[0]->Abort("a later reason");
  waiter.join();
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_EQ(Message(status), "job test g1: the job was cancelled");
  EXPECT_LT(ended - start, kSoon);
  RecordProperty("abort_us", (ended - start) / std::chrono::microseconds(1));
  // The other one learns, and why.
  const Status other =
      collective::Run(ranks[1], {.kind = CollectiveKind::kBarrier}, kLong);
  EXPECT_EQ(other.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(other), AllOf(HasSubstr("connection to rank 0"),
                                    HasSubstr("the job was cancelled")));
  EXPECT_THAT(LostPeersOf(other), IsEmpty());
}

TEST(ShmAbortTest, WithDataInFlight) {
  for (int round = 0; round < 10; ++round) {
    FormedRanks ranks = ShmRanks(3);
    std::array<std::atomic<int>, 3> steps{};
    std::array<Status, 3> ends;
    std::array<MonoTime, 3> times;
    MonoTime start;
    std::thread aborter([&] {
      EXPECT_TRUE(AwaitTrue([&] { return steps[round % 3] >= 2; }));
      // Somewhere within an operation, elsewhere in each round.
      std::this_thread::sleep_for(milliseconds(round));
      start = MonotonicNow();
      ranks[round % 3]->Abort("stop");
    });
    SpawnRanks(3, [&](int rank) {
      const size_t count = kSanitized ? 1 << 20 : 4 << 20;
      const Buffer* buffer = ranks[rank]->Allocate(count * 4).value();
      do {
        ends[rank] = collective::Run(ranks[rank], Floats(buffer, count), kLong);
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

// Who is through may end at once: what it did before that holds.
TEST(ShmLeaveTest, WhatHadEndedBeforeAPeerBrokeEndsWell) {
  for (const size_t count : {size_t{4}, size_t{1} << 20}) {
    FormedRanks ranks = ShmRanks(2);
    const Buffer* const first = ranks[0]->Allocate(count * 4).value();
    const Buffer* const second = ranks[1]->Allocate(count * 4).value();
    static_cast<float*>(first->data)[count - 1] = 3;
    static_cast<float*>(second->data)[count - 1] = 4;
    auto work = ranks[1]->Start(Floats(second, count)).value();
    ASSERT_TRUE(collective::Run(ranks[0], Floats(first, count), kLong).ok());
    ranks[0]->Abort("through");
    ASSERT_TRUE(AwaitTrue([&] {
      return !ranks[1]->Start({.kind = CollectiveKind::kBarrier}).ok();
    }));
    const Status status = work->Wait(MonotonicNow() + kLong);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(static_cast<float*>(second->data)[count - 1], 7);
  }
}

TEST(ShmLeaveTest, WhoWaitsForARankThatLeftIsTold) {
  FormedRanks ranks = ShmRanks(2);
  ranks.Destroy(1);
  const MonoTime start = MonotonicNow();
  const Status status =
      collective::Run(ranks[0], {.kind = CollectiveKind::kBarrier}, kLong);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(Message(status), HasSubstr("rank 1 is lost: it left"));
  EXPECT_LT(MonotonicNow() - start, kSoon);
}

// Each rank does one operation of its own; all are told, on all ranks.
void ExpectMismatch(int n, const std::function<Operation(Communicator*)>& make,
                    const std::vector<std::string>& words) {
  FormedRanks ranks = ShmRanks(n);
  const MonoTime start = MonotonicNow();
  SpawnRanks(n, [&](int rank) {
    Communicator* const c = ranks[rank];
    const Status status = collective::Run(c, make(c), kLong);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(Message(status), HasSubstr("operation 0 is not the same"));
    for (const std::string& word : words) {
      EXPECT_THAT(Message(status), HasSubstr(word));
    }
    EXPECT_EQ(c->Start({.kind = CollectiveKind::kBarrier}).status(), status);
  });
  EXPECT_LT(MonotonicNow() - start, seconds(5));
}

TEST(ShmMismatchTest, OfSizesIsRefusedEverywhere) {
  ExpectMismatch(2,
                 [](Communicator* c) {
                   return Floats(c->Allocate(1 << 20).value(),
                                 100 + 7 * c->rank());
                 },
                 {"rank 0 started all-reduce (sum) of 100 float32",
                  "rank 1 started all-reduce (sum) of 107 float32"});
}

TEST(ShmMismatchTest, OfSmallAndLargeIsRefusedEverywhere) {
  ExpectMismatch(3,
                 [](Communicator* c) {
                   return Floats(c->Allocate(1 << 20).value(),
                                 c->rank() == 2 ? 10 : 9999);
                 },
                 {"of 10 float32", "of 9999 float32", "rank 2 started"});
}

TEST(ShmMismatchTest, OfTypesIsRefusedEverywhere) {
  ExpectMismatch(2,
                 [](Communicator* c) {
                   Operation operation =
                       Floats(c->Allocate(1 << 20).value(), 5000);
                   if (c->rank() == 1) operation.slice.type = DataType::kInt32;
                   return operation;
                 },
                 {"of 5000 float32", "of 5000 int32"});
}

TEST(ShmMismatchTest, OfKindsRootsAndOpsIsRefusedEverywhere) {
  ExpectMismatch(2,
                 [](Communicator* c) {
                   Operation operation =
                       Floats(c->Allocate(1 << 20).value(), 5000);
                   if (c->rank() == 1)
                     operation.kind = CollectiveKind::kBarrier;
                   return operation;
                 },
                 {"rank 1 started barrier", "all-reduce"});
  ExpectMismatch(2,
                 [](Communicator* c) {
                   Operation operation =
                       Floats(c->Allocate(1 << 20).value(), 5000);
                   operation.kind = CollectiveKind::kBroadcast;
                   operation.root = c->rank();
                   return operation;
                 },
                 {"broadcast of 5000 float32 from rank 0", "from rank 1"});
  ExpectMismatch(2,
                 [](Communicator* c) {
                   Operation operation =
                       Floats(c->Allocate(1 << 20).value(), 5000);
                   if (c->rank() == 1) operation.op = ReduceOp::kMax;
                   return operation;
                 },
                 {"(sum)", "(max)"});
}

TEST(ShmMismatchTest, OfWhatStagesAreAPartOfIsRefusedEverywhere) {
  ExpectMismatch(2,
                 [](Communicator* c) {
                   Operation stage = Floats(c->Allocate(1 << 20).value(), 5000);
                   Operation whole = stage;
                   whole.slice.count = 10000 + c->rank();
                   stage.part_of = WordsOf(whole);
                   return stage;
                 },
                 {"of 5000 float32, part of all-reduce (sum) of 10000 float32",
                  "of 5000 float32, part of all-reduce (sum) of 10001"});
}

TEST(ShmDeadlineTest, NamesThoseWhoHaveNotCome) {
  FormedRanks ranks = ShmRanks(4);
  SpawnRanks(2, [&](int i) {
    const MonoTime start = MonotonicNow();
    const Status late = collective::Run(
        ranks[2 * i], {.kind = CollectiveKind::kBarrier}, seconds(1));
    EXPECT_LT(MonotonicNow() - start, kSoon);
    // The deadline of the other may have been seen before our own.
    if (late.code() != StatusCode::kUnavailable) {
      EXPECT_GE(MonotonicNow() - start, seconds(1));
      EXPECT_EQ(Message(late),
                "job test g1: barrier did not end before its deadline, "
                "waiting for rank 1, 3");
    }
  });
}

}  // namespace
}  // namespace lockstep::worker::collective::shm
