// A gang that runs with fewer tasks than its job asks for: it is placed,
// stored, grows when a node registers, and is resized by its owner.
#include <gmock/gmock.h>

#include <csignal>

#include "server/coordinator/coordinator_fixture.h"
#include "server/core/rescale.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RescaleJobTest : public CoordinatorTest {
 protected:
  // Each task takes a whole node.
  static JobSpec Spec(int32_t tasks, int32_t least) {
    JobSpec spec =
        ProgramSpec("j", {Role(TaskType::kWorker, tasks, {2, 0, 0, ""})});
    spec.elastic_min_tasks = least;
    spec.rescale = true;
    return spec;
  }
  StatusOr<std::string> Resize(int32_t tasks, const std::string& id = "") {
    return coordinator_->jobs()->ResizeJob(
        {"user/ann", id.empty() ? NextId() : id, "ResizeJob",
         "j" + std::to_string(tasks)},
        "j", tasks, AllowAll, Encode);
  }
  // A job of two that starts with a alone.
  void StartSmall() {
    Connect(&a_);
    Connect(&b_);
    ASSERT_TRUE(DrainNode("b").ok());
    MustSubmit(Spec(2, 1));
    Run();
    ASSERT_EQ(State("j"), JobState::kRunning) << Get("j").cause.message;
    ASSERT_THAT(Get("j").tasks, SizeIs(1));
  }
};

TEST_F(RescaleJobTest, ItStartsWithTheNodesThatAreThere) {
  StartSmall();
  const Job job = Get("j");
  EXPECT_EQ(job.tasks[0].node, "a");
  EXPECT_EQ(a_.Find("j")->assignment.cluster->world_size, 1);
  EXPECT_EQ(a_.Find("j")->assignment.cluster->full_size, 2);
  EXPECT_THAT(b_.gangs, IsEmpty());
  CheckBooking();
  Restart();
  for (FakeDaemon* daemon : all_) Connect(daemon);
  Run();
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_THAT(Get("j").tasks, SizeIs(1));
}

TEST_F(RescaleJobTest, ItGrowsAfterAWhile) {
  StartSmall();
  Pass(kLongEnoughToGrow, 1s);
  ASSERT_TRUE(UndrainNode("b").ok());
  Pass(kRoomStays - 2s, 1s);
  EXPECT_EQ(Get("j").generation, 1u);
  Pass(5s, 1s);
  const Job job = Get("j");
  EXPECT_EQ(job.generation, 2u);
  EXPECT_EQ(job.state, JobState::kRunning);
  ASSERT_THAT(job.tasks, SizeIs(2));
  EXPECT_EQ(job.failures_without_progress, 0);
  EXPECT_EQ(b_.Find("j")->assignment.cluster->world_size, 2);
  EXPECT_THAT(
      job.attempts.back().end_cause.message,
      HasSubstr("room for 2 tasks: the job restarts with 2 instead of 1"));
  CheckBooking();
  Pass(kLongEnoughToGrow + kRoomStays, 2s);
  EXPECT_EQ(Get("j").generation, 2u) << "it has all tasks";
}

TEST_F(RescaleJobTest, AQueuedJobTakesTheRoomFirst) {
  StartSmall();
  Pass(kLongEnoughToGrow, 1s);
  JobSpec large = Wide("large");
  MustSubmit(large);
  ASSERT_TRUE(UndrainNode("b").ok());
  Pass(2 * kRoomStays, 1s);
  EXPECT_EQ(Get("j").generation, 1u) << "large waits for both nodes";
  ASSERT_TRUE(Cancel("large").ok());
  Pass(kRoomStays + 4s, 1s);
  EXPECT_EQ(Get("j").generation, 2u);
}

TEST_F(RescaleJobTest, ALostNodeLeavesASmallerGangAfterAMoment) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Spec(2, 1));
  Run();
  ASSERT_THAT(Get("j").tasks, SizeIs(2));
  ASSERT_TRUE(DrainNode("b").ok());
  b_.Exit("j", 1, KilledBy(SIGKILL));
  Run();
  // The backoff of a second, then the patience, from the same moment.
  Pass(2s);
  EXPECT_EQ(State("j"), JobState::kPlacing);
  const auto waiting = coordinator_->queries()->GetJob("j")->waiting;
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->reason, Reason::kFewerTasks);
  EXPECT_THAT(waiting->message, HasSubstr("all 2 tasks, then starts with 1"));
  Pass(kFullSizePatience);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_THAT(Get("j").tasks, SizeIs(1));
}

TEST_F(RescaleJobTest, TheOwnerResizesIt) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Spec(2, 1));
  Run();
  ASSERT_TRUE(Resize(1, "once").ok());
  Pass(1s);
  EXPECT_EQ(Get("j").generation, 2u);
  EXPECT_THAT(Get("j").tasks, SizeIs(1));
  EXPECT_EQ(Get("j").wanted_tasks, 1);
  const int64_t version = Get("j").resource_version;
  ASSERT_TRUE(Resize(1, "once").ok());
  EXPECT_EQ(Get("j").resource_version, version) << "a repeat changes nothing";
  Restart();
  for (FakeDaemon* daemon : all_) Connect(daemon);
  Run();
  EXPECT_EQ(Get("j").wanted_tasks, 1) << "it is stored";
  ASSERT_TRUE(Resize(2).ok());
  Pass(4s);
  EXPECT_EQ(Get("j").generation, 3u);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_THAT(Get("j").tasks, SizeIs(2));
  EXPECT_FALSE(Resize(3).ok());
  EXPECT_FALSE(Resize(0).ok());
}

TEST_F(RescaleJobTest, AJobOfOneSizeIsNotResized) {
  Connect(&a_);
  MustSubmit(ProgramSpec("j", {Role(TaskType::kWorker, 2)}));
  Run();
  const auto refused = Resize(1);
  EXPECT_EQ(ReasonOf(refused.status()), "FIXED_SIZE");
  EXPECT_THAT(std::string(Message(refused.status())),
              HasSubstr("--elastic MIN can be resized"));
}

}  // namespace
}  // namespace lockstep::server
