// A reducer whose gradients lie on a device goes from one communicator to the
// next: the nccl backend over a GPU in memory, which a test may look into.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/collective/address_range.h"
#include "worker/collective/nccl/nccl_test_util.h"
#include "worker/runtime/reducer_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using collective::AddressRange;
using collective::Communicator;
using collective::MapRendezvousStore;
using collective::nccl::FakeBytesInUse;
using collective::nccl::FakeCommunicatorsInUse;
using collective::nccl::FakeSlowFill;
using collective::nccl::FakeWrongThreads;
using collective::nccl::kLong;
using collective::nccl::MakeFakeStream;
using collective::nccl::ReleaseFakeFills;
using collective::nccl::ResetFakeGpu;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr int kRanks = 2;

// One rank of a job whose communicator is replaced.
class ReboundRank {
 public:
  ReboundRank(int rank, MapRendezvousStore* store,
              const SteppedReducerOptions& options)
      : rank_(rank) {
    SteppedReducerOptions own = options;
    own.reducer.device_stream = stream_;
    reducing_ = std::make_unique<ReducingRank>(Form(store), own);
    reducer_ = static_cast<RecoverableReducer*>(reducing_->reducer.get());
  }

  RecoverableReducer* reducer() { return reducer_; }
  cudaStream_t stream() { return stream_; }

  // Runs what is on the stream so far, such as clearing: the test writes by
  // itself.
  void AwaitStream() {
    Communicator* const c = reducing_->communicator.get();
    const collective::Buffer* const number = *c->Allocate(sizeof(double));
    EXPECT_TRUE(c->device_memory()
                    ->CopyToHost(number->data, number->data, 8, stream_)
                    .ok());
  }
  void Recover(MapRendezvousStore* store) {
    reducing_->communicator->Abort("a rank is gone");
    EXPECT_TRUE(reducer_->Unbind().ok());
    reducer_->ZeroGradients();  // Nothing, until there is a communicator.
    agreed_ = reducer_->Agreed();
    reducing_->communicator.reset();
    reducing_->communicator = Form(store);
    const Status bound = reducer_->Rebind(reducing_->communicator.get(),
                                          MembersWithout({}, kRanks, rank_));
    ASSERT_TRUE(bound.ok()) << bound;
  }
  void Resume(const std::string& agreed) {
    const auto orders = reducer_->Resume(agreed, 5, 6);
    ASSERT_TRUE(orders.ok()) << orders.status();
    AwaitStream();
  }
  const std::string& agreed() { return agreed_; }

  // A step with these values on all ranks, ready in this order.
  StepResult Step(float value, const std::vector<size_t>& order = {2, 1, 0}) {
    AwaitStream();
    reducing_->Fill(value);
    for (const size_t i : order) EXPECT_TRUE(reducer_->Ready(i).ok());
    const auto result = reducer_->Finish({});
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    EXPECT_TRUE(result->apply);
    for (size_t i = 0; i < reducer_->parameters(); ++i) {
      EXPECT_THAT(reducer_->gradient(i), Each(kRanks * value));
    }
    EXPECT_TRUE(reducer_->Commit().ok());
    return *result;
  }
  void Fill(float value) { reducing_->Fill(value); }
  std::vector<const float*> places() {
    std::vector<const float*> places;
    for (size_t i = 0; i < reducer_->parameters(); ++i) {
      places.push_back(reducer_->gradient(i).data());
    }
    return places;
  }

 private:
  std::unique_ptr<Communicator> Form(MapRendezvousStore* store) {
    collective::CommunicatorOptions options =
        collective::nccl::NcclOptions(rank_, kRanks, store);
    options.addresses = addresses_.get();
    auto formed =
        collective::nccl::FormNccl(options, collective::nccl::FakeGpu());
    EXPECT_TRUE(formed.ok()) << formed.status();
    return *std::move(formed);
  }

  const int rank_;
  const cudaStream_t stream_ = MakeFakeStream();
  std::unique_ptr<AddressRange> addresses_ = *AddressRange::Reserve(2 << 20);
  std::unique_ptr<ReducingRank> reducing_;
  RecoverableReducer* reducer_ = nullptr;
  std::string agreed_;
};

class DeviceRecoveryTest : public ::testing::Test {
 protected:
  DeviceRecoveryTest() { ResetFakeGpu({}); }
  ~DeviceRecoveryTest() override { ExpectNothingLeft(); }
  static void ExpectNothingLeft() {
    EXPECT_EQ(FakeBytesInUse(), 0u);
    EXPECT_EQ(FakeCommunicatorsInUse(), 0);
    EXPECT_EQ(FakeWrongThreads(), 0);
  }
  void Run(const SteppedReducerOptions& options,
           const std::function<void(int, ReboundRank*)>& body) {
    RunRanks(kRanks, [&](int r) {
      ReboundRank rank(r, &stores_[0], options);
      body(r, &rank);
      all_.arrive_and_wait();
    });
  }

  MapRendezvousStore stores_[3];
  std::barrier<> all_{kRanks};
};

TEST_F(DeviceRecoveryTest, GradientsKeepTheirAddresses) {
  SteppedReducerOptions options;
  options.reducer.clip_norm = 1;
  Run(options, [&](int, ReboundRank* rank) {
    rank->Step(1);
    const std::vector<const float*> before = rank->places();
    for (int recovery = 1; recovery <= 2; ++recovery) {
      // In the middle of a step: one bucket is on its way.
      rank->AwaitStream();
      rank->Fill(7);
      EXPECT_TRUE(rank->reducer()->Ready(2).ok());
      all_.arrive_and_wait();
      rank->Recover(&stores_[recovery]);
      rank->Resume(rank->agreed());
      EXPECT_EQ(rank->places(), before);
      for (size_t i = 0; i < rank->reducer()->parameters(); ++i) {
        EXPECT_THAT(rank->reducer()->gradient(i), Each(0));
      }
      EXPECT_EQ(rank->reducer()->step(), 2 * recovery);
      EXPECT_NEAR(rank->Step(0.5f).gradient_norm, std::sqrt(4010.0), 1e-3);
      rank->Step(2);
    }
  });
}

// The survivor's GPU may still compute the step that is thrown away. (A real
// one frees memory only after that, so leaving takes as long.)
TEST_F(DeviceRecoveryTest, WhatTheStreamStillWritesIsCleared) {
  Run({}, [&](int, ReboundRank* rank) {
    rank->Step(1);
    rank->AwaitStream();
    const std::span<float> late = rank->reducer()->gradient(2);
    FakeSlowFill(rank->stream(), late.data(), 0x3e, late.size_bytes());
    EXPECT_TRUE(rank->reducer()->Ready(2).ok());
    all_.arrive_and_wait();
    const MonoTime began = MonotonicNow();
    rank->Recover(&stores_[1]);
    EXPECT_LT(MonotonicNow() - began, kLong);
    all_.arrive_and_wait();
    // Clearing comes after it.
    ReleaseFakeFills();
    rank->Resume(rank->agreed());
    EXPECT_THAT(rank->reducer()->gradient(2), Each(0));
    rank->Step(3);
  });
}

// One rank has learned the order of the buckets, and the other one has not.
TEST_F(DeviceRecoveryTest, ALearnedOrderIsTakenOver) {
  SteppedReducerOptions options;
  options.reducer.learn_order = true;
  std::string agreed;
  Run(options, [&](int r, ReboundRank* rank) {
    for (int step = 1; step <= 3; ++step) rank->Step(1, {1, 2, 0});
    EXPECT_THAT(rank->reducer()->order(), ElementsAre(1, 2, 0));
    all_.arrive_and_wait();
    rank->Recover(&stores_[1]);
    if (r == 0) agreed = rank->agreed();
    all_.arrive_and_wait();
    rank->Resume(agreed);
    rank->Step(2, {1, 2, 0});
  });
  // The replacement begins with the order of the program.
  const std::string known = agreed;
  ExpectNothingLeft();
  ResetFakeGpu({});
  MapRendezvousStore store;
  MapRendezvousStore next;
  std::barrier<> all(kRanks);
  RunRanks(kRanks, [&](int r) {
    ReboundRank rank(r, &store, options);
    all.arrive_and_wait();
    rank.Recover(&next);
    rank.AwaitStream();
    rank.Fill(7);
    rank.Resume(known);
    EXPECT_THAT(rank.reducer()->order(), ElementsAre(1, 2, 0));
    EXPECT_THAT(rank.reducer()->gradient(0), Each(0));
    rank.Step(2, {1, 2, 0});
    all.arrive_and_wait();
  });
}

}  // namespace
}  // namespace lockstep::worker::runtime
