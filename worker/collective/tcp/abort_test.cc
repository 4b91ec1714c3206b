// How operations of the tcp backend end early, beyond what holds for every
// backend (worker/collective/abort_test.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "worker/collective/tcp/tcp_test_util.h"

namespace lockstep::worker::collective::tcp {
namespace {

using ::testing::HasSubstr;

// Each has few of the others' connections, so it goes from one to the next.
TEST(TcpAbortTest, OfOneRankIsSeenByAllOthersOfMany) {
  constexpr int kRanks = 18;
  TcpRanks ranks(kRanks);
  std::vector<std::unique_ptr<Work>> works;
  for (int rank = 0; rank < kRanks - 1; ++rank) {
    auto work = ranks[rank]->Start(FloatsOf(ranks[rank], 100000));
    ASSERT_TRUE(work.ok());
    works.push_back(std::move(*work));
  }
  const MonoTime start = MonotonicNow();
  ranks[1]->Abort("stop");
  EXPECT_EQ(works[1]->Wait(start + kLong).code(), StatusCode::kAborted);
  for (int rank = 0; rank < kRanks - 1; ++rank) {
    if (rank == 1) continue;
    const Status status = works[rank]->Wait(start + kLong);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status), HasSubstr("connection to rank"));
  }
  // The last waits for nothing yet; it learns as soon as it starts.
  Communicator* const last = ranks[kRanks - 1];
  EXPECT_EQ(collective::Run(last, FloatsOf(last, 100000), kLong).code(),
            StatusCode::kUnavailable);
  EXPECT_LT(MonotonicNow() - start, kSoon);
}

TEST(TcpLeaveTest, OneThatLeftIsNamed) {
  TcpRanks ranks(2);
  ranks.Destroy(1);
  const Status status = collective::Run(ranks[0], kBarrier, kLong);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_EQ(Message(status), "job test g1: barrier: rank 1 has left");
}

}  // namespace
}  // namespace lockstep::worker::collective::tcp
