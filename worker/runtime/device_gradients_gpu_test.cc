// The reducer with gradients on a real GPU.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "worker/collective/nccl/nccl_gpu_test_util.h"
#include "worker/runtime/reducer_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using collective::RankProcesses;
using collective::nccl::GpuRanksTest;
using collective::nccl::kGpuRanks;
using ::testing::Each;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A rank whose gradients are made on `stream`.
class DeviceRank {
 public:
  DeviceRank(std::unique_ptr<collective::Communicator> over, double clip_norm) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
    SteppedReducerOptions options;
    options.reducer.device_stream = stream_;
    options.reducer.clip_norm = clip_norm;
    rank_ = std::make_unique<ReducingRank>(std::move(over), options);
  }
  ~DeviceRank() {
    rank_.reset();
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  int number() const { return rank_->communicator->rank(); }
  Reducer* reducer() const { return rank_->reducer.get(); }
  cudaStream_t stream() const { return stream_; }

  // In turn with the stream, as a kernel would write it.
  void Write(size_t i, const std::vector<float>& values) const {
    const auto gradient = reducer()->gradient(i);
    ASSERT_EQ(gradient.size(), values.size());
    EXPECT_EQ(
        cudaMemcpyAsync(gradient.data(), values.data(), gradient.size_bytes(),
                        cudaMemcpyHostToDevice, stream_),
        cudaSuccess);
  }
  void WriteAll(float value) const {
    for (size_t i = 0; i < kParameters.size(); ++i) {
      Write(i, std::vector<float>(kParameters[i].elements, value));
    }
  }
  std::vector<float> Read(size_t i) const {
    const auto gradient = reducer()->gradient(i);
    std::vector<float> values(gradient.size());
    EXPECT_EQ(
        cudaMemcpyAsync(values.data(), gradient.data(), gradient.size_bytes(),
                        cudaMemcpyDeviceToHost, stream_),
        cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return values;
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<ReducingRank> rank_;
};

class DeviceGradientsGpuTest : public GpuRanksTest {
 protected:
  void RunRanks(const std::function<void(const DeviceRank&)>& body,
                double clip_norm = 0) {
    RankProcesses ranks(kGpuRanks, [&](int rank) {
      return Rank(rank, [&](std::unique_ptr<collective::Communicator> c) {
        body(DeviceRank(std::move(c), clip_norm));
        return 0;
      });
    });
    JoinAll(&ranks, {0, 1});
  }
};

TEST_F(DeviceGradientsGpuTest, AreTheSumOfAllRanks) {
  RunRanks([](const DeviceRank& rank) {
    Reducer* const reducer = rank.reducer();
    const int r = rank.number();
    for (int step = 1; step <= 4; ++step) {
      for (size_t i = 0; i < 3; ++i) {
        const auto value = static_cast<float>((r + 1) * (i + 1) * step);
        rank.Write(i, std::vector<float>(kParameters[i].elements, value));
      }
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(reducer->Ready((i + r) % 3).ok());
      }
      StepInputs inputs;
      inputs.samples = r + 1;
      inputs.loss_sum = 2.0 * (r + 1);
      const auto result = reducer->Finish(inputs);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(result->apply);
      EXPECT_EQ(result->samples, 3);
      EXPECT_EQ(result->loss, 2);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_THAT(rank.Read(i), Each(static_cast<float>(3 * (i + 1) * step)));
      }
      EXPECT_TRUE(reducer->Commit().ok());
      EXPECT_EQ(reducer->committed(), step);
    }
    EXPECT_TRUE(reducer->Settle().ok());
  });
}

// The host is far ahead of the device: the gradients are behind seconds' worth
// of memory traffic when they are said to be ready.
TEST_F(DeviceGradientsGpuTest, AreWaitedForOnTheirStream) {
  RunRanks([](const DeviceRank& rank) {
    constexpr size_t kBytes = size_t{256} << 20;
    constexpr int kFills = 400;
    rank.WriteAll(-1);
    void* load = nullptr;
    ASSERT_EQ(cudaMalloc(&load, kBytes), cudaSuccess);
    for (int i = 0; i < kFills; ++i) {
      EXPECT_EQ(cudaMemsetAsync(load, i & 1, kBytes, rank.stream()),
                cudaSuccess);
    }
    // Bytes of 0x3e are 0.1857...; a fill, unlike a copy from pageable memory,
    // does not wait for the stream.
    for (size_t i = 0; i < kParameters.size(); ++i) {
      const auto gradient = rank.reducer()->gradient(i);
      EXPECT_EQ(cudaMemsetAsync(gradient.data(), 0x3e, gradient.size_bytes(),
                                rank.stream()),
                cudaSuccess);
      EXPECT_TRUE(rank.reducer()->Ready(i).ok());
    }
    // Else the test has shown nothing.
    EXPECT_EQ(cudaStreamQuery(rank.stream()), cudaErrorNotReady);
    const auto result = rank.reducer()->Finish({});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->apply);
    float made = 0;
    std::memset(&made, 0x3e, sizeof(made));
    for (size_t i = 0; i < kParameters.size(); ++i) {
      EXPECT_THAT(rank.Read(i), Each(2 * made));
    }
    EXPECT_TRUE(rank.reducer()->Commit().ok());
    EXPECT_EQ(cudaFree(load), cudaSuccess);
  });
}

TEST_F(DeviceGradientsGpuTest, OneThatIsNotFiniteSkipsTheStepOfAll) {
  RunRanks([](const DeviceRank& rank) {
    for (int step = 1; step <= 2; ++step) {
      rank.WriteAll(1);
      if (step == 1 && rank.number() == 1) {
        std::vector<float> bad(kParameters[0].elements, 1);
        bad.back() = kNaN;
        rank.Write(0, bad);
      }
      const auto result = rank.reducer()->Finish({});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->skipped, step == 1);
      EXPECT_EQ(result->apply, step == 2);
      EXPECT_TRUE(rank.reducer()->Commit().ok());
    }
    EXPECT_THAT(rank.Read(0), Each(2));
  });
}

TEST_F(DeviceGradientsGpuTest, AreClippedByTheNormOfAll) {
  RunRanks(
      [](const DeviceRank& rank) {
        const auto own = static_cast<float>(rank.number() + 1);
        for (size_t i = 0; i < kParameters.size(); ++i) {
          std::vector<float> values(kParameters[i].elements, 0);
          values[values.size() / 2] = own * (i == 2 ? 2 : 1);
          rank.Write(i, values);
        }
        const auto result = rank.reducer()->Finish({});
        ASSERT_TRUE(result.ok()) << result.status();
        const double norm = std::sqrt(9 + 9 + 36);
        EXPECT_DOUBLE_EQ(result->gradient_norm, norm);
        EXPECT_DOUBLE_EQ(result->gradient_scale, 1 / norm);
        EXPECT_TRUE(rank.reducer()->Commit().ok());
      },
      /*clip_norm=*/1);
}

TEST_F(DeviceGradientsGpuTest, AreZeroAtFirstAndWhenAsked) {
  RunRanks([](const DeviceRank& rank) {
    EXPECT_THAT(rank.Read(2), Each(0.0f));
    rank.WriteAll(3);
    rank.reducer()->ZeroGradients();
    for (size_t i = 0; i < kParameters.size(); ++i) {
      EXPECT_THAT(rank.Read(i), Each(0.0f));
    }
    const auto result = rank.reducer()->Finish({});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(rank.reducer()->Commit().ok());
  });
}

}  // namespace
}  // namespace lockstep::worker::runtime
