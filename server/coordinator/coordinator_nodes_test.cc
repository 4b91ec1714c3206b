#include <gmock/gmock.h>

#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// ---- Heartbeats, progress ----

TEST_F(CoordinatorTest, HeartbeatsAreNeverStored) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  const int64_t commits = store_.commits();
  for (int64_t step = 1; step <= 100; ++step) {
    clock_.Advance(500ms);
    ASSERT_TRUE(a_.Progress("j", 1, step).ok());
    ASSERT_TRUE(b_.Progress("j", 1, step).ok());
    coordinator_->Tick();
  }
  EXPECT_EQ(store_.commits(), commits);
  EXPECT_EQ(a_.acknowledged(), 100u);
  const auto job = coordinator_->queries()->GetJob("j");
  ASSERT_TRUE(job->progress);
  EXPECT_EQ(job->progress->chief.committed_step, 100);
  EXPECT_NEAR(job->progress->steps_per_second, 2, 0.01);
  EXPECT_NEAR(job->progress->samples_per_second, 40, 0.5);
  EXPECT_EQ(job->live.at(1).progress.committed_step, 100);
}

TEST_F(CoordinatorTest, ProgressOfOthersRanksIsNotTaken) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  RankStatus forged;
  forged.rank = 0;
  forged.progress.committed_step = 999;
  ASSERT_TRUE(coordinator_->sessions()
                  ->OnHeartbeat(b_.session(), 1, {}, {{"j", 1, {forged}}})
                  .ok());
  EXPECT_LT(
      coordinator_->queries()->GetJob("j")->progress->chief.committed_step,
      999);
}

TEST_F(CoordinatorTest, AGpuThatDoesNotAnswerGetsNoJobUntilItDoes) {
  FakeDaemon gpu("gpu", {8, int64_t{8} << 30, 1, ""});
  gpu.info.gpus = {{0, "GPU-0", "T4", int64_t{16} << 30}};
  Connect(&gpu);
  NodeReadings readings;
  readings.gpus.resize(1);
  ASSERT_TRUE(coordinator_->sessions()
                  ->OnHeartbeat(gpu.session(), 1, readings, {})
                  .ok());
  JobSpec spec = Wide("j");
  spec.roles.Edit().resize(1);
  spec.roles.Edit()[0].count = 1;
  spec.roles.Edit()[0].resources.gpus = 1;
  MustSubmit(spec);
  coordinator_->Tick();
  EXPECT_EQ(State("j"), JobState::kQueued);
  readings.gpus[0].memory_used_bytes = 0;
  ASSERT_TRUE(coordinator_->sessions()
                  ->OnHeartbeat(gpu.session(), 2, readings, {})
                  .ok());
  coordinator_->Tick();
  EXPECT_EQ(State("j"), JobState::kPreparing);
}

TEST_F(CoordinatorTest, AGpuThatIsNotFreeGetsNoWorkAndTheOthersDo) {
  FakeDaemon gpu("gpu", {8, int64_t{8} << 30, 2, ""});
  gpu.info.gpus = {{0, "GPU-0", "T4", int64_t{16} << 30},
                   {1, "GPU-1", "T4", int64_t{16} << 30}};
  Connect(&gpu);
  NodeReadings readings;
  readings.gpus.resize(2);
  for (GpuUsage& each : readings.gpus) each.memory_used_bytes = 0;
  readings.gpus[1].index = 1;
  readings.gpus[1].uncorrected_errors = 0;
  readings.reclaims.resize(1);  // Of GPU 0.
  uint64_t sequence = 1000;
  const auto beat = [&] {
    ASSERT_TRUE(coordinator_->sessions()
                    ->OnHeartbeat(gpu.session(), ++sequence, readings, {})
                    .ok());
    coordinator_->Tick();
  };
  beat();
  JobSpec spec = Wide("j");
  spec.roles.Edit().resize(1);
  spec.roles.Edit()[0].count = 1;
  spec.roles.Edit()[0].resources.gpus = 1;
  spec.roles.Edit()[0].resources.cpus = 1;
  MustSubmit(spec);
  spec.name = "k";
  spec.output_directory = "/out/k";
  MustSubmit(spec);
  coordinator_->Tick();
  EXPECT_EQ(State("j"), JobState::kPreparing);
  EXPECT_EQ(Get("j").tasks[0].gpus, std::vector<int32_t>{1});
  EXPECT_EQ(State("k"), JobState::kQueued);
  // An error of the GPU that runs is no reason to end what runs.
  readings.gpus[1].uncorrected_errors = 1;
  beat();
  EXPECT_EQ(State("j"), JobState::kPreparing);
  EXPECT_EQ(State("k"), JobState::kQueued);
  readings.reclaims.clear();
  beat();
  EXPECT_EQ(State("k"), JobState::kPreparing);
  EXPECT_EQ(Get("k").tasks[0].gpus, std::vector<int32_t>{0});
  // An operator lifts the verdict of one GPU, and of no other.
  EXPECT_FALSE(UndrainNode("gpu", {2}).ok());
  const auto fault = [&] {
    return coordinator_->queries()->GetNode("gpu")->member.info.gpus[1].fault;
  };
  EXPECT_THAT(fault(), HasSubstr("uncorrected"));
  ASSERT_TRUE(UndrainNode("gpu", {0}).ok());
  EXPECT_THAT(fault(), HasSubstr("uncorrected"));
  ASSERT_TRUE(UndrainNode("gpu", {1}).ok());
  EXPECT_EQ(fault(), "");
}

TEST_F(CoordinatorTest, ARunningJobIsToldOnceThatItsGpuIsFaulty) {
  FakeDaemon gpu("gpu", {8, int64_t{8} << 30, 2, ""});
  gpu.info.gpus = {{0, "GPU-0", "T4", int64_t{16} << 30},
                   {1, "GPU-1", "T4", int64_t{16} << 30}};
  all_ = {&gpu};
  Connect(&gpu);
  NodeReadings readings;
  readings.gpus.resize(2);
  for (GpuUsage& each : readings.gpus) each.memory_used_bytes = 0;
  uint64_t sequence = 1000;
  const auto beat = [&] {
    ASSERT_TRUE(coordinator_->sessions()
                    ->OnHeartbeat(gpu.session(), ++sequence, readings, {})
                    .ok());
    Run();
  };
  beat();
  JobSpec spec = Wide("j");
  spec.roles.Edit().resize(1);
  spec.roles.Edit()[0].count = 1;
  spec.roles.Edit()[0].resources.gpus = 1;
  MustSubmit(spec);
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  const int32_t used = Get("j").tasks[0].gpus.at(0);
  const auto told = [&] {
    std::vector<std::string> messages;
    for (const Event& event : Get("j").events) {
      if (event.reason == Reason::kNodeGpuError) {
        messages.push_back(event.message);
      }
    }
    return messages;
  };
  // The other one is none of the job's.
  readings.gpu_errors = {{1 - used, 79}};
  beat();
  EXPECT_THAT(told(), IsEmpty());
  readings.gpu_errors = {{used, 79}};
  beat();
  const std::string uses = fmt::format(
      "chief 0 uses GPU {} (T4, GPU-{}) of node gpu: Xid 79 at ", used, used);
  EXPECT_THAT(told(), ElementsAre(HasSubstr(uses)));
  // It is not told again with each change, nor with each report.
  readings.gpu_errors.clear();
  beat();
  Pass(1min);
  EXPECT_THAT(told(), SizeIs(1));
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(CoordinatorTest, TicksWithoutNewsAreNeverStored) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  MustSubmit(Wide("waits"));
  Run();
  const int64_t commits = store_.commits();
  Pass(5min);
  EXPECT_EQ(store_.commits(), commits);
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(CoordinatorTest, SameOrderIsSentOnce) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  const size_t sent = a_.assignments.size();
  Pass(10s);
  EXPECT_EQ(a_.assignments.size(), sent);
  a_.Disconnect();
  Connect(&a_);
  Run();
  EXPECT_EQ(a_.assignments.size(), sent + 1) << "a new stream is told all";
}

// ---- Nodes that go and come ----

TEST_F(CoordinatorTest, BrokenStreamChangesNothingForTheJob) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  b_.Disconnect();
  EXPECT_EQ(coordinator_->queries()->GetNode("b")->member.state,
            NodeState::kUnknown);
  Pass(30s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  Connect(&b_);
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u);
}

TEST_F(CoordinatorTest, SilentNodeOfAJobThatStepsIsKept) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  b_.Disconnect();
  for (int64_t step = 1; step <= 600; ++step) {
    clock_.Advance(500ms);
    ASSERT_TRUE(a_.Progress("j", 1, step).ok());
    Run();
  }
  EXPECT_EQ(coordinator_->queries()->GetNode("b")->member.state,
            NodeState::kUnknown);
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(CoordinatorTest, SilentNodeOfAJobThatStandsStillIsLost) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  StepFast("j");
  b_.Disconnect();
  Pass(64s);
  EXPECT_FALSE(Get("j").failing);
  Pass(2s);
  EXPECT_EQ(coordinator_->queries()->GetNode("b")->member.state,
            NodeState::kLost);
  EXPECT_EQ(State("j"), JobState::kPlacing) << "a was stopped, b is lost";
  // It comes back with its old ranks, which are stopped; then all goes on.
  Connect(&b_);
  Pass(2s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 2u);
  EXPECT_THAT(b_.gangs, SizeIs(1));
  EXPECT_THAT(GoalsOf(b_, "j"), Contains(Goal::kStop));
}

TEST_F(CoordinatorTest, NodeThatAJobMovedAwayFromIsStoppedWhenItComesBack) {
  FakeDaemon c("c", {2, int64_t{8} << 30, 0, ""});
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  StepFast("j");
  b_.Disconnect();
  Pass(66s);
  all_.push_back(&c);
  Connect(&c);
  Pass(2s);
  ASSERT_EQ(State("j"), JobState::kRunning) << "on a and c";
  ASSERT_TRUE(FakeDaemon::Alive(*b_.Find("j")));
  Connect(&b_);
  Run();
  EXPECT_THAT(GoalsOf(b_, "j"),
              testing::IsSupersetOf({Goal::kStop, Goal::kForget}));
  EXPECT_THAT(b_.gangs, IsEmpty());
  EXPECT_EQ(State("j"), JobState::kRunning);
  c.Disconnect();
  all_.pop_back();
}

TEST_F(CoordinatorTest, ProgramOnASilentNodeIsHeldForEver) {
  Connect(&a_);
  MustSubmit(ProgramSpec("p", {Role(TaskType::kChief, 1)}));
  Run();
  ASSERT_EQ(State("p"), JobState::kRunning);
  a_.Disconnect();
  Pass(1h, 10s);
  EXPECT_EQ(coordinator_->queries()->GetNode("a")->member.state,
            NodeState::kUnknown);
  EXPECT_EQ(State("p"), JobState::kRunning);
}

TEST_F(CoordinatorTest, RebootedHostMakesANewGeneration) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  b_.Restart(false);
  Connect(&b_);
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 2u);
  EXPECT_THAT(Get("j").attempts[0].end_cause.message,
              HasSubstr("node b returned without the job's ranks"));
}

TEST_F(CoordinatorTest, RestartedDaemonThatAdoptedItsRanksIsNoEvent) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  b_.Restart(true);
  Pass(5s);
  Connect(&b_);
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u);
}

TEST_F(CoordinatorTest, RanksOfUnknownJobsAreStoppedAndForgotten) {
  FakeDaemon::Gang& ghost = a_.gangs[{"ghost", 3}];
  ghost.status.job = "ghost";
  ghost.status.job_uid = "other";
  ghost.status.generation = 3;
  ghost.status.phase = GangPhase::kLaunched;
  Connect(&a_);
  Run();
  EXPECT_THAT(GoalsOf(a_, "ghost"), ElementsAre(Goal::kStop, Goal::kForget));
  EXPECT_THAT(a_.gangs, IsEmpty());
}

TEST_F(CoordinatorTest, RanksOfAnotherJobOfTheSameNameAreStopped) {
  FakeDaemon::Gang& ghost = a_.gangs[{"j", 1}];
  ghost.status.job = "j";
  ghost.status.job_uid = "before the store was lost";
  ghost.status.generation = 1;
  ghost.status.phase = GangPhase::kLaunched;
  RankStatus rank;
  rank.state = RankState::kExited;
  rank.exit = ExitCode(0);
  ghost.status.ranks.push_back(rank);
  MustSubmit(NativeSpec("j", 1));
  Connect(&a_);
  Run();
  EXPECT_NE(State("j"), JobState::kSucceeded);
  EXPECT_THAT(a_.assignments.front().job_uid, "before the store was lost");
  EXPECT_EQ(a_.assignments.front().goal, Goal::kStop);
}

TEST_F(CoordinatorTest, StaleSessionsAreRefusedEverywhere) {
  Connect(&a_);
  const SessionId old = a_.session();
  FakeDaemon again("a", {});
  again.info = a_.info;
  Connect(&again);
  EXPECT_EQ(ReasonOf(a_.closed()), "STALE_SESSION");
  EXPECT_EQ(coordinator_->sessions()->OnHeartbeat(old, 1, {}, {}).code(),
            StatusCode::kAborted);
  EXPECT_EQ(coordinator_->sessions()->OnGangStatus(old, {}).code(),
            StatusCode::kAborted);
  EXPECT_EQ(
      coordinator_->sessions()->OnRendezvousPut(old, "j", 1, "k", "v").code(),
      StatusCode::kAborted);
  EXPECT_EQ(coordinator_->sessions()->OnRendezvousGet(old, "j", 1, "k").code(),
            StatusCode::kAborted);
  EXPECT_EQ(coordinator_->sessions()->CheckLog(old, "j", "u", 1, 0).code(),
            StatusCode::kAborted);
  coordinator_->sessions()->OnStreamEnd(old);
  EXPECT_EQ(coordinator_->queries()->GetNode("a")->member.state,
            NodeState::kReady);
  EXPECT_TRUE(again.Beat().ok());
  again.Disconnect();
}
TEST_F(CoordinatorTest, GangsOfOneNodeAreBounded) {
  for (uint64_t i = 1; i <= 4096; ++i) {
    FakeDaemon::Gang& gang = a_.gangs[{"ghost", i}];
    gang.status.job = "ghost";
    gang.status.generation = i;
    gang.status.phase = GangPhase::kLaunched;
  }
  Connect(&a_);
  GangStatus one_more;
  one_more.job = "one-more";
  one_more.generation = 1;
  EXPECT_EQ(
      coordinator_->sessions()->OnGangStatus(a_.session(), one_more).code(),
      StatusCode::kResourceExhausted);
  EXPECT_TRUE(coordinator_->sessions()
                  ->OnGangStatus(a_.session(), a_.gangs.at({"ghost", 7}).status)
                  .ok())
      << "news of one that is known";
}

}  // namespace
}  // namespace lockstep::server
