// What becomes of a checkpoint in flight when a rank is lost: the saver of one
// rank that is left.
#include "worker/trainer/saver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "worker/checkpoint/cleanup.h"
#include "worker/collective/testing.h"
#include "worker/rank_link/testing.h"
#include "worker/runtime/recovery.h"
#include "worker/runtime/session_test_util.h"

namespace lockstep::worker::trainer {
namespace {

using rank_link::TempDir;
using rank_link::TestDaemon;

constexpr char kSavedJob[] = "saved";

// Rank 1 of 2. Rank 0 is away, so this one is the chief. Its checkpoint of step
// 1 is in flight, it has voted, and no round has settled that.
class SaverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Expect(0, {0});
    runtime::SetRankEnvironment(daemon_.path(), kSavedJob, 1, 1);
    auto session = runtime::Session::Join(
        {.recoverable = true,
         .elastic = true,
         .hold_timeout = std::chrono::milliseconds(200)});
    runtime::ClearRankEnvironment();
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    const Status formed = session_->Form({});
    ASSERT_TRUE(formed.ok()) << formed;
    auto reducer =
        session_->MakeReducer({{"w", 4}}, {.state_hash_interval = 0});
    ASSERT_TRUE(reducer.ok()) << reducer.status();
    reducer_ = *std::move(reducer);
    const std::string root = dir_.path() + "/checkpoints";
    ASSERT_TRUE(
        checkpoint::TakeOver(RealFileSystem(), root, kSavedJob, 1).ok());
    SaverOptions saving;
    saving.root = root;
    saving.elastic = true;
    saver_ = std::make_unique<Saver>(session_.get(), reducer_.get(), saving);
    ASSERT_NO_FATAL_FAILURE(Step());
  }

  void Expect(uint32_t recovery, const std::vector<int>& away) {
    v1::RankWelcome welcome;
    welcome.set_rank(1);
    welcome.set_world_size(2);
    welcome.set_local_size(2);
    welcome.set_generation(1);
    welcome.set_job(kSavedJob);
    welcome.set_job_key(std::string(32, 'k'));
    welcome.set_spec_hash(std::string(32, 's'));
    welcome.set_bind_address("127.0.0.1");
    welcome.set_checkpoint_interval_steps(1);
    welcome.set_attempt(1);
    welcome.set_recovery(recovery);
    for (const int rank : away) welcome.add_away_ranks(rank);
    daemon_.Expect({kSavedJob, 1, 1}, runtime::RankNonce(1), welcome);
  }

  void Step() {
    ASSERT_TRUE(reducer_->NextShard(1, 1).ok());
    runtime::StepInputs inputs;
    inputs.samples = 1;
    ASSERT_TRUE(reducer_->Finish(inputs).ok());
    const auto orders = reducer_->Commit();
    ASSERT_TRUE(orders.ok()) << orders.status();
    ASSERT_TRUE(orders->checkpoint);
    order_ = *orders->checkpoint;
    ASSERT_TRUE(saver_->Obey(*orders, State()).ok());
    ASSERT_TRUE(collective::AwaitTrue([this] {
      EXPECT_TRUE(saver_->Look().ok());
      return reducer_->voted();
    }));
  }

  Saver::StateFunction State() {
    return [this]() -> StatusOr<SavedState> {
      SavedState saved;
      saved.tensors = {{.name = "w",
                        .dtype = checkpoint::DType::kF32,
                        .shape = {4},
                        .data = weights_.data(),
                        .bytes = 4 * sizeof(float)}};
      saved.progress.step = 1;
      return saved;
    };
  }
  // A recovery, with the orders that it gave to this rank.
  void Resume(std::optional<bool> settled, int64_t complete_step) {
    runtime::StepOrders orders;
    if (settled) orders.settled = {order_, *settled};
    const Status resumed = saver_->Resume(orders, complete_step, State());
    EXPECT_TRUE(resumed.ok()) << resumed;
  }
  // Rank 0 is to return, so this rank is no longer the chief. It never comes.
  void EndAsChief() {
    Expect(1, {});
    Status returns;
    ASSERT_TRUE(collective::AwaitTrue([&] {
      returns = runtime::CheckMembership(session_.get());
      return !returns.ok();
    }));
    runtime::ReplicaState state;
    state.memory = {std::as_writable_bytes(std::span(weights_))};
    EXPECT_FALSE(
        runtime::Recover(session_.get(), returns, reducer_.get(), state).ok());
    ASSERT_FALSE(session_->chief());
  }

  // Whether the saver comes to tell so.
  bool Told(const std::function<bool(const v1::RankReport&)>& what) {
    return daemon_.WaitFor([&] {
      EXPECT_TRUE(saver_->Look().ok());
      for (const auto& [key, report] : daemon_.reports) {
        if (what(report)) return true;
      }
      return false;
    });
  }
  bool ToldOfCheckpoint() {
    return Told([](const auto& report) {
      return !report.checkpoint_path().empty() && report.checkpoint_step() == 1;
    });
  }

  TempDir dir_;
  TestDaemon daemon_{dir_.path() + "/link"};
  std::vector<float> weights_ = {1, 2, 3, 4};
  std::unique_ptr<runtime::Session> session_;
  std::unique_ptr<runtime::Reducer> reducer_;
  std::unique_ptr<Saver> saver_;
  runtime::CheckpointOrder order_;
};

// A rank is lost in the round that settles the last checkpoint: this rank may
// not know how that ended, and others do. From what all have in common they
// save again or do not, so this must be the same on all.
TEST_F(SaverTest, WhatAllKnowOfTheLastCheckpointCounts) {
  // Another rank knew that it is complete, and the chief is a new process.
  Resume(true, -1);
  EXPECT_EQ(saver_->complete_step(), -1);
  EXPECT_TRUE(ToldOfCheckpoint()) << "all have voted";
  // The rank that knew.
  Resume(std::nullopt, -1);
  EXPECT_EQ(saver_->complete_step(), -1);
  // The rank that the others have their state from knew of a newer one.
  Resume(false, 7);
  EXPECT_EQ(saver_->complete_step(), 7);
}

TEST_F(SaverTest, AFormerChiefPublishesWhatAllHaveVotedFor) {
  ASSERT_NO_FATAL_FAILURE(EndAsChief());
  Resume(true, 1);
  EXPECT_EQ(saver_->complete_step(), 1);
  EXPECT_TRUE(ToldOfCheckpoint());
}

TEST_F(SaverTest, AFormerChiefGivesUpWhatItWrites) {
  ASSERT_NO_FATAL_FAILURE(EndAsChief());
  Resume(std::nullopt, -1);
  EXPECT_TRUE(Told([](const auto& report) {
    return report.event().find("another rank saves now") != std::string::npos;
  }));
}

}  // namespace
}  // namespace lockstep::worker::trainer
