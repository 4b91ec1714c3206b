// Recoveries of programs' processes, over a real link.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/rank_link/testing.h"
#include "worker/runtime/light_session.h"
#include "worker/runtime/session_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using rank_link::RankKey;
using rank_link::TempDir;
using rank_link::TestDaemon;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class LightRecoveryTest : public ::testing::Test {
 protected:
  LightRecoveryTest() { ClearRankEnvironment(); }
  ~LightRecoveryTest() override { ClearRankEnvironment(); }

  // The daemon's Welcome to rank 1 of 2, now with `recovery`.
  void Expect(uint32_t recovery, const std::vector<int>& away = {}) {
    v1::RankWelcome welcome;
    welcome.set_program(true);
    welcome.set_role("worker");
    welcome.set_rank(1);
    welcome.set_world_size(2);
    welcome.set_page_path(dir_.path() + "/page");
    welcome.set_recovery(recovery);
    for (const int rank : away) welcome.add_away_ranks(rank);
    daemon_.Expect(key_, RankNonce(1), welcome);
  }
  std::unique_ptr<LightSession> Join(bool recoverable = true) {
    SetProgramEnvironment(dir_.path() + "/link-file", daemon_.path(), "mnist",
                          3, 1);
    LightSessionOptions options;
    options.recoverable = recoverable;
    auto session = LightSession::Join(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  const RankKey key_{"mnist", 3, 1};
  TempDir dir_;
  TestDaemon daemon_{dir_.path() + "/link.sock"};
};

TEST_F(LightRecoveryTest, TheDaemonLearnsThatTheProcessCanRecover) {
  Expect(0);
  const auto session = Join();
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(*session->Recovery(), 0u);
  ASSERT_TRUE(session->JoinRecovery(0).ok());
  EXPECT_TRUE(
      daemon_.WaitFor([&] { return daemon_.joined_as.contains(key_); }));
  daemon_.With(
      [&](auto*) { EXPECT_THAT(daemon_.joined_as[key_], Pair(0u, true)); });
}

TEST_F(LightRecoveryTest, AProcessThatReplacesOneKnowsItAtOnce) {
  Expect(4);
  const auto session = Join();
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(*session->Recovery(), 4u);
}

TEST_F(LightRecoveryTest, AParkedProcessGetsTheNextRecovery) {
  Expect(0);
  const auto session = Join();
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(session->Park(0, {0}).ok());
  EXPECT_TRUE(daemon_.WaitFor([&] { return !daemon_.reports.empty(); }));
  daemon_.With([&](auto*) {
    EXPECT_EQ(daemon_.reports.back().second.parked(), 1u);
    EXPECT_THAT(daemon_.reports.back().second.lost_peers(), ElementsAre(0));
  });
  EXPECT_EQ(session->AwaitRecovery(0, milliseconds(10)).status().code(),
            StatusCode::kDeadlineExceeded);
  StatusOr<uint32_t> recovery = 0u;
  std::thread waits([&] { recovery = session->AwaitRecovery(0, seconds(30)); });
  Expect(1);
  waits.join();
  ASSERT_TRUE(recovery.ok()) << recovery.status();
  EXPECT_EQ(*recovery, 1u);
  ASSERT_TRUE(session->JoinRecovery(1).ok());
  EXPECT_TRUE(daemon_.WaitFor([&] {
    return daemon_.joined_as.contains(key_) &&
           daemon_.joined_as[key_].first == 1;
  }));
}

TEST_F(LightRecoveryTest, TheFirstRankThatIsNotAwayIsTheChief) {
  Expect(0);
  const auto session = Join();
  ASSERT_NE(session, nullptr);
  EXPECT_FALSE(session->chief());
  const Status refused = session->ReportCheckpoint(5, "/out/5", 1);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(refused)),
              HasSubstr("rank 0 reports the checkpoints of a job, and this is "
                        "rank 1"));
  Expect(1, {0});
  ASSERT_TRUE(session->AwaitRecovery(0, seconds(30)).ok());
  EXPECT_FALSE(session->chief()) << "it has not joined that recovery";
  ASSERT_TRUE(session->JoinRecovery(1).ok());
  EXPECT_TRUE(session->chief());
  EXPECT_TRUE(session->ReportCheckpoint(5, "/out/5", 1).ok());
  Expect(2);
  ASSERT_TRUE(session->AwaitRecovery(1, seconds(30)).ok());
  ASSERT_TRUE(session->JoinRecovery(2).ok());
  EXPECT_FALSE(session->chief());
}

TEST_F(LightRecoveryTest, ANewProcessMayBeTheChief) {
  Expect(1, {0});
  const auto session = Join();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(session->chief());
}

TEST_F(LightRecoveryTest, EachRecoveryHasKeysOfItsOwn) {
  Expect(0);
  const auto session = Join();
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(session->Put(0, "group/1", "first").ok());
  EXPECT_EQ(*session->Get(0, "group/1", seconds(30)), "first");
  Expect(1);
  ASSERT_TRUE(session->AwaitRecovery(0, seconds(30)).ok());
  EXPECT_EQ(session->Put(0, "group/2", "late").code(), StatusCode::kAborted);
  ASSERT_TRUE(session->Put(1, "group/1", "second").ok());
  EXPECT_EQ(*session->Get(1, "group/1", seconds(30)), "second");
}

TEST_F(LightRecoveryTest, AGetEndsWhenTheNextRecoveryComes) {
  Expect(1);
  const auto session = Join();
  ASSERT_NE(session, nullptr);
  StatusOr<std::string> value = std::string();
  std::thread waits([&] { value = session->Get(1, "never", seconds(60)); });
  Expect(2);
  waits.join();
  EXPECT_EQ(value.status().code(), StatusCode::kAborted);
  // It counts from the first use on.
  EXPECT_EQ(session->Put(1, "late", "").code(), StatusCode::kAborted);
  EXPECT_TRUE(session->Put(2, "key", "").ok());
}

TEST_F(LightRecoveryTest, TheEndOfTheGenerationEndsTheWait) {
  Expect(0);
  const auto session = Join();
  ASSERT_NE(session, nullptr);
  daemon_.With([&](auto* server) { server->SendAbort(key_, "it is over"); });
  const auto recovery = session->AwaitRecovery(0, seconds(30));
  EXPECT_EQ(recovery.status().code(), StatusCode::kAborted);
  EXPECT_THAT(std::string(Message(recovery.status())), HasSubstr("it is over"));
}

TEST_F(LightRecoveryTest, CloseEndsWhatWaits) {
  Expect(0);
  const auto session = Join();
  ASSERT_NE(session, nullptr);
  StatusOr<uint32_t> recovery = 0u;
  StatusOr<std::string> value = std::string();
  std::thread first([&] { recovery = session->AwaitRecovery(0, seconds(60)); });
  std::thread second([&] { value = session->Get(0, "never", seconds(60)); });
  ASSERT_TRUE(session->Close().ok());
  first.join();
  second.join();
  EXPECT_EQ(recovery.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(value.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(LightRecoveryTest, OthersAreRefused) {
  Expect(0);
  const auto session = Join(/*recoverable=*/false);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->Recovery().status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(session->JoinRecovery(0).code(), StatusCode::kFailedPrecondition);
}

TEST_F(LightRecoveryTest, OutsideLockstepThereIsNoRecovery) {
  LightSessionOptions options;
  options.recoverable = true;
  const auto session = LightSession::Join(options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(*(*session)->Recovery(), 0u);
  EXPECT_TRUE((*session)->JoinRecovery(0).ok());
}

}  // namespace
}  // namespace lockstep::worker::runtime
