// The nccl backend over a GPU and an NCCL in memory (nccl_fake.h): what every
// operation computes, and that each way to fail ends in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <thread>

#include "worker/collective/handshake.h"
#include "worker/collective/nccl/nccl_test_util.h"

namespace lockstep::worker::collective::nccl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(NcclTest, OperationsOnHostBuffers) {
  NcclRanks ranks(3);
  ranks.ForEach([](int rank, Communicator* c) {
    const Buffer* buffer = *c->Allocate(12 * sizeof(float));
    EXPECT_EQ(buffer->kind, MemoryKind::kHost);
    EXPECT_EQ(c->backend(), "nccl");
    EXPECT_EQ(c->progress(), ProgressMode::kStream);
    float* const f = Floats(buffer);
    EXPECT_EQ(f[0], 0);  // Zeroed.
    const auto run = [&](Operation operation, size_t offset, size_t count) {
      operation.slice = {buffer, offset, count, DataType::kFloat32};
      const Status status = collective::Run(c, operation, kLong);
      EXPECT_TRUE(status.ok()) << status;
    };
    for (int i = 0; i < 12; ++i) f[i] = static_cast<float>(i + 100 * rank);
    run({.kind = CollectiveKind::kAllReduce}, 1, 10);
    EXPECT_EQ(f[0], 100 * rank);  // Outside of the slice.
    EXPECT_EQ(f[1], 3 * 1 + 300);
    EXPECT_EQ(f[10], 3 * 10 + 300);
    EXPECT_EQ(f[11], 11 + 100 * rank);

    for (int i = 0; i < 12; ++i) f[i] = static_cast<float>(i + 100 * rank);
    run({.kind = CollectiveKind::kAllReduce, .op = ReduceOp::kMean}, 0, 12);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(f[i], i + 100);

    for (int i = 0; i < 12; ++i) f[i] = static_cast<float>(i + 100 * rank);
    run({.kind = CollectiveKind::kReduceScatter, .op = ReduceOp::kMean}, 0, 12);
    for (int i = 4 * rank; i < 4 * rank + 4; ++i) EXPECT_EQ(f[i], i + 100);

    for (int i = 0; i < 12; ++i) f[i] = static_cast<float>(i + 100 * rank);
    run({.kind = CollectiveKind::kReduceScatter}, 0, 12);
    for (int i = 4 * rank; i < 4 * rank + 4; ++i) EXPECT_EQ(f[i], 3 * i + 300);

    for (int i = 0; i < 12; ++i) f[i] = static_cast<float>(100 * rank + i);
    run({.kind = CollectiveKind::kAllGather}, 0, 12);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(f[i], 100 * (i / 4) + i);

    for (int i = 0; i < 12; ++i) f[i] = static_cast<float>(100 * rank + i);
    run({.kind = CollectiveKind::kBroadcast, .root = 2}, 0, 12);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(f[i], 200 + i);
    run({.kind = CollectiveKind::kBarrier}, 0, 0);
    run({.kind = CollectiveKind::kAllReduce}, 12, 0);
  });
  ranks.Leave();
  EXPECT_EQ(FakeBytesInUse(), 0u);
  EXPECT_EQ(FakeCommunicatorsInUse(), 0);
  EXPECT_EQ(FakeAborts(), 0);
  EXPECT_EQ(FakeWrongThreads(), 0);
}

TEST(NcclTest, ManyInFlightEndInOrderAndFollowTheirStream) {
  NcclRanks ranks(2);
  std::barrier polled(2);
  ranks.ForEach([&polled](int rank, Communicator* c) {
    const Buffer* device = *c->AllocateOnDevice(64);
    EXPECT_EQ(device->kind, MemoryKind::kDevice);
    EXPECT_EQ(device->device, 0);
    // The slice is only ready when this stream has come so far.
    cudaStream_t compute = MakeFakeStream();
    FakeSlowFill(compute, device->data, rank + 1, 64);
    std::vector<std::unique_ptr<Work>> works;
    const Operation sum = {.slice = {device, 0, 64, DataType::kUint8}};
    works.push_back(*c->Start(sum, compute));
    for (int i = 0; i < 5; ++i) works.push_back(*c->Start(sum));
    EXPECT_FALSE(works.front()->Poll());
    EXPECT_FALSE(works.back()->Poll());
    polled.arrive_and_wait();
    if (rank == 1) ReleaseFakeFills();
    EXPECT_TRUE(works.back()->Wait(MonotonicNow() + kLong).ok());
    for (auto& work : works) EXPECT_TRUE(work->Poll());
    // 1 + 2, then doubled five times.
    EXPECT_EQ(static_cast<uint8_t*>(device->data)[63], 3u << 5);
    works.clear();
  });
  ranks.Leave();
  EXPECT_EQ(FakeBytesInUse(), 0u);
}

TEST(NcclTest, TheHandshakeRunsOverIt) {
  NcclRanks ranks(3);
  ranks.ForEach([](int rank, Communicator* c) {
    HandshakeOptions options;
    options.label = "job test g3";
    options.generation = 3;
    options.spec_hash = "abcdef";
    options.key = rank == 2 ? "another key" : "a key";
    const Status status = Handshake(c, options, MonotonicNow() + kLong);
    EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
    EXPECT_EQ(ReasonOf(status), kReasonWrongJobKey);
  });
}

TEST(NcclTest, RefusesItsCallersMistakesAndSendsNothing) {
  NcclRanks ranks(1);
  Communicator* const c = ranks[0];
  const Buffer* buffer = *c->Allocate(16);
  const Buffer stranger = *buffer;
  const auto start = [&](const Operation& operation) {
    return c->Start(operation).status();
  };
  const auto code = [&](const Operation& operation) {
    return start(operation).code();
  };
  EXPECT_EQ(code({.slice = {&stranger, 0, 1, DataType::kFloat32}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.slice = {buffer, 0, 2000, DataType::kFloat32}}),
            StatusCode::kInvalidArgument);
  const Status nan = start(
      {.slice = {buffer, 0, 4, DataType::kFloat32}, .op = ReduceOp::kMax});
  EXPECT_EQ(nan.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(nan), HasSubstr("a NaN could be lost"));
  EXPECT_TRUE(
      start({.slice = {buffer, 0, 4, DataType::kInt32}, .op = ReduceOp::kMax})
          .ok());
  EXPECT_EQ(
      code({.slice = {buffer, 0, 4, DataType::kInt32}, .op = ReduceOp::kMean}),
      StatusCode::kInvalidArgument);
}

TEST(NcclTest, NoMemoryIsAnErrorThatHarmsNothing) {
  NcclRanks ranks(1, {.memory = size_t{1} << 20});
  const Status status = ranks[0]->Allocate(size_t{1} << 21).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("no memory on the GPU"));
  // Enough for the mirror, not for the host's side.
  EXPECT_THAT(Message(ranks[0]->Allocate(700000).status()),
              HasSubstr("that CUDA can lock"));
  EXPECT_EQ(ranks[0]->Allocate(~size_t{0}).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(ranks[0]->Allocate(1000).ok());
  ranks.Leave();
  EXPECT_EQ(FakeBytesInUse(), 0u);
}

// Forming ----------------------------------------------------------------

TEST(NcclFormTest, ARankThatNeverComesEndsAtTheDeadline) {
  const GpuApi& api = ResetFakeGpu({});
  MapRendezvousStore store;
  CommunicatorOptions options = NcclOptions(0, 2, &store);
  options.forming_deadline = MonotonicNow() + milliseconds(50);
  const MonoTime start = MonotonicNow();
  const Status zero = FormNccl(options, api).status();
  EXPECT_EQ(zero.code(), StatusCode::kDeadlineExceeded) << zero;
  EXPECT_THAT(Message(zero), HasSubstr("forming with NCCL"));
  EXPECT_LT(MonotonicNow() - start, kSoon);
  EXPECT_EQ(FakeCommunicatorsInUse(), 0);
  EXPECT_EQ(FakeBytesInUse(), 0u);
  // Nor does rank 1 wait for an id that nobody writes.
  MapRendezvousStore empty;
  options = NcclOptions(1, 2, &empty);
  options.forming_deadline = MonotonicNow() + milliseconds(50);
  EXPECT_THAT(Message(FormNccl(options, api).status()),
              HasSubstr("waiting for rank 0's id"));
}

TEST(NcclFormTest, AnIdOfOtherSizeIsRefused) {
  const GpuApi& api = ResetFakeGpu({});
  MapRendezvousStore store;
  ASSERT_TRUE(store.Put("nccl/id", "short").ok());
  EXPECT_EQ(FormNccl(NcclOptions(1, 2, &store), api).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(NcclFormTest, EachGenerationHasItsOwnId) {
  const GpuApi& api = ResetFakeGpu({});
  std::string ids[2];
  for (std::string& id : ids) {
    MapRendezvousStore store;
    SpawnRanks(2, [&](int rank) {
      EXPECT_TRUE(FormNccl(NcclOptions(rank, 2, &store), api).ok());
    });
    id = *store.Get("nccl/id", MonotonicNow());
    EXPECT_EQ(id.size(), sizeof(ncclUniqueId));
  }
  EXPECT_NE(ids[0], ids[1]);
}

TEST(NcclFormTest, AnErrorOfNcclIsASentence) {
  const GpuApi& api = ResetFakeGpu({.init_fails = true});
  MapRendezvousStore store;
  const Status status = FormNccl(NcclOptions(0, 2, &store), api).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(Message(status),
            "job test g1: forming with NCCL: NCCL says: an NCCL error");
  EXPECT_EQ(FakeBytesInUse(), 0u);
}

// The ladder -------------------------------------------------------------

struct Ending {
  Status first;
  Status second;
  Duration took{};
};

// Rank 0 waits for rank 1, which never starts; another thread aborts.
Ending AbortWhileRunning(NcclRanks* ranks) {
  Communicator* const c = (*ranks)[0];
  const Buffer* buffer = *c->Allocate(64);
  const Operation operation = {.slice = {buffer, 0, 16, DataType::kFloat32}};
  auto first = *c->Start(operation);
  auto second = *c->Start(operation);
  while (FakeLaunches() < 2) std::this_thread::yield();
  EXPECT_FALSE(first->Poll());
  const MonoTime start = MonotonicNow();
  std::thread aborter([c] {
    c->Abort("the job was cancelled");
    c->Abort("a later reason");
  });
  Ending ending;
  ending.first = first->Wait(start + kLong);
  ending.second = second->Wait(start + kLong);
  aborter.join();
  EXPECT_FALSE(c->Start(operation).ok());
  EXPECT_FALSE(c->Allocate(1).ok());
  first.reset();
  second.reset();
  ending.took = MonotonicNow() - start;
  return ending;
}

void ExpectAborted(const Ending& ending) {
  for (const Status& status : {ending.first, ending.second}) {
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
    EXPECT_EQ(Message(status), "job test g1: the job was cancelled");
  }
  EXPECT_LT(ending.took, kSoon);
}

TEST(NcclAbortTest, RevokesThenAborts) {
  NcclRanks ranks(2);
  ExpectAborted(AbortWhileRunning(&ranks));
  ranks.Leave();
  EXPECT_EQ(FakeRevokes(), 1);
  EXPECT_EQ(FakeAborts(), 1);
  EXPECT_EQ(FakeBytesInUse(), 0u);
  EXPECT_EQ(FakeWrongThreads(), 0);
}

TEST(NcclAbortTest, EachRungThatFailsLeadsToTheNext) {
  for (const FakeGpuFaults& faults :
       {FakeGpuFaults{.no_revoke = true}, FakeGpuFaults{.revoke_fails = true},
        FakeGpuFaults{.revoke_never_ends = true}}) {
    NcclRanks ranks(2, faults);
    ExpectAborted(AbortWhileRunning(&ranks));
    ranks.Leave();
    EXPECT_EQ(FakeAborts(), 1);
    EXPECT_EQ(FakeCommunicatorsInUse(), 0);
    EXPECT_EQ(FakeBytesInUse(), 0u);
  }
}

TEST(NcclAbortTest, AnAbortThatHangsAfterARevokeHoldsNobodyUp) {
  NcclRanks ranks(2, {.abort_hangs = true});
  ExpectAborted(AbortWhileRunning(&ranks));
  ranks[1]->Abort("too");
  const MonoTime start = MonotonicNow();
  ranks.Leave();
  EXPECT_LT(MonotonicNow() - start, kSoon);
  ReleaseFakeAborts();
}

TEST(NcclAbortTest, AStuckDeviceIsSaidAndNothingIsFreed) {
  for (const FakeGpuFaults& faults :
       {FakeGpuFaults{.no_revoke = true, .abort_hangs = true},
        FakeGpuFaults{.kernels_never_stop = true}}) {
    NcclRanks ranks(2, faults);
    const Ending ending = AbortWhileRunning(&ranks);
    EXPECT_EQ(ending.first.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Message(ending.first),
                HasSubstr("the job was cancelled; then the GPU did not stop "
                          "within 0.2 s"));
    EXPECT_LT(ending.took, kSoon);
    const MonoTime start = MonotonicNow();
    ranks[1]->Abort("too");
    ranks.Leave();
    EXPECT_LT(MonotonicNow() - start, kSoon);
    EXPECT_GT(FakeBytesInUse(), 0u);
    ReleaseFakeAborts();
  }
}

TEST(NcclAbortTest, ADeadlineBreaksIt) {
  NcclRanks ranks(2);
  const Buffer* buffer = *ranks[0]->Allocate(64);
  const Operation operation = {.slice = {buffer, 0, 16, DataType::kFloat32}};
  const Status status = collective::Run(ranks[0], operation, milliseconds(30));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(status), HasSubstr("all-reduce of 16 float32"));
  EXPECT_EQ(ranks[0]->Start(operation).status(), status);
}

TEST(NcclAbortTest, WithoutAWaitTheOperationsOwnTimeoutBreaksIt) {
  const GpuApi& api = ResetFakeGpu({});
  MapRendezvousStore store;
  std::vector<std::unique_ptr<Communicator>> formed(2);
  SpawnRanks(2, [&](int rank) {
    CommunicatorOptions options = NcclOptions(rank, 2, &store);
    options.operation_timeout = milliseconds(50);
    formed[rank] = *FormNccl(options, api);
  });
  auto work = *formed[0]->Start({.kind = CollectiveKind::kBarrier});
  const MonoTime deadline = MonotonicNow() + kSoon;
  while (!work->Poll() && MonotonicNow() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(work->Wait(deadline).code(), StatusCode::kDeadlineExceeded);
}

TEST(NcclAbortTest, AnErrorOfAPeerIsUnavailable) {
  NcclRanks ranks(2, {.peer_error = true});
  const Status status =
      collective::Run(ranks[0], {.kind = CollectiveKind::kBarrier}, kLong);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("words of NCCL"));
}

TEST(NcclAbortTest, OfAnIdleOneIsThere) {
  NcclRanks ranks(2);
  ranks[0]->Abort("stop");
  EXPECT_EQ(ranks[0]->Start({.kind = CollectiveKind::kBarrier}).status().code(),
            StatusCode::kAborted);
  ranks.Leave();
  EXPECT_EQ(FakeCommunicatorsInUse(), 0);
}

TEST(NcclAbortTest, FromManyThreadsAtAnyMoment) {
  for (int round = 0; round < 20; ++round) {
    NcclRanks ranks(3);
    std::vector<const Buffer*> buffers;
    for (int r = 0; r < 3; ++r) buffers.push_back(*ranks[r]->Allocate(4096));
    ranks.ForEach([&](int rank, Communicator* c) {
      const Buffer* const buffer = buffers[rank];
      std::thread aborter([&] {
        if (rank != round % 3) return;
        std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
        for (int r = 0; r < 3; ++r) ranks[r]->Abort("stop");
      });
      Status status;
      while (status.ok()) {
        status = collective::Run(
            c, {.slice = {buffer, 0, 1024, DataType::kFloat32}}, kLong);
      }
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
      aborter.join();
    });
    ranks.Leave();
    EXPECT_EQ(FakeBytesInUse(), 0u);
    EXPECT_EQ(FakeWrongThreads(), 0);
  }
}

}  // namespace
}  // namespace lockstep::worker::collective::nccl
