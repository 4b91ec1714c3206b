// What the coordinator accepts while its disk is full.
#include <gmock/gmock.h>

#include <atomic>

#include "tests/service/training_job_fixture.h"

namespace lockstep::server {
namespace {

class FullDiskTest : public ServiceTest {
 protected:
  void SetUp() override {
    space_ = [this]() -> Status {
      if (!full_) return OkStatus();
      return WithReason(ResourceExhausted("the disk is full"), "DISK_FULL");
    };
    ServiceTest::SetUp();
  }

  std::atomic<bool> full_ = false;
};

TEST_F(FullDiskTest, NewJobsAreRefusedAndOldOnesCanGo) {
  const v1::SubmitJobRequest first = SubmitRequest(Spec("first"));
  ASSERT_TRUE(Submit(first).ok());
  full_ = true;
  v1::SubmitJobRequest second = SubmitRequest(Spec("second"));
  const Status refused = Submit(second).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused;
  EXPECT_EQ(ReasonOf(refused), "DISK_FULL");
  EXPECT_TRUE(Submit(first).ok()) << "a repeat has its answer";
  v1::SubmitJobRequest asked = second;
  asked.set_validate_only(true);
  EXPECT_TRUE(Submit(asked).ok()) << "takes no space";
  EXPECT_TRUE(Cancel("first", "c").ok());
  EXPECT_EQ(State("first"), v1::JOB_STATE_CANCELLED);
  full_ = false;
  EXPECT_TRUE(Submit(second).ok());
}

class FullDiskTrainingTest : public TrainingJobTest {
 protected:
  void SetUp() override {
    space_ = [] {
      return WithReason(ResourceExhausted("the disk is full"), "DISK_FULL");
    };
    TrainingJobTest::SetUp();
  }
};

// A client uploads them when this has gone well.
TEST_F(FullDiskTrainingTest, PackagesToComeAreRefusedBeforeTheirUpload) {
  v1::SubmitJobRequest module = Request(Module("mnist"));
  module.set_validate_only(true);
  EXPECT_EQ(ReasonOf(Submit(module).status()), "DISK_FULL");
  v1::SubmitJobRequest spec = SubmitRequest(Spec("spec"));
  *spec.mutable_spec()->add_packages() = PackageOf("code");
  spec.mutable_spec()->mutable_runtime()->set_name("tf2");
  spec.set_validate_only(true);
  EXPECT_EQ(ReasonOf(Submit(spec).status()), "DISK_FULL");
  v1::SubmitJobRequest container = Request(Container("cats"));
  container.set_validate_only(true);
  const auto answer = Submit(container);
  EXPECT_TRUE(answer.ok()) << "takes no space: " << Message(answer.status());
}

TEST_F(FullDiskTest, LogsStayWithTheNodeUntilThereIsRoom) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  MustSubmit("j");
  const GangStatus status = RunOn(&daemon, "j");
  const LogPiece piece{"j", "uid1", status.generation, 0, 0, "line\n", false};
  full_ = true;
  v1::WorkerMessage message;
  *message.mutable_log_chunk() = ToProto(piece);
  ASSERT_TRUE(daemon.Write(message));
  // What comes behind it has been looked at: so was the log.
  ASSERT_TRUE(daemon.Beat(2));
  std::optional<v1::CoordinatorMessage> next;
  while ((next = daemon.Read())) {
    ASSERT_FALSE(next->has_log_ack());
    if (next->has_heartbeat_ack()) break;
  }
  ASSERT_TRUE(next);
  EXPECT_FALSE(logs_->Has("uid1"));
  full_ = false;
  // Sent again, it is taken from where it was.
  EXPECT_EQ(daemon.SendLog(piece).offset, piece.data.size());
}

}  // namespace
}  // namespace lockstep::server
