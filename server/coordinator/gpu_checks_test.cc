// Checks of GPUs: what daemons are asked, and what becomes of their answers.
#include "server/coordinator/gpu_checks.h"

#include <gmock/gmock.h>

#include "server/coordinator/coordinator_fixture.h"
#include "server/core/member_checks.h"

namespace lockstep::server {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GpuChecksTest : public CoordinatorTest {
 protected:
  GpuChecksTest() {
    gpu_.info.checks_gpus = true;
    for (int32_t i = 0; i < 3; ++i) {
      gpu_.info.gpus.push_back(
          {i, "GPU-" + std::to_string(i), "T4", int64_t{16} << 30});
    }
    readings_.gpus.resize(3);
    for (int32_t i = 0; i < 3; ++i) {
      readings_.gpus[static_cast<size_t>(i)].index = i;
      readings_.gpus[static_cast<size_t>(i)].uncorrected_errors = 0;
      readings_.gpus[static_cast<size_t>(i)].utilization = 0;
    }
    all_ = {&gpu_};
    Connect(&gpu_);
    Beat();
  }
  void Beat() {
    ASSERT_TRUE(coordinator_->sessions()
                    ->OnHeartbeat(gpu_.session(), ++sequence_, readings_, {})
                    .ok());
    coordinator_->Tick();
  }
  // Lets `time` pass, with the heartbeats of the time.
  void Wait(Duration time) {
    for (Duration done{}; done < time; done += 2s) {
      clock_.Advance(std::min<Duration>(2s, time - done));
      Beat();
    }
  }
  Member At() { return coordinator_->queries()->GetNode("gpu")->member; }
  // Of an operator.
  Status Ask(std::vector<int32_t> gpus, const std::string& id = "") {
    return coordinator_->nodes()->CheckGpus(
        {"user/root", id.empty() ? NextId() : id, "CheckNode", "gpu"}, "gpu",
        gpus, [this](StatusOr<std::vector<GpuCheck>> checks) {
          answers_.push_back(std::move(checks));
        });
  }
  void Answer(const GpuCheckOrder& order, const std::string& failure = "",
              Status status = OkStatus()) {
    GpuCheckAnswer answer{order.id, std::move(status)};
    for (const int32_t index : order.gpus) {
      GpuCheck& check = answer.checks.emplace_back();
      check.index = index;
      check.failure = failure;
    }
    ASSERT_TRUE(
        coordinator_->sessions()->OnGpuChecked(gpu_.session(), answer).ok());
  }
  void SubmitOneGpu(const JobName& name) {
    JobSpec spec = Wide(name);
    spec.roles.Edit().resize(1);
    spec.roles.Edit()[0].count = 1;
    spec.roles.Edit()[0].resources.gpus = 1;
    spec.roles.Edit()[0].resources.cpus = 1;
    spec.output_directory = "/out/" + name;
    MustSubmit(spec);
    coordinator_->Tick();
  }

  FakeDaemon gpu_{"gpu", {8, int64_t{8} << 30, 3, ""}};
  NodeReadings readings_;
  uint64_t sequence_ = 1000;
  std::vector<StatusOr<std::vector<GpuCheck>>> answers_;
};

TEST_F(GpuChecksTest, AnOperatorsCheckKeepsWorkAwayUntilItEnds) {
  SubmitOneGpu("j");
  ASSERT_EQ(Get("j").tasks[0].gpus, std::vector<int32_t>{0});
  const Status held = Ask({0});
  EXPECT_EQ(held.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(held), HasSubstr("a job holds GPU 0"));
  ASSERT_TRUE(Ask({}).ok());
  const auto orders = gpu_.TakeGpuChecks();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_THAT(orders[0].gpus, ElementsAre(1, 2));
  EXPECT_FALSE(orders[0].partner);
  EXPECT_EQ(orders[0].within, kGpuCheckWithin);
  SubmitOneGpu("k");
  EXPECT_EQ(State("k"), JobState::kQueued) << "no GPU is free";
  EXPECT_EQ(Ask({1}).code(), StatusCode::kFailedPrecondition);
  Answer(orders[0]);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0]->size(), 2u);
  coordinator_->Tick();
  EXPECT_EQ(State("k"), JobState::kPreparing);
  EXPECT_EQ(At().checking.passed, 2u);
  // What it found is on disk with the answer.
  EXPECT_THAT(At().events.back().message, HasSubstr("passed a check"));
  EXPECT_EQ(store_.Load()->nodes[0].events, At().events);
}

TEST_F(GpuChecksTest, AGpuReturnsOnlyAfterACheck) {
  readings_.gpus[1].uncorrected_errors = 1;
  Beat();
  ASSERT_THAT(At().BadGpus(), ElementsAre(1));
  Wait(1h - 2s);
  EXPECT_THAT(gpu_.TakeGpuChecks(), IsEmpty());
  Wait(2s);
  auto orders = gpu_.TakeGpuChecks();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_THAT(orders[0].gpus, ElementsAre(1));
  EXPECT_EQ(orders[0].partner, 0);
  Answer(orders[0], "the memory is wrong");
  EXPECT_THAT(At().BadGpus(), ElementsAre(1));
  Wait(2h);
  orders = gpu_.TakeGpuChecks();
  ASSERT_EQ(orders.size(), 1u);
  Answer(orders[0]);
  EXPECT_THAT(At().BadGpus(), IsEmpty());
  EXPECT_EQ(At().checking.failed, 1u);
  EXPECT_EQ(At().checking.passed, 1u);
  Wait(10s);
  EXPECT_THAT(gpu_.TakeGpuChecks(), IsEmpty());
}

TEST_F(GpuChecksTest, OneThatAJobHoldsIsCheckedWhenTheJobHasEnded) {
  SubmitOneGpu("j");
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  readings_.gpus[0].uncorrected_errors = 1;
  Wait(1h + 10s);
  EXPECT_THAT(gpu_.TakeGpuChecks(), IsEmpty());
  gpu_.Exit("j", 0, ExitCode(0));
  Run();
  Beat();
  const auto orders = gpu_.TakeGpuChecks();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_THAT(orders[0].gpus, ElementsAre(0));
}

TEST_F(GpuChecksTest, AStreamThatEndsEndsItsChecks) {
  ASSERT_TRUE(Ask({2}, "r1").ok());
  const auto orders = gpu_.TakeGpuChecks();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].partner, 0);
  EXPECT_THAT(At().BadGpus(), ElementsAre(0, 2));
  const server::SessionId old = gpu_.session();
  gpu_.Disconnect();
  Connect(&gpu_);
  Beat();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(At().BadGpus(), IsEmpty());
  // What comes late says nothing.
  EXPECT_FALSE(coordinator_->sessions()
                   ->OnGpuChecked(old, {orders[0].id, OkStatus(), {}})
                   .ok());
  EXPECT_EQ(answers_.size(), 1u);
}

TEST_F(GpuChecksTest, ADaemonThatSaysNothingIsNotWaitedForForever) {
  ASSERT_TRUE(Ask({2}).ok());
  Wait(kGpuCheckWithin + kGpuCheckReserve - 2s);
  EXPECT_TRUE(answers_.empty());
  Wait(2s);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(At().BadGpus(), IsEmpty());
}

TEST_F(GpuChecksTest, ARepeatedRequestJoinsTheFirst) {
  ASSERT_TRUE(Ask({2}, "r1").ok());
  ASSERT_TRUE(Ask({2}, "r1").ok());
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), StatusCode::kAborted);
  const auto orders = gpu_.TakeGpuChecks();
  ASSERT_EQ(orders.size(), 1u);
  Answer(orders[0], "", Unimplemented("no CUDA"));
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[1].status().code(), StatusCode::kUnimplemented);
}

TEST_F(GpuChecksTest, NobodyWaitsForACoordinatorThatLeaves) {
  ASSERT_TRUE(Ask({2}).ok());
  coordinator_->sessions()->CloseStreams();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), StatusCode::kUnavailable);
}

TEST_F(GpuChecksTest, AnOperatorsLiftIsStored) {
  readings_.gpus[1].remap_failed = true;
  Beat();
  ASSERT_THAT(At().BadGpus(), ElementsAre(1));
  ASSERT_TRUE(UndrainNode("gpu", {1}).ok());
  Beat();
  EXPECT_THAT(At().BadGpus(), IsEmpty());
  Restart();
  Connect(&gpu_);
  Beat();
  EXPECT_THAT(At().BadGpus(), IsEmpty());
}

TEST_F(GpuChecksTest, NodesThatCannotAreNamed) {
  EXPECT_EQ(coordinator_->nodes()
                ->CheckGpus({"user/root", "1", "CheckNode", "x"}, "x", {}, {})
                .code(),
            StatusCode::kNotFound);
  gpu_.info.checks_gpus = false;
  gpu_.Restart(true);
  Connect(&gpu_);
  EXPECT_EQ(Ask({1}).code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace lockstep::server
