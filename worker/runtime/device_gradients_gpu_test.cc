// The reducer with gradients on a real GPU.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/collective/leveling.h"
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
  // `membership`: of an elastic job.
  DeviceRank(std::unique_ptr<collective::Communicator> over, double clip_norm,
             const std::optional<Membership>& membership = std::nullopt) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
    SteppedReducerOptions options;
    options.reducer.device_stream = stream_;
    options.reducer.clip_norm = clip_norm;
    options.elastic = membership.has_value();
    options.membership = membership.value_or(Membership());
    rank_ = std::make_unique<ReducingRank>(std::move(over), options);
  }
  ~DeviceRank() {
    rank_.reset();
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  int number() const { return rank_->communicator->rank(); }
  Reducer* reducer() const { return rank_->reducer.get(); }
  cudaStream_t stream() const { return stream_; }
  collective::Communicator* communicator() const {
    return rank_->communicator.get();
  }

  // A recovery: leaves the communicator, and goes on with the one that `form`
  // returns.
  template <typename Form>
  void Recover(Form form) {
    Recover(form, MembersWithout({}, kGpuRanks, number()));
  }
  template <typename Form>
  void Recover(Form form, const Membership& membership) {
    auto* const reducer =
        static_cast<RecoverableReducer*>(rank_->reducer.get());
    EXPECT_TRUE(reducer->Unbind().ok());
    rank_->communicator.reset();
    auto formed = form();
    ASSERT_TRUE(formed.ok()) << formed.status();
    rank_->communicator = *std::move(formed);
    const Status bound = reducer->Rebind(communicator(), membership);
    ASSERT_TRUE(bound.ok()) << bound;
  }

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

// While two of four ranks are away, the others add up two shards each.
TEST_F(DeviceGradientsGpuTest, AreTheSumOfAllShardsWhileRanksAreAway) {
  RankProcesses ranks(kGpuRanks, [&](int place) {
    return Rank(place, [&](std::unique_ptr<collective::Communicator> c) {
      const Membership membership =
          MembersWithout(std::vector<int>{2, 3}, 4, place);
      const DeviceRank rank(std::move(c), 0, membership);
      for (int step = 1; step <= 3; ++step) {
        for (const int shard : membership.own_shards()) {
          rank.WriteAll(static_cast<float>(shard + step));
          if (shard == membership.own_shards().back()) break;
          EXPECT_TRUE(rank.reducer()->NextShard(1, 1).ok());
          rank.reducer()->ZeroGradients();
        }
        StepInputs inputs;
        inputs.samples = 1;
        const auto result = rank.reducer()->Finish(inputs);
        EXPECT_TRUE(result.ok()) << result.status();
        if (!result.ok()) return 1;
        EXPECT_EQ(result->samples, 4);
        for (size_t i = 0; i < kParameters.size(); ++i) {
          EXPECT_THAT(rank.Read(i), Each(static_cast<float>(6 + 4 * step)));
        }
        EXPECT_TRUE(rank.reducer()->Commit().ok());
      }
      return 0;
    });
  });
  JoinAll(&ranks, {0, 1});
}

// A state on the device, made by its seed.
class DeviceMemoryState {
 public:
  static constexpr size_t kBytes = size_t{100} << 20;

  DeviceMemoryState(int seed, cudaStream_t stream) : stream_(stream) {
    EXPECT_EQ(cudaMalloc(&data_, kBytes), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(data_, seed, kBytes, stream_), cudaSuccess);
  }
  ~DeviceMemoryState() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }

  collective::DeviceState state() const {
    return {{{static_cast<std::byte*>(data_), kBytes}}, stream_};
  }
  bool Is(int seed) const {
    std::vector<unsigned char> bytes(kBytes);
    EXPECT_EQ(cudaMemcpyAsync(bytes.data(), data_, kBytes,
                              cudaMemcpyDeviceToHost, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return std::all_of(bytes.begin(), bytes.end(), [&](unsigned char byte) {
      return byte == static_cast<unsigned char>(seed);
    });
  }

 private:
  const cudaStream_t stream_;
  void* data_ = nullptr;
};

class DeviceRecoveryGpuTest : public GpuRanksTest {
 protected:
  static constexpr int kSeed = 7;

  // A step in which each rank has ones; false: a peer is lost.
  static bool Step(const DeviceRank& rank) {
    rank.WriteAll(1);
    if (!rank.reducer()->Finish({}).ok()) return false;
    for (size_t i = 0; i < kParameters.size(); ++i) {
      EXPECT_THAT(rank.Read(i), Each(2.0f));
    }
    return rank.reducer()->Commit().ok();
  }
  static void LevelAndStep(const DeviceRank& rank,
                           const DeviceMemoryState& state, bool has_state) {
    auto* const reducer = static_cast<RecoverableReducer*>(rank.reducer());
    collective::LevelInput input;
    input.device = state.state();
    if (has_state) {
      const auto digest =
          collective::DigestOf(rank.communicator(), {}, input.device);
      ASSERT_TRUE(digest.ok()) << digest.status();
      input.digest = *digest;
      input.record = {.has_state = true,
                      .committed = reducer->committed(),
                      .digest = digest->hash};
      input.small = reducer->Agreed();
    }
    const auto level = collective::Level(rank.communicator(), std::move(input),
                                         std::chrono::seconds(60));
    ASSERT_TRUE(level.ok()) << level.status();
    EXPECT_EQ(level->bytes, DeviceMemoryState::kBytes);
    fmt::print("rank {}: leveled 100 MiB on the GPU in {:.1f} ms\n",
               rank.number(), ToSeconds(level->time) * 1e3);
    ASSERT_TRUE(reducer->Resume(level->small, 5, 6).ok());
    EXPECT_TRUE(state.Is(kSeed));
    EXPECT_TRUE(Step(rank));
  }

  // Rank 0 steps until its peer is lost, which the test tells it as the control
  // plane would, and recovers with what it has on the device.
  int Survive() {
    auto addresses = *collective::AddressRange::Reserve(size_t{64} << 20);
    const auto body = [&](std::unique_ptr<collective::Communicator> first) {
      collective::Communicator* const communicator = first.get();
      DeviceRank rank(std::move(first), 0);
      const DeviceMemoryState state(kSeed, rank.stream());
      std::vector<const float*> places;
      for (size_t i = 0; i < kParameters.size(); ++i) {
        places.push_back(rank.reducer()->gradient(i).data());
      }
      std::thread watcher([&] {
        EXPECT_TRUE(AwaitFlag(&shared_->steps[1], kKilled));
        communicator->Abort("rank 1 is lost");
      });
      while (Step(rank)) shared_->steps[0].fetch_add(1);
      watcher.join();
      const MonoTime began = MonotonicNow();
      rank.Recover([&] {
        fmt::print("rank 0: left the communicator in {:.1f} ms\n",
                   ToSeconds(MonotonicNow() - began) * 1e3);
        return Form(0, "second", addresses.get());
      });
      fmt::print("rank 0: formed anew after {:.1f} ms\n",
                 ToSeconds(MonotonicNow() - began) * 1e3);
      for (size_t i = 0; i < kParameters.size(); ++i) {
        EXPECT_EQ(rank.reducer()->gradient(i).data(), places[i]);
        EXPECT_THAT(rank.Read(i), Each(0.0f));
      }
      EXPECT_TRUE(state.Is(kSeed));
      LevelAndStep(rank, state, /*has_state=*/true);
      return 0;
    };
    return Rank(0, body, "first", addresses.get());
  }
  int Die() {
    return Rank(1, [&](std::unique_ptr<collective::Communicator> first) {
      const DeviceRank rank(std::move(first), 0);
      while (Step(rank)) {
      }
      return 0;
    });
  }
  int Replace() {
    if (!AwaitFlag(&shared_->steps[1], kKilled)) return kSkip;
    const auto body = [&](std::unique_ptr<collective::Communicator> second) {
      const DeviceRank rank(std::move(second), 0);
      const DeviceMemoryState state(0, rank.stream());
      LevelAndStep(rank, state, /*has_state=*/false);
      return 0;
    };
    return Rank(1, body, "second");
  }

  // The same of an elastic job. Rank 0 goes on alone, with both shards, until
  // rank 1 is ready again.
  int GoOnAlone() {
    auto addresses = *collective::AddressRange::Reserve(size_t{64} << 20);
    const Membership both = MembersWithout({}, kGpuRanks, 0);
    const Membership alone = MembersWithout(std::vector<int>{1}, kGpuRanks, 0);
    const auto body = [&](std::unique_ptr<collective::Communicator> first) {
      collective::Communicator* const communicator = first.get();
      DeviceRank rank(std::move(first), 0, both);
      auto* const reducer = static_cast<RecoverableReducer*>(rank.reducer());
      const DeviceMemoryState state(kSeed, rank.stream());
      std::thread watcher([&] {
        EXPECT_TRUE(AwaitFlag(&shared_->steps[1], kKilled));
        communicator->Abort("rank 1 is lost");
      });
      while (Step(rank)) shared_->steps[0].fetch_add(1);
      watcher.join();
      rank.Recover(
          [&] { return Form(0, "alone", addresses.get(), /*size=*/1); }, alone);
      EXPECT_TRUE(reducer->Resume(reducer->Agreed(), 4, 6).ok());
      int steps = 0;
      for (; steps < 3 || shared_->steps[1] < kReady; ++steps) {
        rank.WriteAll(1);
        EXPECT_TRUE(reducer->NextShard(1, 1).ok());
        reducer->ZeroGradients();
        if (!Step(rank)) return 1;
      }
      fmt::print("rank 0: made {} steps alone\n", steps);
      rank.Recover([&] { return Form(0, "second", addresses.get()); }, both);
      EXPECT_TRUE(state.Is(kSeed));
      LevelAndStep(rank, state, /*has_state=*/true);
      return 0;
    };
    return Rank(0, body, "first", addresses.get());
  }
  int DieElastic() {
    return Rank(1, [&](std::unique_ptr<collective::Communicator> first) {
      const DeviceRank rank(std::move(first), 0,
                            MembersWithout({}, kGpuRanks, 1));
      while (Step(rank)) {
      }
      return 0;
    });
  }
  // Makes its reducer while rank 0 trains, in a communicator of its own.
  int Return() {
    if (!AwaitFlag(&shared_->steps[1], kKilled)) return kSkip;
    auto addresses = *collective::AddressRange::Reserve(size_t{64} << 20);
    auto lone = Form(0, "lone", addresses.get(), /*size=*/1);
    if (!lone.ok()) return kSkip;
    DeviceRank rank(*std::move(lone), 0,
                    MembersWithout(std::vector<int>{1}, kGpuRanks, 1));
    const float* const place = rank.reducer()->gradient(0).data();
    const DeviceMemoryState state(0, rank.stream());
    const auto form = [&] {
      shared_->steps[1] = kReady;
      return Form(1, "second", addresses.get());
    };
    rank.Recover(form, MembersWithout({}, kGpuRanks, 1));
    EXPECT_EQ(rank.reducer()->gradient(0).data(), place);
    LevelAndStep(rank, state, /*has_state=*/false);
    return ::testing::Test::HasFailure() ? 1 : 0;
  }

  bool AwaitFlag(const std::atomic<int>* flag, int value) {
    const MonoTime deadline = MonotonicNow() + collective::nccl::kGpuForming;
    while (flag->load() < value && shared_->why[0] == 0 &&
           MonotonicNow() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return flag->load() >= value;
  }

  static constexpr int kKilled = 1'000'000;
  static constexpr int kReady = 2'000'000;
};

TEST_F(DeviceRecoveryGpuTest, TheSurvivorsProcessAndMemoryStay) {
  RankProcesses processes(3, [&](int process) {
    return process == 0 ? Survive() : process == 1 ? Die() : Replace();
  });
  if (AwaitFlag(&shared_->steps[0], 5)) {
    processes.Signal(1, SIGKILL);
    shared_->steps[1] = kKilled;
  }
  JoinAll(&processes, {0, 2});
}

TEST_F(DeviceRecoveryGpuTest, TheSurvivorGoesOnAloneUntilTheRankReturns) {
  RankProcesses processes(3, [&](int process) {
    return process == 0 ? GoOnAlone() : process == 1 ? DieElastic() : Return();
  });
  if (AwaitFlag(&shared_->steps[0], 5)) {
    processes.Signal(1, SIGKILL);
    shared_->steps[1] = kKilled;
  }
  JoinAll(&processes, {0, 2});
}

}  // namespace
}  // namespace lockstep::worker::runtime
