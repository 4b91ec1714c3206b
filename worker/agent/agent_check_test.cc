// The worker daemon: checks of GPUs that the coordinator asks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "worker/agent/agent_fixture.h"
#include "worker/devices/fake_nvml_control.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;

class AgentCheckTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    config_.gpu_check = std::string(getenv("LOCKSTEP_SOURCE")) +
                        "/tests/support/fake_gpu_check";
    config_.daemon.environment["FAKE_GPU_CHECK"] = dir_ + "/check";
    config_.daemon.node.gpus = {{0, "GPU-1", "T4", 1}, {1, "GPU-2", "T4", 1}};
    config_.daemon.node.capacity.gpus = 2;
    config_.daemon.node.checks_gpus = true;
    StartAgain();
  }
  GpuCheckAnswer Ask(GpuCheckOrder order) {
    coordinator_.Send(order);
    EXPECT_TRUE(coordinator_.Eventually(
        [&] { return coordinator_.gpu_checks.contains(order.id); }));
    return coordinator_.Locked(
        [&] { return coordinator_.gpu_checks[order.id]; });
  }
};

TEST_F(AgentCheckTest, ItAnswersWhatWasFound) {
  EXPECT_TRUE(Registered().node.checks_gpus);
  std::ofstream(dir_ + "/check") << "GPU-2 fail\n";
  const GpuCheckAnswer answer = Ask({5, {0, 1}, 60s});
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.checks.size(), 2u);
  EXPECT_EQ(answer.checks[0].failure, "");
  EXPECT_THAT(answer.checks[1].failure, HasSubstr("memory: 3 of its words"));
  EXPECT_EQ(Ask({6, {7}, 60s}).status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Ask({7, {}, 60s}).status.code(), StatusCode::kInvalidArgument);
}

TEST_F(AgentCheckTest, AGpuThatARankHoldsIsNotTouched) {
  Assignment order = Order(Goal::kPrepare, {"/bin/sleep", "600"});
  order.spec->tasks[0].gpus = {1};
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared));
  const GpuCheckAnswer held = Ask({5, {1}, 60s});
  EXPECT_EQ(held.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(held.status), HasSubstr("a rank of job job holds GPU 1"));
  EXPECT_EQ(Ask({6, {0}, 60s, 1}).status.code(),
            StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Ask({7, {0}, 60s}).status.ok());
}

// Another coordinator may give the GPU work.
TEST_F(AgentCheckTest, ACheckEndsWithItsStream) {
  std::ofstream(dir_ + "/check") << "GPU-1 hang\n";
  coordinator_.Send(GpuCheckOrder{5, {0}, 600s});
  const std::string log = dir_ + "/check.log";
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return RealFileSystem()->Read(log, 1 << 10).ok(); }));
  const int before =
      coordinator_.Locked([&] { return coordinator_.registers; });
  coordinator_.Drop();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers > before; }));
  std::ofstream(dir_ + "/check") << "";
  EXPECT_TRUE(Ask({6, {0}, 60s}).status.ok());
  EXPECT_FALSE(
      coordinator_.Locked([&] { return coordinator_.gpu_checks.contains(5); }));
  // The end of the daemon waits for no check either.
  std::ofstream(dir_ + "/check") << "GPU-1 hang\n";
  coordinator_.Send(GpuCheckOrder{7, {0}, 600s});
  const MonoTime begun = MonotonicNow();
  StopDaemon();
  EXPECT_LT(MonotonicNow() - begun, 60s);
}

TEST_F(AgentCheckTest, EachXidOfASecondIsTold) {
  devices::FakeNvmlControl fake(1, "H100");
  devices::GpuSamplerOptions options;
  options.library = LOCKSTEP_FAKE_NVML;
  options.period = std::chrono::milliseconds(20);
  StopDaemon();
  gpus_ = OpenGpusIfThere(options);
  ASSERT_NE(gpus_, nullptr);
  config_.daemon.node.gpus = {gpus_->gpus()[0]};
  StartAgain();
  // As a driver says it: 154 follows what it is about.
  fake.Write("xid 0 143\nxid 0 45\nxid 0 45\nxid 0 154\n");
  EXPECT_TRUE(coordinator_.Eventually([&] {
    std::vector<GpuError> all;
    for (const auto& beat : coordinator_.beats) {
      const auto& some = beat.readings.gpu_errors;
      all.insert(all.end(), some.begin(), some.end());
    }
    return std::find(all.begin(), all.end(), GpuError{0, 143}) != all.end() &&
           std::find(all.begin(), all.end(), GpuError{0, 154}) != all.end();
  }));
  daemon_.reset();
  gpus_.reset();
}

}  // namespace
}  // namespace lockstep::worker::agent
