#include "worker/agent/stream/heartbeats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::worker::agent {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class HeartbeatsTest : public testing::Test, public HeartbeatSource {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create(&clock_);
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    beats_ = std::make_unique<Heartbeats>(
        loop_.get(), this,
        [this](const NodeHeartbeat& beat) { sent_.push_back(beat); },
        [this] { ++lost_; });
    beats_->Reset();
  }
  NodeReadings TakeReadings() override {
    NodeReadings readings;
    readings.gpu_errors = std::exchange(errors_, {});
    return readings;
  }
  void ReturnErrors(const std::vector<GpuError>& errors) override {
    errors_.insert(errors_.end(), errors.begin(), errors.end());
  }
  std::vector<GangProgress> Progress() override { return {}; }

  // The next heartbeat, without waiting for it.
  void Beat() { beats_->Start(std::chrono::hours(1)); }

  SystemClock clock_;
  std::unique_ptr<EventLoop> loop_;
  std::vector<GpuError> errors_;
  std::vector<NodeHeartbeat> sent_;
  int lost_ = 0;
  std::unique_ptr<Heartbeats> beats_;
};

TEST_F(HeartbeatsTest, ErrorsOfGpusAreReportedAgainUntilTheyAreAnswered) {
  errors_ = {{0, 79}};
  Beat();
  ASSERT_THAT(sent_, SizeIs(1));
  EXPECT_THAT(sent_[0].readings.gpu_errors, SizeIs(1));
  beats_->Reset();  // The stream ended before the answer.
  EXPECT_THAT(errors_, SizeIs(1));
  Beat();
  beats_->OnAck(sent_.back().sequence);
  beats_->Reset();
  EXPECT_THAT(errors_, IsEmpty());
}

TEST_F(HeartbeatsTest, TheRoundTripOfAnAnswerIsInTheNextHeartbeat) {
  Beat();
  EXPECT_FALSE(sent_.back().readings.round_trip.has_value());
  beats_->OnAck(sent_.back().sequence);
  Beat();
  EXPECT_TRUE(sent_.back().readings.round_trip.has_value());
  Beat();
  EXPECT_FALSE(sent_.back().readings.round_trip.has_value());
}

TEST_F(HeartbeatsTest, AStreamWithoutAnswersIsLost) {
  for (int i = 0; i < 61; ++i) Beat();
  EXPECT_EQ(lost_, 0);
  Beat();
  EXPECT_EQ(lost_, 1);
  EXPECT_THAT(sent_, SizeIs(61));
}

}  // namespace
}  // namespace lockstep::worker::agent
