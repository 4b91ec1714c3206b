// The reducer with gradients on a device: the nccl backend over a GPU in
// memory, which a test may look into.
#include "worker/runtime/device_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "worker/collective/nccl/nccl_test_util.h"
#include "worker/runtime/reducer_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using collective::nccl::FakeBytesInUse;
using collective::nccl::FakeCommunicatorsInUse;
using collective::nccl::FakeLaunches;
using collective::nccl::FakeSlowFill;
using collective::nccl::FakeWrongThreads;
using collective::nccl::kLong;
using collective::nccl::MakeFakeStream;
using collective::nccl::NcclRanks;
using collective::nccl::ReleaseFakeFills;
using collective::nccl::ResetFakeGpu;
using ::testing::Each;
using ::testing::HasSubstr;

// `body` for each rank of a group, with its reducer and the stream on which
// its gradients are made.
void RunReducers(int ranks, const SteppedReducerOptions& options,
                 const std::function<void(ReducingRank*, cudaStream_t)>& body) {
  {
    NcclRanks group(ranks);
    RunRanks(ranks, [&](int r) {
      const cudaStream_t stream = MakeFakeStream();
      SteppedReducerOptions own = options;
      own.reducer.device_stream = stream;
      ReducingRank rank(group.Take(r), own);
      body(&rank, stream);
    });
  }
  EXPECT_EQ(FakeBytesInUse(), 0u);
  EXPECT_EQ(FakeCommunicatorsInUse(), 0);
  EXPECT_EQ(FakeWrongThreads(), 0);
}

// Clearing at the start is on the stream, too; the test writes by itself.
void Settle(ReducingRank* rank, cudaStream_t stream) {
  const collective::Buffer* const number =
      *rank->communicator->Allocate(sizeof(double));
  const collective::Buffer* const some =
      *rank->communicator->AllocateOnDevice(64);
  auto work = rank->communicator->device_memory()->StartSumOfSquares(
      {some, 0, 1, collective::DataType::kFloat32},
      {number, 0, 1, collective::DataType::kFloat64}, stream);
  ASSERT_TRUE((*work)->Wait(MonotonicNow() + kLong).ok());
}

TEST(DeviceGradientsTest, AreTheSumOfAllRanks) {
  RunReducers(3, {}, [](ReducingRank* rank, cudaStream_t stream) {
    Settle(rank, stream);
    const int r = rank->communicator->rank();
    for (int step = 1; step <= 4; ++step) {
      for (size_t i = 0; i < 3; ++i) {
        for (float& g : rank->reducer->gradient(i)) {
          g = static_cast<float>((r + 1) * (i + 1) * step);
        }
      }
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(rank->reducer->Ready((i + r) % 3).ok());
      }
      StepInputs inputs;
      inputs.samples = r + 1;
      inputs.loss_sum = 2.0 * (r + 1);
      const auto result = rank->reducer->Finish(inputs);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(result->apply);
      EXPECT_EQ(result->samples, 6);
      EXPECT_EQ(result->loss, 2);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_THAT(rank->reducer->gradient(i),
                    Each(static_cast<float>(6 * (i + 1) * step)));
      }
      EXPECT_TRUE(rank->reducer->Commit().ok());
      EXPECT_EQ(rank->reducer->committed(), step);
    }
    // The control word alone, between steps.
    EXPECT_TRUE(rank->reducer->Settle().ok());
  });
}

// The host is far ahead of the device: gradients are there long after Ready.
TEST(DeviceGradientsTest, AreWaitedForOnTheirStream) {
  std::thread releaser;
  std::atomic<int> handed_over{0};
  const MonoTime start = MonotonicNow();
  std::atomic<MonoTime> released;
  RunReducers(2, {}, [&](ReducingRank* rank, cudaStream_t stream) {
    Settle(rank, stream);
    // 0x3e3e3e3e is 0.1857...
    constexpr int kByte = 0x3e;
    float expected = 0;
    std::memset(&expected, kByte, sizeof(expected));
    for (size_t i = 0; i < 3; ++i) {
      const auto gradient = rank->reducer->gradient(i);
      FakeSlowFill(stream, gradient.data(), kByte, gradient.size_bytes());
      EXPECT_TRUE(rank->reducer->Ready(i).ok());
    }
    if (rank->communicator->rank() == 0) {
      releaser = std::thread([&] {
        while (handed_over < 2) std::this_thread::yield();
        while (MonotonicNow() - start < std::chrono::milliseconds(20)) {
          std::this_thread::yield();
        }
        EXPECT_EQ(FakeLaunches(), 0);
        released = MonotonicNow();
        ReleaseFakeFills();
      });
    }
    ++handed_over;
    const auto result = rank->reducer->Finish({});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->apply);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_THAT(rank->reducer->gradient(i), Each(2 * expected));
    }
    // Counted when the next round is over. Nothing was reduced while the device
    // computed.
    EXPECT_TRUE(rank->reducer->Commit().ok());
    EXPECT_TRUE(rank->reducer->Settle().ok());
    EXPECT_GT(rank->Busy(), Duration(0));
    EXPECT_LE(rank->Busy(), MonotonicNow() - released.load());
  });
  releaser.join();
}

TEST(DeviceGradientsTest, OneThatIsNotFiniteSkipsTheStepOfAll) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    RunReducers(2, {}, [bad](ReducingRank* rank, cudaStream_t stream) {
      Settle(rank, stream);
      for (int step = 1; step <= 2; ++step) {
        rank->Fill(1);
        if (step == 1 && rank->communicator->rank() == 1) {
          rank->reducer->gradient(0).back() = bad;
        }
        const auto result = rank->reducer->Finish({});
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->skipped, step == 1);
        EXPECT_EQ(result->apply, step == 2);
        EXPECT_TRUE(rank->reducer->Commit().ok());
      }
      EXPECT_THAT(rank->reducer->gradient(0), Each(2));
    });
  }
}

TEST(DeviceGradientsTest, WhatWasSeenOnceIsRememberedForTheStep) {
  NcclRanks group(1);
  ReducerOptions options;
  options.device_stream = MakeFakeStream();
  auto buckets = GradientBuckets::Create(group[0], kParameters, options,
                                         collective::BucketSizes());
  ASSERT_TRUE(buckets.ok()) << buckets.status();
  DeviceGradients gradients(group[0], buckets->get(), options.device_stream);
  ASSERT_TRUE(gradients.Fit().ok());
  const auto finite = [&](bool looks) {
    if (looks) {
      EXPECT_TRUE(gradients.StartLook(0).ok());
    }
    const auto all = gradients.AllFinite(MonotonicNow() + kLong);
    EXPECT_TRUE(all.ok()) << all.status();
    return all.value_or(false);
  };
  gradients.BeginStep();
  EXPECT_TRUE(finite(true));
  (*buckets)->gradient(0)[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(finite(true));
  EXPECT_FALSE(finite(false));  // Asked again, as after an error.
  (*buckets)->gradient(0)[7] = 1;
  gradients.BeginStep();
  EXPECT_TRUE(finite(true));
  group.Leave();
}

TEST(DeviceGradientsTest, AreClippedByTheNormOfAll) {
  SteppedReducerOptions options;
  options.reducer.clip_norm = 1;
  RunReducers(3, options, [](ReducingRank* rank, cudaStream_t stream) {
    Settle(rank, stream);
    rank->Fill(0);
    const float own = static_cast<float>(rank->communicator->rank() + 1);
    rank->reducer->gradient(0)[999] = own;
    rank->reducer->gradient(1)[0] = own;
    rank->reducer->gradient(2)[1500] = 2 * own;
    const auto result = rank->reducer->Finish({});
    ASSERT_TRUE(result.ok()) << result.status();
    const double norm = std::sqrt(36 + 36 + 144);
    EXPECT_DOUBLE_EQ(result->gradient_norm, norm);
    EXPECT_DOUBLE_EQ(result->gradient_scale, 1 / norm);
  });
}

TEST(DeviceGradientsTest, AreZeroAtFirstWhenAskedAndWhenTheyMoved) {
  SteppedReducerOptions options;
  options.reducer.learn_order = true;
  RunReducers(2, options, [](ReducingRank* rank, cudaStream_t stream) {
    Settle(rank, stream);
    const auto all_zero = [&] {
      Settle(rank, stream);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_THAT(rank->reducer->gradient(i), Each(0.0f));
      }
    };
    all_zero();
    rank->Fill(3);
    rank->reducer->ZeroGradients();
    all_zero();
    for (int step = 1; step <= 3; ++step) {
      rank->Fill(1);
      for (const size_t i : {1, 2, 0}) {
        EXPECT_TRUE(rank->reducer->Ready(i).ok());
      }
      const auto result = rank->reducer->Finish({});
      ASSERT_TRUE(result.ok()) << result.status();
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_THAT(rank->reducer->gradient(i), Each(2.0f));
      }
      EXPECT_TRUE(rank->reducer->Commit().ok());
      if (step == 2) all_zero();
    }
    EXPECT_THAT(rank->reducer->order(), ::testing::ElementsAre(1, 2, 0));
  });
}

TEST(DeviceGradientsTest, OfTheHostAreNotTaken) {
  RunReducers(1, {}, [](ReducingRank* rank, cudaStream_t) {
    const std::vector<float> gradient(kParameters[0].elements);
    for (const Status& status :
         {rank->reducer->Add(0, gradient), rank->reducer->Put(0, gradient)}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(Message(status), HasSubstr("then Ready(i)"));
    }
    EXPECT_TRUE(rank->reducer->Finish({}).ok());
  });
}

TEST(DeviceGradientsTest, NeedABackendWithADevice) {
  FakeGroup group(1);
  const auto communicator = group.Make(0);
  const auto progress = *Progress::Create("", 0, 1);
  SteppedReducerOptions options;
  options.communicator = communicator.get();
  options.progress = progress.get();
  options.reducer.device_stream = &options;
  const auto made = MakeSteppedReducer(kParameters, options);
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(made.status()), HasSubstr("use backend nccl"));
}

TEST(DeviceGradientsTest, NoMemoryOnTheDeviceIsAnError) {
  ResetFakeGpu({});
  NcclRanks group(1, {.memory = 256 << 10});
  const auto progress = *Progress::Create("", 0, 1);
  SteppedReducerOptions options;
  options.communicator = group[0];
  options.progress = progress.get();
  options.reducer.device_stream = MakeFakeStream();
  const auto made = MakeSteppedReducer({{"large", 1 << 20}}, options);
  EXPECT_EQ(made.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(made.status()), HasSubstr("on the GPU"));
  group.Leave();
}

}  // namespace
}  // namespace lockstep::worker::runtime
