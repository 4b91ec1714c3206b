#include "server/core/capture_wait.h"

#include <gtest/gtest.h>

#include "server/core/job.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;

class CaptureWaitTest : public testing::Test {
 protected:
  CaptureWaitTest() {
    job_.spec.name = "j";
    job_.generation = 1;
    for (const char* node : {"a", "b"}) {
      job_.tasks.emplace_back().node = node;
      view_.nodes[node].gangs[1].generation = 1;
    }
    wait_.Reset(1);
  }
  void Answer(const NodeName& node, uint32_t number) {
    view_.nodes[node].gangs[1].evidence_done = number;
  }
  bool IsOver() const { return wait_.IsOver(job_, view_, now_); }

  Job job_;
  JobView view_;
  CaptureWait wait_;
  MonoTime now_ = MonoTime(std::chrono::hours(1));
};

TEST_F(CaptureWaitTest, WaitsForEachNode) {
  EXPECT_FALSE(IsOver()) << "nothing was asked";
  EXPECT_TRUE(wait_.Ask(Reason::kStalled, job_, view_, now_));
  EXPECT_FALSE(wait_.Ask(Reason::kStalled, job_, view_, now_)) << "once";
  EXPECT_EQ(wait_.number(), 1u);
  Answer("a", 1);
  EXPECT_FALSE(IsOver());
  Answer("b", 1);
  EXPECT_TRUE(IsOver());
}

TEST_F(CaptureWaitTest, ANodeWhoseRanksHaveEndedIsNotAwaited) {
  wait_.Ask(Reason::kStalled, job_, view_, now_);
  Answer("a", 1);
  auto& ranks = view_.nodes["b"].gangs[1].ranks;
  ranks.resize(2);
  ranks[0].exit = ExitStatus();
  EXPECT_FALSE(IsOver());
  ranks[1].exit = ExitStatus();
  EXPECT_TRUE(IsOver());
}

TEST_F(CaptureWaitTest, ASilentNodeDelaysItByFiveSeconds) {
  wait_.Ask(Reason::kStalled, job_, view_, now_);
  Answer("a", 1);
  now_ += 4s;
  EXPECT_FALSE(IsOver());
  now_ += 1s;
  EXPECT_TRUE(IsOver());
}

TEST_F(CaptureWaitTest, AskedAgainItWantsNewEvidence) {
  wait_.Ask(Reason::kStalled, job_, view_, now_);
  Answer("a", 1);
  Answer("b", 1);
  wait_.Drop();
  EXPECT_TRUE(wait_.Ask(Reason::kStalled, job_, view_, now_));
  EXPECT_EQ(wait_.number(), 2u);
  EXPECT_FALSE(IsOver());
}

TEST_F(CaptureWaitTest, AnAnswerToAnEarlierCoordinatorIsNone) {
  Answer("a", 3);
  Answer("b", 3);
  wait_.Ask(Reason::kStalled, job_, view_, now_);
  EXPECT_EQ(wait_.number(), 4u);
  EXPECT_FALSE(IsOver());
}

TEST_F(CaptureWaitTest, AGenerationAsksForItself) {
  wait_.Ask(Reason::kStalled, job_, view_, now_);
  job_.generation = 2;
  wait_.Reset(2);
  EXPECT_EQ(wait_.number(), 0u);
  EXPECT_TRUE(wait_.Ask(Reason::kStalled, job_, view_, now_));
}

TEST_F(CaptureWaitTest, AnotherReasonAsksAgain) {
  EXPECT_TRUE(wait_.Ask(Reason::kNoProgress, job_, view_, now_));
  Answer("a", 1);
  Answer("b", 1);
  ASSERT_TRUE(IsOver());
  EXPECT_TRUE(wait_.TakeEnd());
  EXPECT_FALSE(wait_.TakeEnd()) << "once";
  EXPECT_TRUE(wait_.Ask(Reason::kMaxRunningTime, job_, view_, now_));
  EXPECT_FALSE(IsOver());
  Answer("a", 2);
  Answer("b", 2);
  ASSERT_TRUE(IsOver());
  EXPECT_TRUE(wait_.TakeEnd());
}

}  // namespace
}  // namespace lockstep::server
