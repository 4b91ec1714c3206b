// A rank of an elastic job that computes several shards does what their own
// ranks would do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "worker/runtime/progress.h"
#include "worker/trainer/evaluation.h"
#include "worker/trainer/faults.h"
#include "worker/trainer/input.h"
#include "worker/trainer/job_data.h"
#include "worker/trainer/local_model.h"
#include "worker/trainer/testing.h"

namespace lockstep::worker::trainer {
namespace {

constexpr int kWorld = 3;
constexpr int64_t kClasses = 4;

// Keeps what it is given, as a reducer does with the gradients of one shard.
class OneShardReducer final : public runtime::Reducer {
 public:
  explicit OneShardReducer(Replica* replica) {
    for (size_t i = 0; i < replica->parameters(); ++i) {
      gradients_.emplace_back(replica->values(i).size());
    }
  }
  const std::vector<std::vector<float>>& gradients() const {
    return gradients_;
  }

  std::span<float> gradient(size_t i) override { return gradients_[i]; }
  size_t parameters() const override { return gradients_.size(); }
  void ZeroGradients() override {
    for (auto& gradient : gradients_) gradient.assign(gradient.size(), 0.0f);
  }
  int64_t step() const override { return 1; }
  int64_t committed() const override { return 0; }
  bool wants_state_hash() const override { return false; }
  Status Add(size_t, std::span<const float>) override { return Unused(); }
  Status Put(size_t i, std::span<const float> gradient) override {
    if (gradient.data() != gradients_[i].data()) {
      gradients_[i].assign(gradient.begin(), gradient.end());
    }
    return OkStatus();
  }
  Status Ready(size_t) override { return OkStatus(); }
  StatusOr<runtime::StepResult> Finish(const runtime::StepInputs&) override {
    return Unused();
  }
  Status NextShard(int64_t, double) override { return OkStatus(); }
  StatusOr<runtime::StepOrders> Commit() override { return Unused(); }
  const std::vector<uint32_t>& order() const override { return order_; }
  Status Vote(uint64_t, bool) override { return Unused(); }
  const std::optional<runtime::CheckpointOrder>& in_flight() const override {
    return in_flight_;
  }
  bool voted() const override { return false; }
  StatusOr<runtime::StepOrders> Settle() override { return Unused(); }
  StatusOr<runtime::CheckpointOrder> BeginCheckpoint() override {
    return Unused();
  }

 private:
  static Status Unused() { return Internal("not used here"); }

  std::vector<std::vector<float>> gradients_;
  std::vector<uint32_t> order_;
  std::optional<runtime::CheckpointOrder> in_flight_;
};

class ShardsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The last step of an epoch has two samples: one shard has none.
    WriteQuarters(directory_.path() + "/train", 50, 1);
    WriteQuarters(directory_.path() + "/eval", 1001, 2);
    TrainerOptions options;
    options.data.train = {directory_.path() + "/train"};
    options.data.eval = {directory_.path() + "/eval"};
    options.batch_size = 8;
    auto data = OpenJobData(RealFileSystem(), options, kWorld);
    ASSERT_TRUE(data.ok()) << data.status();
    data_.emplace(*std::move(data));
    auto progress = runtime::Progress::Create("", 0, 1);
    ASSERT_TRUE(progress.ok()) << progress.status();
    progress_ = *std::move(progress);
  }

  std::unique_ptr<SampleInput> Start(const std::vector<int>& shards,
                                     const task::InputCounters& before = {}) {
    data::PrefetcherOptions options;
    options.world = kWorld;
    options.shape = data_->shape;
    options.classes = kClasses;
    options.end_epoch = 1;
    auto input =
        SampleInput::Start(data_->train, data_->plan, options, shards, before);
    EXPECT_TRUE(input.ok()) << input.status();
    return input.ok() ? *std::move(input) : nullptr;
  }

  std::unique_ptr<Replica> MakeReplicaOf(int rank) {
    ModelOptions options;
    options.shape = data_->shape;
    options.classes = kClasses;
    options.seed = 7;
    auto replica = Replica::Create(options, rank);
    EXPECT_TRUE(replica.ok()) << replica.status();
    return replica.ok() ? *std::move(replica) : nullptr;
  }

  rank_link::TempDir directory_;
  std::optional<JobData> data_;
  std::unique_ptr<runtime::Progress> progress_;
};

TEST_F(ShardsTest, InputIsThatOfEachShardsOwnRank) {
  const auto both = Start({1, 2});
  const auto first = Start({1});
  const auto second = Start({2});
  ASSERT_EQ(both->shards(), 2u);
  uint64_t empty = 0;
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < 2; ++i) {
      SampleInput* const own = i == 0 ? first.get() : second.get();
      ASSERT_TRUE(both->Next(i, progress_.get()).ok());
      ASSERT_TRUE(own->Next(0, progress_.get()).ok());
      EXPECT_EQ(both->batch().count, own->batch().count);
      EXPECT_EQ(both->batch().labels, own->batch().labels);
      EXPECT_EQ(both->batch().pixels, own->batch().pixels);
      EXPECT_EQ(both->batch().begin, own->batch().begin);
      EXPECT_EQ(both->batch().end, own->batch().end);
      empty += both->batch().count == 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(empty, 1u);
  const task::InputCounters sum = both->counters();
  EXPECT_EQ(sum.bytes, first->counters().bytes + second->counters().bytes);
  EXPECT_EQ(sum.queue_capacity, 2 * first->counters().queue_capacity);
  // One that follows counts on, and has its own queue.
  const auto next = Start({0}, sum);
  EXPECT_GE(next->counters().bytes, sum.bytes);
  EXPECT_EQ(next->counters().queue_capacity, first->counters().queue_capacity);
}

TEST_F(ShardsTest, AnEmptyShardLeavesNoGradientOfTheOneBefore) {
  const Faults faults(FaultOptions(), 0, 1);
  std::unique_ptr<Replica> replica = MakeReplicaOf(0);
  OneShardReducer reducer(replica.get());
  LocalModel model(std::move(replica), nullptr, &faults, 8);
  const auto input = Start({0, 2});
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(input->Next(i, progress_.get()).ok());
      const auto loss =
          model.ComputeGradients(input->batch(), step + 1, &reducer);
      ASSERT_TRUE(loss.ok()) << loss.status();
      bool all_zero = true;
      for (const auto& gradient : reducer.gradients()) {
        for (const float value : gradient) all_zero &= value == 0;
      }
      const bool none = step == 2 && i == 1;
      EXPECT_EQ(input->batch().count == 0, none);
      EXPECT_EQ(all_zero, none);
      EXPECT_EQ(*loss == 0, none);
    }
  }
}

TEST_F(ShardsTest, EvaluationIsTheSameWhoeverComputesAShard) {
  std::vector<std::vector<double>> whole;
  for (int shard = 0; shard < kWorld; ++shard) {
    const auto own =
        EvaluateShards(MakeReplicaOf(shard).get(), *data_, kClasses, kWorld,
                       std::vector<int>{shard}, nullptr);
    ASSERT_TRUE(own.ok()) << own.status();
    ASSERT_EQ(own->size(), 3u * kWorld);
    whole.push_back(*own);
  }
  int batches = 0;
  const auto both =
      EvaluateShards(MakeReplicaOf(2).get(), *data_, kClasses, kWorld,
                     std::vector<int>{2, 0}, [&batches] { ++batches; });
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(batches, 4);  // 1001 samples are two steps of 750.
  double samples = 0;
  for (size_t k = 0; k < both->size(); ++k) {
    // Each number has one shard.
    const size_t shard = k / 3;
    EXPECT_EQ((*both)[k], shard == 1 ? 0 : whole[shard][k]) << k;
    EXPECT_GT(whole[shard][k], 0) << k;
    EXPECT_EQ(whole[(shard + 1) % kWorld][k], 0) << k;
    if (k % 3 == 0) samples += whole[shard][k];
  }
  EXPECT_EQ(samples, 1001);
}

}  // namespace
}  // namespace lockstep::worker::trainer
