// The nccl backend on a real GPU.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "worker/collective/handshake.h"
#include "worker/collective/nccl/nccl_gpu_test_util.h"

namespace lockstep::worker::collective::nccl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRanks = kGpuRanks;
constexpr Duration kForming = kGpuForming;

class NcclGpuTest : public GpuRanksTest {
 protected:
  // `body` gets the communicator, which ends after it.
  template <typename Body>
  int Rank(int rank, Body body) {
    return GpuRanksTest::Rank(
        rank, [&](std::unique_ptr<Communicator> c) { return body(c.get()); });
  }
};

// Random, the same everywhere.
double Value(int rank, size_t i) {
  const uint64_t x = (i * kRanks + rank + 1) * 0x9e3779b97f4a7c15ull;
  return static_cast<double>(x >> 40) / (1 << 23) - 1;
}

int CheckSums(Communicator* c) {
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{1} << 22}) {
    auto buffer = c->Allocate(count * sizeof(float));
    if (!buffer.ok()) return 2;
    auto* const f = static_cast<float*>((*buffer)->data);
    for (size_t i = 0; i < count; ++i) {
      f[i] = static_cast<float>(Value(c->rank(), i));
    }
    const Status status = collective::Run(
        c, {.slice = {*buffer, 0, count, DataType::kFloat32}}, seconds(60));
    EXPECT_TRUE(status.ok()) << status;
    double wrong = 0;
    double norm = 0;
    for (size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int r = 0; r < kRanks; ++r) {
        sum += static_cast<double>(static_cast<float>(Value(r, i)));
      }
      wrong += (f[i] - sum) * (f[i] - sum);
      norm += sum * sum;
    }
    EXPECT_LE(std::sqrt(wrong), 1e-6 * std::sqrt(norm)) << count;
  }
  return 0;
}

TEST_F(NcclGpuTest, SumsAreThoseOfFloat64) {
  RankProcesses ranks(kRanks, [&](int rank) { return Rank(rank, CheckSums); });
  JoinAll(&ranks, {0, 1});
}

// The kernels, over what this process itself has copied to the device.
int CheckKernels(Communicator* c) {
  constexpr size_t kCount = (size_t{3} << 20) + 5;
  std::vector<float> values(kCount);
  double expected = 0;
  for (size_t i = 0; i < kCount; ++i) {
    values[i] = static_cast<float>(static_cast<int>(i % 97) - 48) / 8;
    expected += double{values[i]} * values[i];
  }
  const Buffer* const device = *c->AllocateOnDevice(kCount * sizeof(float));
  const Buffer* const host = *c->Allocate(sizeof(double));
  const auto squares = [&](size_t offset, size_t count) {
    auto work = c->device_memory()->StartSumOfSquares(
        {device, offset, count, DataType::kFloat32},
        {host, 0, 1, DataType::kFloat64}, cudaStreamLegacy);
    EXPECT_TRUE(work.ok()) << work.status();
    const Status status = (*work)->Wait(MonotonicNow() + seconds(60));
    EXPECT_TRUE(status.ok()) << status;
    return *static_cast<const double*>(host->data);
  };
  EXPECT_EQ(squares(0, kCount), 0);
  EXPECT_EQ(cudaMemcpy(device->data, values.data(), kCount * sizeof(float),
                       cudaMemcpyHostToDevice),
            cudaSuccess);
  // Eighths: exact in whatever order.
  EXPECT_EQ(squares(0, kCount), expected);
  EXPECT_EQ(squares(kCount, 0), 0);
  const float bad = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(cudaMemcpy(static_cast<float*>(device->data) + kCount - 1, &bad,
                       sizeof(bad), cudaMemcpyHostToDevice),
            cudaSuccess);
  EXPECT_FALSE(std::isfinite(squares(0, kCount)));
  EXPECT_TRUE(std::isfinite(squares(0, kCount - 1)));
  const auto part = [&](size_t offset) {
    return Slice{device, offset, kCount / 2, DataType::kFloat32};
  };
  EXPECT_TRUE(c->device_memory()
                  ->Add(part(0), part(kCount / 2), cudaStreamLegacy)
                  .ok());
  expected = 0;
  for (size_t i = 0; i < kCount / 2; ++i) {
    const double sum = double{values[i]} + values[kCount / 2 + i];
    expected += sum * sum;
  }
  EXPECT_EQ(squares(0, kCount / 2), expected);
  EXPECT_TRUE(
      c->device_memory()
          ->Clear({device, 0, kCount, DataType::kFloat32}, cudaStreamLegacy)
          .ok());
  EXPECT_EQ(squares(0, kCount), 0);
  return 0;
}

TEST_F(NcclGpuTest, OurKernelsComputeOnTheDevice) {
  RankProcesses ranks(kRanks,
                      [&](int rank) { return Rank(rank, CheckKernels); });
  JoinAll(&ranks, {0, 1});
}

int CheckOperations(Communicator* c) {
  const Buffer* buffer = *c->Allocate(8 * sizeof(int64_t));
  auto* const v = static_cast<int64_t*>(buffer->data);
  const auto run = [&](Operation operation) {
    for (int i = 0; i < 8; ++i) v[i] = 10 * c->rank() + i;
    operation.slice = {buffer, 0, 8, DataType::kInt64};
    const Status status = collective::Run(c, operation, seconds(60));
    EXPECT_TRUE(status.ok()) << status;
  };
  run({.kind = CollectiveKind::kAllGather});
  for (int i = 0; i < 8; ++i) EXPECT_EQ(v[i], 10 * (i / 4) + i);
  run({.kind = CollectiveKind::kReduceScatter});
  for (int i = 0; i < 4; ++i) {
    const int at = 4 * c->rank() + i;
    EXPECT_EQ(v[at], 10 + 2 * at);
  }
  run({.kind = CollectiveKind::kBroadcast, .root = 1});
  for (int i = 0; i < 8; ++i) EXPECT_EQ(v[i], 10 + i);
  run({.kind = CollectiveKind::kAllReduce, .op = ReduceOp::kMax});
  for (int i = 0; i < 8; ++i) EXPECT_EQ(v[i], 10 + i);
  EXPECT_TRUE(
      collective::Run(c, {.kind = CollectiveKind::kBarrier}, seconds(60)).ok());
  // Device memory, many at once.
  const Buffer* device = *c->AllocateOnDevice(1 << 20);
  std::vector<std::unique_ptr<Work>> works;
  for (int i = 0; i < 32; ++i) {
    auto work = c->Start({.slice = {device, 0, 1 << 18, DataType::kFloat32}});
    if (!work.ok()) return 3;
    works.push_back(*std::move(work));
  }
  for (auto& work : works)
    EXPECT_TRUE(work->Wait(MonotonicNow() + seconds(60)).ok());
  HandshakeOptions options;
  options.label = "job test g1";
  options.key = "a key";
  const Status shaken = Handshake(c, options, MonotonicNow() + seconds(60));
  EXPECT_TRUE(shaken.ok()) << shaken;
  return 0;
}

TEST_F(NcclGpuTest, EveryOperationAndTheHandshake) {
  RankProcesses ranks(kRanks,
                      [&](int rank) { return Rank(rank, CheckOperations); });
  JoinAll(&ranks, {0, 1});
}

// Steps until the first error, which must be the abort.
int StepUntilAborted(Communicator* c, std::atomic<int>* steps) {
  const Buffer* buffer = *c->AllocateOnDevice(size_t{64} << 20);
  const Operation operation = {
      .slice = {buffer, 0, size_t{16} << 20, DataType::kFloat32}};
  Status status;
  while (status.ok()) {
    status = collective::Run(c, operation, seconds(120));
    steps->fetch_add(1);
  }
  EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
  return 0;
}

template <typename Condition>
bool Await(Condition condition) {
  const MonoTime deadline = MonotonicNow() + kForming;
  while (!condition()) {
    if (MonotonicNow() >= deadline) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

TEST_F(NcclGpuTest, AnAbortEndsARunningCollective) {
  RankProcesses ranks(kRanks, [&](int rank) {
    return Rank(rank, [&](Communicator* c) {
      std::thread aborter([&] {
        // Both, as the control plane tells all.
        EXPECT_TRUE(Await([&] { return shared_->steps[1] >= 10; }));
        c->Abort("stop");
      });
      const int code = StepUntilAborted(c, &shared_->steps[rank]);
      aborter.join();
      return code;
    });
  });
  JoinAll(&ranks, {0, 1});
}

TEST_F(NcclGpuTest, AnAbortEndsAWaitForAPeerThatNeverStarts) {
  RankProcesses ranks(kRanks, [&](int rank) {
    return Rank(rank, [&](Communicator* c) {
      const Operation barrier = {.kind = CollectiveKind::kBarrier};
      EXPECT_TRUE(collective::Run(c, barrier, seconds(60)).ok());
      if (rank == 1) {
        const bool ended = Await([&] { return shared_->steps[0] > 0; });
        c->Abort("stop");
        return ended ? 0 : 4;
      }
      auto work = c->Start(barrier);
      if (!work.ok()) return 3;
      std::thread aborter([&] {
        std::this_thread::sleep_for(milliseconds(50));
        c->Abort("stop");
      });
      const MonoTime start = MonotonicNow();
      EXPECT_EQ((*work)->Wait(MonotonicNow() + seconds(60)).code(),
                StatusCode::kAborted);
      shared_->nanoseconds = (MonotonicNow() - start).count();
      aborter.join();
      shared_->steps[0] = 1;
      return 0;
    });
  });
  JoinAll(&ranks, {0, 1});
  EXPECT_LT(shared_->nanoseconds.load(), Duration(seconds(10)).count());
}

// The control plane tells the survivor; here its own watcher does.
TEST_F(NcclGpuTest, TheSurvivorOfAKilledPeerGetsOut) {
  RankProcesses ranks(kRanks, [&](int rank) {
    return Rank(rank, [&](Communicator* c) {
      std::atomic<bool> over = false;
      std::thread watcher([&] {
        EXPECT_TRUE(
            Await([&] { return over || shared_->nanoseconds.load() != 0; }));
        c->Abort("rank 1 died");
      });
      const Buffer* buffer = *c->AllocateOnDevice(size_t{64} << 20);
      Status status;
      while (status.ok()) {
        status = collective::Run(
            c, {.slice = {buffer, 0, size_t{16} << 20, DataType::kFloat32}},
            seconds(120));
        shared_->steps[rank].fetch_add(1);
      }
      over = true;
      watcher.join();
      EXPECT_TRUE(status.code() == StatusCode::kAborted ||
                  status.code() == StatusCode::kUnavailable)
          << status;
      return 0;
    });
  });
  const bool stepping =
      Await([&] { return shared_->steps[1] >= 5 || shared_->why[0] != '\0'; });
  ASSERT_TRUE(stepping);
  ranks.Signal(1, SIGKILL);
  shared_->nanoseconds = 1;
  JoinAll(&ranks, {0});
}

}  // namespace
}  // namespace lockstep::worker::collective::nccl
