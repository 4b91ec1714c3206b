// The reducer of an elastic job over nccl: members add their shards up, on the
// host or on a GPU in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "worker/collective/address_range.h"
#include "worker/collective/nccl/nccl_test_util.h"
#include "worker/runtime/reducer_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using collective::Communicator;
using collective::CommunicatorOptions;
using collective::nccl::FakeBytesInUse;
using collective::nccl::FakeSlowFill;
using collective::nccl::FormNccl;
using collective::nccl::GpuApi;
using collective::nccl::kLong;
using collective::nccl::MakeFakeStream;
using collective::nccl::NcclOptions;
using collective::nccl::NcclRanks;
using collective::nccl::ReleaseFakeFills;
using collective::nccl::ResetFakeGpu;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kShards = 5;
constexpr int kMembers = 2;  // Ranks 1 and 3: shards 1, 0, 4 and 3, 2.

// Waits for what is on the stream, and then the test may write.
void Settle(Communicator* communicator, cudaStream_t stream) {
  const collective::Buffer* const number =
      *communicator->Allocate(sizeof(double));
  const collective::Buffer* const some = *communicator->AllocateOnDevice(64);
  auto work = communicator->device_memory()->StartSumOfSquares(
      {some, 0, 1, collective::DataType::kFloat32},
      {number, 0, 1, collective::DataType::kFloat64}, stream);
  ASSERT_TRUE((*work)->Wait(MonotonicNow() + kLong).ok());
}

// Whether gradients are on the device.
class NcclShardsTest : public ::testing::TestWithParam<bool> {
 protected:
  struct Member {
    ReducingRank rank;
    Membership membership;
    cudaStream_t stream;

    Reducer* reducer() { return rank.reducer.get(); }
    // All shards; `fill` writes the gradients of one.
    StatusOr<StepResult> Step(const std::function<void(int shard)>& fill) {
      const std::vector<int>& own = membership.own_shards();
      for (const int shard : own) {
        Settle(rank.communicator.get(), stream);
        fill(shard);
        if (shard == own.back()) break;
        LOCKSTEP_RETURN_IF_ERROR(reducer()->NextShard(shard + 1, shard));
      }
      StepInputs inputs;
      inputs.samples = own.back() + 1;
      inputs.loss_sum = own.back();
      return reducer()->Finish(inputs);
    }
  };

  void Run(const std::function<void(Member*)>& body, double clip_norm = 0) {
    {
      NcclRanks group(kMembers);
      RunRanks(kMembers, [&](int place) {
        const cudaStream_t stream = MakeFakeStream();
        SteppedReducerOptions options;
        options.elastic = true;
        options.membership =
            MembersWithout(std::vector<int>{0, 2, 4}, kShards, 2 * place + 1);
        options.reducer.clip_norm = clip_norm;
        if (GetParam()) options.reducer.device_stream = stream;
        const Membership membership = options.membership;
        Member member{
            {group.Take(place), std::move(options)}, membership, stream};
        body(&member);
      });
    }
    EXPECT_EQ(FakeBytesInUse(), 0u);
  }
};
INSTANTIATE_TEST_SUITE_P(Gradients, NcclShardsTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "OnDevice" : "OnHost";
                         });

TEST_P(NcclShardsTest, AreTheSumOverAllShards) {
  Run([](Member* member) {
    for (int step = 1; step <= 3; ++step) {
      const auto result = member->Step([&](int shard) {
        for (size_t p = 0; p < 3; ++p) {
          const std::span<float> gradient = member->reducer()->gradient(p);
          for (size_t i = 0; i < gradient.size(); ++i) {
            gradient[i] = static_cast<float>((shard + 1) * step * (i + p));
          }
        }
      });
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(result->apply);
      EXPECT_EQ(result->samples, 15);
      EXPECT_DOUBLE_EQ(result->loss, 10.0 / 15);
      for (size_t p = 0; p < 3; ++p) {
        const std::span<const float> gradient = member->reducer()->gradient(p);
        for (size_t i = 0; i < gradient.size(); ++i) {
          ASSERT_EQ(gradient[i], static_cast<float>(15 * step * (i + p)));
        }
      }
      ASSERT_TRUE(member->reducer()->Commit().ok());
    }
    EXPECT_TRUE(member->reducer()->Settle().ok());
  });
}

TEST_P(NcclShardsTest, AsCloseAsAnotherOrderOfAdditions) {
  std::vector<std::vector<std::vector<float>>> of_shard;
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    of_shard.push_back(RandomGradients(shard));
  }
  Run([&](Member* member) {
    const auto result = member->Step([&](int shard) {
      for (size_t p = 0; p < 3; ++p) {
        std::copy(of_shard[shard][p].begin(), of_shard[shard][p].end(),
                  member->reducer()->gradient(p).begin());
      }
    });
    ASSERT_TRUE(result.ok()) << result.status();
    double wrong = 0, norm = 0;
    for (size_t p = 0; p < 3; ++p) {
      const std::span<const float> got = member->reducer()->gradient(p);
      for (size_t i = 0; i < got.size(); ++i) {
        double sum = 0;
        for (const auto& shard : of_shard) sum += shard[p][i];
        wrong += (got[i] - sum) * (got[i] - sum);
        norm += sum * sum;
      }
    }
    EXPECT_GT(norm, 0);
    EXPECT_LE(std::sqrt(wrong), 1e-6 * std::sqrt(norm));
  });
}

TEST_P(NcclShardsTest, OneThatIsNotFiniteSkipsTheStepWhicheverShardHasIt) {
  for (int bad_shard = 0; bad_shard < kShards; ++bad_shard) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
      Run([&](Member* member) {
        for (int step = 1; step <= 2; ++step) {
          const auto result = member->Step([&](int shard) {
            member->rank.Fill(1);
            if (step == 1 && shard == bad_shard) {
              member->reducer()->gradient(0).back() = bad;
            }
          });
          ASSERT_TRUE(result.ok()) << result.status();
          EXPECT_EQ(result->skipped, step == 1) << bad_shard;
          EXPECT_TRUE(member->reducer()->Commit().ok());
        }
        EXPECT_THAT(member->reducer()->gradient(0), Each(kShards));
      });
    }
  }
}

// Each shard is finite, and the sum of a rank's is not.
TEST_P(NcclShardsTest, ASumThatOverflowsSkipsTheStep) {
  Run([](Member* member) {
    const auto result = member->Step([&](int shard) {
      member->rank.Fill(shard == 0 || shard == 1 ? 3e38f : 0);
    });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->skipped);
    EXPECT_TRUE(member->reducer()->Commit().ok());
    EXPECT_TRUE(member->Step([&](int) { member->rank.Fill(1); })
                    .value_or(StepResult())
                    .apply);
  });
}

TEST_P(NcclShardsTest, AreClippedByTheNormOfTheSum) {
  Run(
      [](Member* member) {
        const auto result = member->Step([&](int shard) {
          member->rank.Fill(0);
          member->reducer()->gradient(0)[7] = static_cast<float>(shard + 1);
          member->reducer()->gradient(2)[9] = static_cast<float>(2 * shard + 2);
        });
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_DOUBLE_EQ(result->gradient_norm, 15 * std::sqrt(5));
        EXPECT_DOUBLE_EQ(result->gradient_scale, 1 / (15 * std::sqrt(5)));
      },
      /*clip_norm=*/1);
}

TEST_P(NcclShardsTest, EachShardOfARankMustBeGiven) {
  Run([](Member* member) {
    Settle(member->rank.communicator.get(), member->stream);
    const size_t shards = member->membership.own_shards().size();
    EXPECT_THAT(Message(member->reducer()->Finish({}).status()),
                HasSubstr(fmt::format("1 of this rank's {} shards", shards)));
    for (size_t i = 1; i < shards; ++i) {
      EXPECT_TRUE(member->reducer()->NextShard(1, 1).ok());
    }
    EXPECT_THAT(Message(member->reducer()->NextShard(1, 1)),
                HasSubstr("this rank has one shard"));
  });
}

// The host is far ahead of the device, in all shards.
TEST(NcclShardsOnDeviceTest, AreAddedInTurnWithTheirStream) {
  NcclRanks group(1);
  SteppedReducerOptions options;
  options.elastic = true;
  options.membership = MembersWithout(std::vector<int>{1, 2}, 3, 0);
  const cudaStream_t stream = MakeFakeStream();
  options.reducer.device_stream = stream;
  ReducingRank rank(group.Take(0), options);
  // 0x3e3e3e3e is 0.1857...
  constexpr int kByte = 0x3e;
  float expected = 0;
  std::memset(&expected, kByte, sizeof(expected));
  for (int shard = 0; shard < 3; ++shard) {
    rank.reducer->ZeroGradients();
    for (size_t i = 0; i < 3; ++i) {
      const auto gradient = rank.reducer->gradient(i);
      FakeSlowFill(stream, gradient.data(), kByte, gradient.size_bytes());
      EXPECT_TRUE(rank.reducer->Ready(i).ok());
    }
    if (shard == 2) break;
    ASSERT_TRUE(rank.reducer->NextShard(1, 1).ok());
  }
  ReleaseFakeFills();
  const auto result = rank.reducer->Finish({});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->apply);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(rank.reducer->gradient(i),
                Each(expected + expected + expected));
  }
}

// The stream has not come to them when a peer is lost.
TEST(NcclShardsOnDeviceTest, AreAddedAlthoughTheCommunicatorHasEnded) {
  const auto addresses = *collective::AddressRange::Reserve(64 << 20);
  const GpuApi& api = ResetFakeGpu({});
  const auto form = [&] {
    CommunicatorOptions own = NcclOptions(0, 1, nullptr);
    own.addresses = addresses.get();
    return FormNccl(own, api).value();
  };
  SteppedReducerOptions options;
  options.elastic = true;
  options.membership = MembersWithout(std::vector<int>{1}, 2, 0);
  const cudaStream_t stream = MakeFakeStream();
  options.reducer.device_stream = stream;
  const Membership membership = options.membership;
  ReducingRank rank(form(), options);
  auto* const reducer = static_cast<RecoverableReducer*>(rank.reducer.get());
  const auto gradient = reducer->gradient(0);
  FakeSlowFill(stream, gradient.data(), 0x3e, gradient.size_bytes());
  ASSERT_TRUE(reducer->NextShard(1, 1).ok());
  rank.communicator->Abort("a peer is lost");
  ASSERT_TRUE(reducer->Unbind().ok());
  rank.communicator.reset();
  ASSERT_TRUE(addresses->kept()->AwaitFree(MonotonicNow() + kLong));
  ReleaseFakeFills();
  rank.communicator = form();
  ASSERT_TRUE(reducer->Rebind(rank.communicator.get(), membership).ok());
  ASSERT_TRUE(reducer->Resume(reducer->Agreed(), 5, 6).ok());
  const auto fill = [&](float value) {
    reducer->ZeroGradients();
    Settle(rank.communicator.get(), stream);
    rank.Fill(value);
  };
  fill(1);
  ASSERT_TRUE(reducer->NextShard(1, 1).ok());
  fill(2);
  const auto result = reducer->Finish({});
  ASSERT_TRUE(result.ok()) << result.status();
  for (size_t i = 0; i < 3; ++i) EXPECT_THAT(reducer->gradient(i), Each(3.0f));
}

// A loss needs no more memory: what is missing is said at the start.
TEST(NcclShardsOnDeviceTest, NeedMemoryForTheSumFromTheStart) {
  NcclRanks group(1, {.memory = 3 << 19});
  const auto progress = *Progress::Create("", 0, 1);
  SteppedReducerOptions options;
  options.communicator = group[0];
  options.progress = progress.get();
  options.reducer.device_stream = MakeFakeStream();
  const std::vector<Parameter> large = {{"large", 1 << 18}};  // 1 MiB
  EXPECT_TRUE(MakeSteppedReducer(large, options).ok());
  group.Leave();
  NcclRanks again(1, {.memory = 3 << 19});
  options.communicator = again[0];
  options.reducer.device_stream = MakeFakeStream();
  options.elastic = true;
  options.membership = MembersWithout({}, 2, 0);
  const Status status = MakeSteppedReducer(large, options).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(Message(status), HasSubstr("one more copy of the gradients"));
  again.Leave();
}

TEST(NcclShardsOnDeviceTest, NeedNccl) {
  SteppedReducerOptions options;
  options.elastic = true;
  options.membership.world_size = 2;
  const auto progress = *Progress::Create("", 0, 1);
  options.progress = progress.get();
  options.reducer.device_stream = &options;
  EXPECT_THAT(Message(MakeSteppedReducer(kParameters, options).status()),
              HasSubstr("ask for backend nccl"));
}

}  // namespace
}  // namespace lockstep::worker::runtime
