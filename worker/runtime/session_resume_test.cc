// What two ranks are told of checkpoints, and how they wait for space.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/rank_link/testing.h"
#include "worker/runtime/session.h"
#include "worker/runtime/session_test_util.h"
#include "worker/runtime/testing.h"

namespace lockstep::worker::runtime {
namespace {

constexpr char kResumeJob[] = "mnist";
constexpr uint64_t kResumeGeneration = 3;

class SessionResumeTest : public ::testing::Test {
 protected:
  ~SessionResumeTest() override { ClearRankEnvironment(); }
  v1::RankWelcome Welcome(int rank) {
    v1::RankWelcome welcome;
    welcome.set_rank(rank);
    welcome.set_world_size(2);
    welcome.set_local_rank(rank);
    welcome.set_local_size(2);
    welcome.set_generation(kResumeGeneration);
    welcome.set_job(kResumeJob);
    welcome.set_job_key(std::string(32, 'k'));
    welcome.set_spec_hash(std::string(32, 's'));
    welcome.set_bind_address("127.0.0.1");
    welcome.set_page_path(dir_.path() + "/page-" + std::to_string(rank));
    return welcome;
  }
  void Expect(int rank, const v1::RankWelcome& welcome) {
    daemon_.Expect({kResumeJob, kResumeGeneration, rank}, RankNonce(rank),
                   welcome);
  }
  // One after the other: the environment is the process's.
  void Join() {
    for (int r = 0; r < 2; ++r) {
      SetRankEnvironment(daemon_.path(), kResumeJob, kResumeGeneration, r);
      auto session =
          Session::Join({.operation_timeout = std::chrono::seconds(20)});
      ASSERT_TRUE(session.ok()) << session.status();
      sessions_.push_back(*std::move(session));
    }
  }
  bool WaitForReport(
      const std::function<bool(const v1::RankReport&)>& matches) {
    return daemon_.WaitFor([&] {
      for (const auto& [key, report] : daemon_.reports) {
        if (matches(report)) return true;
      }
      return false;
    });
  }

  rank_link::TempDir dir_;
  rank_link::TestDaemon daemon_{dir_.path() + "/link"};
  std::vector<std::unique_ptr<Session>> sessions_;
};

// Also of a program that looks for its checkpoints by itself.
TEST_F(SessionResumeTest, NoRankBeginsAnewWhereACheckpointIsKnown) {
  for (int r = 0; r < 2; ++r) {
    v1::RankWelcome welcome = Welcome(r);
    welcome.set_known_checkpoint_generation(1);
    welcome.set_known_checkpoint_step(40);
    Expect(r, welcome);
  }
  Join();
  RunRanks(2, [&](int r) {
    Session* session = sessions_[r].get();
    EXPECT_EQ(session->identity().resume.known_step, 40);
    ASSERT_TRUE(session->Form({}).ok());
    const std::vector<Parameter> parameters = {{"w", 8}};
    const Status status = session->MakeReducer(parameters, {}).status();
    EXPECT_EQ(ReasonOf(status), "NO_CHECKPOINT") << status;
    ReducerOptions resumed;
    resumed.start_step = 30;
    EXPECT_TRUE(session->MakeReducer(parameters, resumed).ok());
    EXPECT_EQ(session->Leave(status), kExitFailed);
  });
  EXPECT_TRUE(WaitForReport([](const v1::RankReport& report) {
    return !report.failure().empty() && report.failure_reason() == 10;
  }));
}

TEST_F(SessionResumeTest, AllWaitWhereOneLacksSpace) {
  for (int r = 0; r < 2; ++r) Expect(r, Welcome(r));
  Join();
  RunRanks(2, [&](int r) {
    Session* session = sessions_[r].get();
    ASSERT_TRUE(session->Form({}).ok());
    const auto none = session->AwaitSpace(Internal("Input/output error"));
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_FALSE(*none) << "another error is not waited for";
    const auto full = session->AwaitSpace(
        r == 1 ? ErrnoStatus(EDQUOT, "writing") : OkStatus());
    ASSERT_TRUE(full.ok()) << full.status();
    EXPECT_TRUE(*full);
    EXPECT_FALSE(session->AwaitSpace(OkStatus()).value());
    EXPECT_EQ(session->Leave(OkStatus()), 0);
  });
  EXPECT_TRUE(WaitForReport([](const v1::RankReport& report) {
    return report.event_reason() == 11;
  }));
}

}  // namespace
}  // namespace lockstep::worker::runtime
