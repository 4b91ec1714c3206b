// What the nccl backend does for those who cannot touch the device's memory,
// over a GPU in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "worker/collective/nccl/nccl_test_util.h"

namespace lockstep::worker::collective::nccl {
namespace {

using ::testing::HasSubstr;

double& Number(const Buffer* buffer) {
  return *static_cast<double*>(buffer->data);
}
Slice NumberIn(const Buffer* buffer) {
  return {buffer, 0, 1, DataType::kFloat64};
}

TEST(NcclDeviceMemoryTest, AddsUpSquaresOfASlice) {
  NcclRanks ranks(1);
  Communicator* const c = ranks[0];
  const Buffer* const device = *c->AllocateOnDevice(100 * sizeof(float));
  const Buffer* const host = *c->Allocate(sizeof(double));
  std::fill_n(Floats(device), 100, 2.0f);
  const auto sum = [&](size_t offset, size_t count) {
    auto work = c->device_memory()->StartSumOfSquares(
        {device, offset, count, DataType::kFloat32}, NumberIn(host), nullptr);
    EXPECT_TRUE(work.ok()) << work.status();
    EXPECT_TRUE((*work)->Wait(MonotonicNow() + kLong).ok());
    return Number(host);
  };
  EXPECT_EQ(sum(0, 100), 400);
  EXPECT_EQ(sum(99, 1), 4);
  Number(host) = -1;
  EXPECT_EQ(sum(100, 0), 0);
  Floats(device)[50] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(sum(0, 50), 200);
  EXPECT_EQ(sum(50, 1), std::numeric_limits<double>::infinity());
  ranks.Leave();
  EXPECT_EQ(FakeBytesInUse(), 0u);
}

TEST(NcclDeviceMemoryTest, WhatFollowsComesAfterSquares) {
  NcclRanks ranks(2);
  Communicator* const c = ranks[0];
  const Buffer* const device = *c->AllocateOnDevice(64);
  const Buffer* const host = *c->Allocate(sizeof(double));
  cudaStream_t compute = MakeFakeStream();
  FakeSlowFill(compute, device->data, 0, 64);
  auto squares = *c->device_memory()->StartSumOfSquares(
      {device, 0, 16, DataType::kFloat32}, NumberIn(host), compute);
  Number(host) = -1;
  // In place: it must not begin before the squares are made.
  auto follows = *c->Start({.slice = {device, 0, 16, DataType::kFloat32}});

  // From now on only the stream is waited for.
  const Buffer* const theirs = *ranks[1]->AllocateOnDevice(64);
  std::fill_n(Floats(theirs), 16, 3.0f);
  auto their_part =
      *ranks[1]->Start({.slice = {theirs, 0, 16, DataType::kFloat32}});
  // As long as a thread that did not wait would take many times over.
  for (int look = 0; look < 5000; ++look) {
    ASSERT_FALSE(squares->Poll() || follows->Poll());
    std::this_thread::yield();
  }
  ReleaseFakeFills();
  EXPECT_TRUE(squares->Wait(MonotonicNow() + kLong).ok());
  EXPECT_EQ(Number(host), 0);  // Of the filled memory, not of the sum.
  EXPECT_TRUE(follows->Wait(MonotonicNow() + kLong).ok());
  EXPECT_TRUE(their_part->Wait(MonotonicNow() + kLong).ok());
  EXPECT_EQ(Floats(device)[15], 3);
  // They ran when the stream had come so far.
  const auto first = squares->ran();
  const auto second = follows->ran();
  ASSERT_TRUE(first && second);
  EXPECT_LE(first->began, first->ended);
  EXPECT_LE(first->began, second->began);
  EXPECT_LE(first->ended, second->ended);
  squares.reset();
  follows.reset();
  their_part.reset();
  ranks.Leave();
  EXPECT_EQ(FakeBytesInUse(), 0u);
  EXPECT_EQ(FakeWrongThreads(), 0);
}

// The squares' kernel takes long, and the host launches the all-reduce at once:
// it has to wait on the device.
TEST(NcclDeviceMemoryTest, WhatFollowsWaitsForSquaresOnTheDevice) {
  NcclRanks ranks(1, {.squares_take_long = true});
  Communicator* const c = ranks[0];
  const Buffer* const device = *c->AllocateOnDevice(64);
  const Buffer* const host = *c->Allocate(sizeof(double));
  std::fill_n(Floats(device), 16, 3.0f);
  const Slice slice = {device, 0, 16, DataType::kFloat32};
  auto squares =
      *c->device_memory()->StartSumOfSquares(slice, NumberIn(host), nullptr);
  auto follows = *c->Start({.slice = slice});
  while (FakeLaunches() < 1) std::this_thread::yield();
  for (int look = 0; look < 5000; ++look) {
    ASSERT_FALSE(follows->Poll());
    std::this_thread::yield();
  }
  ReleaseFakeFills();
  EXPECT_TRUE(follows->Wait(MonotonicNow() + kLong).ok());
  EXPECT_TRUE(squares->Wait(MonotonicNow() + kLong).ok());
  EXPECT_EQ(Number(host), 16 * 9);
  squares.reset();
  follows.reset();
  ranks.Leave();
}

void SquaresBeforePeers(const FakeGpuFaults& faults) {
  NcclRanks ranks(2, faults);
  Communicator* const c = ranks[0];
  const Buffer* const device = *c->AllocateOnDevice(64);
  const Buffer* const host = *c->Allocate(sizeof(double));
  // Rank 1 starts its part only when rank 0 has its squares.
  auto under_way = *c->Start({.slice = {device, 0, 8, DataType::kFloat32}});
  auto squares = *c->device_memory()->StartSumOfSquares(
      {device, 8, 8, DataType::kFloat32}, NumberIn(host), nullptr);
  EXPECT_TRUE(squares->Wait(MonotonicNow() + kLong).ok());
  EXPECT_FALSE(under_way->Poll());
  const Buffer* const theirs = *ranks[1]->AllocateOnDevice(64);
  EXPECT_TRUE(collective::Run(ranks[1],
                              {.slice = {theirs, 0, 8, DataType::kFloat32}},
                              kLong)
                  .ok());
  EXPECT_TRUE(under_way->Wait(MonotonicNow() + kLong).ok());
  under_way.reset();
  squares.reset();
  ranks.Leave();
}

// Nor where NCCL's own call waits for them, as an algorithm's first one does.
TEST(NcclDeviceMemoryTest, SquaresDoNotWaitForPeers) {
  SquaresBeforePeers({});
  SquaresBeforePeers({.connects_late = true});
}

TEST(NcclDeviceMemoryTest, ClearsInTurnWithTheStream) {
  NcclRanks ranks(1);
  Communicator* const c = ranks[0];
  const Buffer* const device = *c->AllocateOnDevice(64);
  const Buffer* const host = *c->Allocate(sizeof(double));
  cudaStream_t compute = MakeFakeStream();
  FakeSlowFill(compute, device->data, 1, 64);
  const Slice middle = {device, 4, 8, DataType::kFloat32};
  ASSERT_TRUE(c->device_memory()->Clear(middle, compute).ok());
  auto squares =
      *c->device_memory()->StartSumOfSquares(middle, NumberIn(host), compute);
  ReleaseFakeFills();
  ASSERT_TRUE(squares->Wait(MonotonicNow() + kLong).ok());
  EXPECT_EQ(Number(host), 0);
  EXPECT_NE(Floats(device)[3], 0);
  EXPECT_EQ(Floats(device)[4], 0);
  EXPECT_EQ(Floats(device)[11], 0);
  EXPECT_NE(Floats(device)[12], 0);
  squares.reset();
  ranks.Leave();
}

TEST(NcclDeviceMemoryTest, AddsInTurnWithTheStream) {
  NcclRanks ranks(1);
  Communicator* const c = ranks[0];
  const Buffer* const to = *c->AllocateOnDevice(64);
  const Buffer* const from = *c->AllocateOnDevice(64);
  const Buffer* const host = *c->Allocate(sizeof(double));
  cudaStream_t compute = MakeFakeStream();
  // 0x3f3f3f3f is 0.747...
  FakeSlowFill(compute, from->data, 0x3f, 64);
  DeviceMemory* const device = c->device_memory();
  const Slice four = {from, 2, 4, DataType::kFloat32};
  const Slice middle = {to, 4, 4, DataType::kFloat32};
  ASSERT_TRUE(device->Add(middle, four, compute).ok());
  ASSERT_TRUE(device->Add(middle, four, compute).ok());
  auto squares = *device->StartSumOfSquares(middle, NumberIn(host), compute);
  EXPECT_EQ(Floats(to)[4], 0) << "before the stream has come so far";
  ReleaseFakeFills();
  ASSERT_TRUE(squares->Wait(MonotonicNow() + kLong).ok());
  const float twice = 2 * Floats(from)[0];
  EXPECT_GT(twice, 1);
  EXPECT_EQ(Number(host), 4 * double{twice} * twice);
  EXPECT_EQ(Floats(to)[3], 0);
  EXPECT_EQ(Floats(to)[4], twice);
  EXPECT_EQ(Floats(to)[7], twice);
  EXPECT_EQ(Floats(to)[8], 0);
  squares.reset();
  ranks.Leave();
}

TEST(NcclDeviceMemoryTest, RefusesItsCallersMistakes) {
  NcclRanks ranks(1);
  Communicator* const c = ranks[0];
  const Buffer* const device = *c->AllocateOnDevice(4096);
  const Buffer* const host = *c->Allocate(4096);
  const Buffer foreign = *device;
  const Slice good = {device, 0, 8, DataType::kFloat32};
  const auto refused = [&](const Slice& slice, const Slice& result) {
    const auto work =
        c->device_memory()->StartSumOfSquares(slice, result, nullptr);
    EXPECT_EQ(work.status().code(), StatusCode::kInvalidArgument)
        << work.status();
    return Message(work.status());
  };
  EXPECT_THAT(refused({&foreign, 0, 8, DataType::kFloat32}, NumberIn(host)),
              HasSubstr("is not this communicator's"));
  EXPECT_THAT(refused({device, 1020, 8, DataType::kFloat32}, NumberIn(host)),
              HasSubstr("buffer"));
  EXPECT_THAT(refused({host, 0, 8, DataType::kFloat32}, NumberIn(host)),
              HasSubstr("the host's memory, not the device's"));
  EXPECT_THAT(refused(good, NumberIn(device)),
              HasSubstr("the device's memory, not the host's"));
  EXPECT_THAT(refused({device, 0, 8, DataType::kInt32}, NumberIn(host)),
              HasSubstr("not those of int32"));
  EXPECT_THAT(refused(good, {host, 0, 2, DataType::kFloat64}),
              HasSubstr("into 2 float64"));
  EXPECT_EQ(c->device_memory()
                ->Clear({host, 0, 8, DataType::kFloat32}, MakeFakeStream())
                .code(),
            StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(c->device_memory()->Clear(good, nullptr)),
              HasSubstr("cudaStreamLegacy, not null"));
  const auto not_added = [&](const Slice& to, const Slice& from) {
    const Status status = c->device_memory()->Add(to, from, MakeFakeStream());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    return std::string(Message(status));
  };
  EXPECT_THAT(not_added(good, {&foreign, 0, 8, DataType::kFloat32}),
              HasSubstr("buffer"));
  EXPECT_THAT(not_added({host, 0, 8, DataType::kFloat32}, good),
              HasSubstr("the host's memory, not the device's"));
  EXPECT_THAT(not_added(good, {device, 8, 7, DataType::kFloat32}),
              HasSubstr("not 7 float32 to 8 float32"));
  EXPECT_THAT(not_added({device, 8, 8, DataType::kInt32}, good),
              HasSubstr("not 8 float32 to 8 int32"));
  EXPECT_THAT(Message(c->device_memory()->Add(good, good, nullptr)),
              HasSubstr("cudaStreamLegacy, not null"));
  // Nothing of it broke anything.
  EXPECT_TRUE(collective::Run(c, {.slice = good}, kLong).ok());
  ranks.Leave();
}

TEST(NcclDeviceMemoryTest, AnAbortDoesNotWaitForTheCallersStream) {
  NcclRanks ranks(1);
  Communicator* const c = ranks[0];
  const Buffer* const device = *c->AllocateOnDevice(64);
  const Buffer* const host = *c->Allocate(sizeof(double));
  cudaStream_t compute = MakeFakeStream();
  FakeSlowFill(compute, device->data, 1, 64);  // Never done.
  const Slice slice = {device, 0, 16, DataType::kFloat32};
  auto squares =
      *c->device_memory()->StartSumOfSquares(slice, NumberIn(host), compute);
  auto follows = *c->Start({.slice = slice}, compute);
  const MonoTime start = MonotonicNow();
  c->Abort("the job was cancelled");
  for (Work* const work : {squares.get(), follows.get()}) {
    const Status status = work->Wait(start + kLong);
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
    EXPECT_FALSE(work->ran());
  }
  EXPECT_EQ(c->device_memory()->Clear(slice, compute).code(),
            StatusCode::kAborted);
  squares.reset();
  follows.reset();
  ranks.Leave();
  EXPECT_LT(MonotonicNow() - start, kSoon);
  EXPECT_EQ(FakeBytesInUse(), 0u);
}

TEST(NcclDeviceMemoryTest, NothingIsFreedWhileSquaresRun) {
  NcclRanks ranks(1, {.kernels_never_stop = true});
  Communicator* const c = ranks[0];
  const Buffer* const device = *c->AllocateOnDevice(64);
  const Buffer* const host = *c->Allocate(sizeof(double));
  auto squares = *c->device_memory()->StartSumOfSquares(
      {device, 0, 16, DataType::kFloat32}, NumberIn(host), nullptr);
  while (FakeSumsOfSquares() < 1) std::this_thread::yield();
  const size_t in_use = FakeBytesInUse();
  c->Abort("the job was cancelled");
  const MonoTime start = MonotonicNow();
  const Status status = squares->Wait(start + kLong);
  EXPECT_LT(MonotonicNow() - start, kSoon);
  EXPECT_THAT(Message(status), HasSubstr("the job was cancelled"));
  EXPECT_THAT(Message(status), HasSubstr("the GPU did not stop"));
  squares.reset();
  ranks.Leave();
  EXPECT_EQ(FakeBytesInUse(), in_use);
}

// No code that peers cause: nobody else has a part in it.
TEST(NcclDeviceMemoryTest, ALateStreamIsThisRanksOwnFault) {
  NcclRanks ranks(1, {}, std::chrono::milliseconds(10));
  Communicator* const c = ranks[0];
  const Buffer* const device = *c->AllocateOnDevice(64);
  const Buffer* const host = *c->Allocate(sizeof(double));
  cudaStream_t compute = MakeFakeStream();
  FakeSlowFill(compute, device->data, 1, 64);  // Never done.
  const MonoTime start = MonotonicNow();
  auto squares = *c->device_memory()->StartSumOfSquares(
      {device, 0, 16, DataType::kFloat32}, NumberIn(host), compute);
  const Status status = squares->Wait(start + kLong);
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
  EXPECT_THAT(Message(status),
              HasSubstr("the stream that a sum of squares on the GPU follows "
                        "did not come so far in 0 s"));
  // Longer than peers are waited for.
  EXPECT_GE(MonotonicNow() - start, std::chrono::milliseconds(120));
  squares.reset();
  ranks.Leave();
}

TEST(NcclDeviceMemoryTest, LateSquaresAreThisRanksOwnFault) {
  NcclRanks ranks(1, {.squares_take_long = true});
  Communicator* const c = ranks[0];
  const Buffer* const device = *c->AllocateOnDevice(64);
  const Buffer* const host = *c->Allocate(sizeof(double));
  auto squares = *c->device_memory()->StartSumOfSquares(
      {device, 0, 16, DataType::kFloat32}, NumberIn(host), nullptr);
  while (FakeSumsOfSquares() < 1) std::this_thread::yield();
  std::thread waiter([&] {
    const Status status =
        squares->Wait(MonotonicNow() + std::chrono::milliseconds(20));
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
    EXPECT_THAT(Message(status),
                HasSubstr("a sum of squares on the GPU did not end before"));
  });
  // As the device does, in the end.
  while (FakeRevokes() < 1) std::this_thread::yield();
  ReleaseFakeFills();
  waiter.join();
  squares.reset();
  ranks.Leave();
}

TEST(NcclDeviceMemoryTest, AStreamThatIsCapturedIsRefused) {
  NcclRanks ranks(1);
  Communicator* const c = ranks[0];
  const Buffer* const device = *c->AllocateOnDevice(64);
  const Buffer* const host = *c->Allocate(sizeof(double));
  cudaStream_t compute = MakeFakeStream();
  CaptureFakeStream(compute);
  const Slice slice = {device, 0, 16, DataType::kFloat32};
  for (const Status& status :
       {c->device_memory()
            ->StartSumOfSquares(slice, NumberIn(host), compute)
            .status(),
        c->device_memory()->Clear(slice, compute),
        c->Start({.slice = slice}, compute).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(Message(status), HasSubstr("captured into a graph"));
  }
  EXPECT_TRUE(collective::Run(c, {.slice = slice}, kLong).ok());
  ranks.Leave();
}

TEST(NcclDeviceMemoryTest, TheCallersDeviceStaysChosen) {
  NcclRanks ranks(1);
  Communicator* const c = ranks[0];
  SetFakeDeviceOfThread(3);
  const Buffer* const device = *c->AllocateOnDevice(64);
  const Buffer* const host = *c->Allocate(sizeof(double));
  cudaStream_t compute = MakeFakeStream();
  const Slice slice = {device, 0, 16, DataType::kFloat32};
  // The second time with events that were used before.
  for (int time = 0; time < 2; ++time) {
    EXPECT_TRUE(c->device_memory()->Clear(slice, compute).ok());
    auto squares =
        *c->device_memory()->StartSumOfSquares(slice, NumberIn(host), compute);
    EXPECT_TRUE(squares->Wait(MonotonicNow() + kLong).ok());
    EXPECT_EQ(FakeDeviceOfThread(), 3);
  }
  EXPECT_EQ(FakeCallsOnWrongDevice(), 0);
  SetFakeDeviceOfThread(0);
  ranks.Leave();
}

TEST(NcclFormTest, AGpuWithoutAKernelIsSaidWhenForming) {
  MapRendezvousStore store;
  const auto formed =
      FormNccl(NcclOptions(0, 1, &store), ResetFakeGpu({.no_kernel = true}));
  EXPECT_EQ(formed.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(formed.status()),
              HasSubstr("has no kernel that this GPU can run"));
  EXPECT_EQ(FakeBytesInUse(), 0u);
}

}  // namespace
}  // namespace lockstep::worker::collective::nccl
