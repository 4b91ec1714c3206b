#include <gmock/gmock.h>

#include <csignal>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
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
  const auto job = coordinator_->GetJob("j");
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
  ASSERT_TRUE(
      coordinator_->OnHeartbeat(b_.session(), 1, {}, {{"j", 1, {forged}}})
          .ok());
  EXPECT_LT(coordinator_->GetJob("j")->progress->chief.committed_step, 999);
}

TEST_F(CoordinatorTest, AGpuThatDoesNotAnswerGetsNoJobUntilItDoes) {
  FakeDaemon gpu("gpu", {8, int64_t{8} << 30, 1, ""});
  gpu.info.gpus = {{0, "GPU-0", "T4", int64_t{16} << 30}};
  Connect(&gpu);
  NodeReadings readings;
  readings.gpus.resize(1);
  ASSERT_TRUE(coordinator_->OnHeartbeat(gpu.session(), 1, readings, {}).ok());
  JobSpec spec = Wide("j");
  spec.roles.Edit().resize(1);
  spec.roles.Edit()[0].count = 1;
  spec.roles.Edit()[0].resources.gpus = 1;
  MustSubmit(spec);
  coordinator_->Tick();
  EXPECT_EQ(State("j"), JobState::kQueued);
  readings.gpus[0].memory_used_bytes = 0;
  ASSERT_TRUE(coordinator_->OnHeartbeat(gpu.session(), 2, readings, {}).ok());
  coordinator_->Tick();
  EXPECT_EQ(State("j"), JobState::kPreparing);
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
    ASSERT_TRUE(
        coordinator_->OnHeartbeat(gpu.session(), ++sequence, readings, {})
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
  EXPECT_EQ(coordinator_->GetNode("b")->member.state, NodeState::kUnknown);
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
  EXPECT_EQ(coordinator_->GetNode("b")->member.state, NodeState::kUnknown);
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
  EXPECT_EQ(coordinator_->GetNode("b")->member.state, NodeState::kLost);
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
  EXPECT_EQ(coordinator_->GetNode("a")->member.state, NodeState::kUnknown);
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
              HasSubstr("node b came back without the job's ranks"));
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
  const Coordinator::SessionId old = a_.session();
  FakeDaemon again("a", {});
  again.info = a_.info;
  Connect(&again);
  EXPECT_EQ(ReasonOf(a_.closed()), "STALE_SESSION");
  EXPECT_EQ(coordinator_->OnHeartbeat(old, 1, {}, {}).code(),
            StatusCode::kAborted);
  EXPECT_EQ(coordinator_->OnGangStatus(old, {}).code(), StatusCode::kAborted);
  EXPECT_EQ(coordinator_->OnRendezvousPut(old, "j", 1, "k", "v").code(),
            StatusCode::kAborted);
  EXPECT_EQ(coordinator_->OnRendezvousGet(old, "j", 1, "k").code(),
            StatusCode::kAborted);
  EXPECT_EQ(coordinator_->CheckLog(old, "j", "u", 1, 0).code(),
            StatusCode::kAborted);
  coordinator_->OnStreamEnd(old);
  EXPECT_EQ(coordinator_->GetNode("a")->member.state, NodeState::kReady);
  EXPECT_TRUE(again.Beat().ok());
  again.Disconnect();
}

TEST_F(CoordinatorTest, OlderProcessIsRefused) {
  a_.info.incarnation = {5, 1};
  Connect(&a_);
  FakeDaemon old("a", {2, 0, 0, ""});
  old.info.incarnation = {4, 1};
  EXPECT_EQ(ReasonOf(old.Connect(coordinator_.get())), "STALE_INCARNATION");
  EXPECT_TRUE(a_.Beat().ok());
}

TEST_F(CoordinatorTest, CloneIsRefusedAndTheFirstStays) {
  Connect(&a_);
  FakeDaemon clone("a", {2, 0, 0, ""});
  clone.info.incarnation = {1, 999};
  Connect(&clone);
  EXPECT_FALSE(clone.welcomed());
  clock_.Advance(500ms);
  EXPECT_TRUE(a_.Beat().ok());
  clock_.Advance(500ms);
  coordinator_->Tick();
  EXPECT_EQ(ReasonOf(clone.closed()), "CLONED_NODE");
  EXPECT_TRUE(a_.closed().ok());
  EXPECT_TRUE(a_.Beat().ok());
}

// ---- A daemon whose directory is a copy of another's ----

class CloneTest : public CoordinatorTest {
 protected:
  CloneTest() {
    copy_.info.incarnation = {2, 5};
    copy_.info.hostname = "copy-of-a";
    copy_.info.boot_id = "another host's";
  }
  // Of the job `j` on a and b, as the copy finds it: all of another boot.
  void CopyGangs() {
    copy_.gangs = a_.gangs;
    for (auto& [key, gang] : copy_.gangs) {
      gang.status.phase = GangPhase::kStopped;
      for (RankStatus& rank : gang.status.ranks) {
        rank.state = RankState::kExited;
        rank.exit = KilledBy(SIGKILL);
      }
    }
  }
  FakeDaemon copy_{"a", {2, int64_t{8} << 30, 0, ""}};
};

TEST_F(CloneTest, CostsTheJobNothingHoweverOftenItComes) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  CopyGangs();
  for (int i = 0; i < 20; ++i) {
    Connect(&copy_);
    // What it adds is of the newcomer, too.
    EXPECT_TRUE(
        coordinator_
            ->OnGangStatus(copy_.session(), copy_.gangs.begin()->second.status)
            .ok());
    EXPECT_TRUE(copy_.Beat().ok()) << "dropped";
    Pass(500ms);
    EXPECT_EQ(ReasonOf(copy_.closed()), "CLONED_NODE");
    EXPECT_EQ(coordinator_->GetNode("a")->member.Shown(true),
              NodeState::kQuarantined);
    copy_.Disconnect();
    ++copy_.info.incarnation.counter;
    Pass(1500ms);
  }
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_TRUE(Get("j").attempts.size() <= 1u);
  EXPECT_THAT(GoalsOf(a_, "j"), Not(Contains(Goal::kStop)));
  // An ordinary restart of the first one is no contest, and waits for nothing.
  a_.Restart(true);
  Connect(&a_);
  EXPECT_TRUE(a_.welcomed());
  Pass(61s);
  EXPECT_EQ(coordinator_->GetNode("a")->member.Shown(true), NodeState::kReady);
}

TEST_F(CloneTest, IsNotLetInWhileTheFirstIsAwayForAMoment) {
  Connect(&a_);
  Connect(&copy_);
  ASSERT_TRUE(a_.Beat().ok());
  EXPECT_EQ(ReasonOf(copy_.closed()), "CLONED_NODE");
  copy_.Disconnect();
  a_.Disconnect();
  EXPECT_EQ(ReasonOf(copy_.Connect(coordinator_.get())), "CLONED_NODE");
  // A person says that the copy is the right one.
  ASSERT_TRUE(UndrainNode("a").ok());
  Connect(&copy_);
  EXPECT_TRUE(copy_.welcomed());
}

TEST_F(CloneTest, AHalfOpenStreamIsTakenOverAfterASecondAndNoContest) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  FakeDaemon next("a", a_.info.capacity);
  next.info = a_.info;
  ++next.info.incarnation.counter;
  next.gangs = a_.gangs;
  Connect(&next);
  clock_.Advance(999ms);
  coordinator_->Tick();
  EXPECT_FALSE(next.welcomed());
  EXPECT_TRUE(a_.closed().ok());
  clock_.Advance(1ms);
  coordinator_->Tick();
  EXPECT_TRUE(next.welcomed());
  EXPECT_EQ(ReasonOf(a_.closed()), "STALE_SESSION");
  EXPECT_TRUE(next.Beat().ok());
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u) << "its gangs came with it";
  EXPECT_EQ(coordinator_->GetNode("a")->member.Shown(true), NodeState::kReady);
}

TEST_F(CloneTest, ARestartIsLetInAsSoonAsTheOldStreamEnds) {
  Connect(&a_);
  FakeDaemon next("a", a_.info.capacity);
  next.info = a_.info;
  ++next.info.incarnation.counter;
  Connect(&next);
  ASSERT_TRUE(a_.Beat().ok());
  EXPECT_FALSE(next.welcomed());
  a_.Disconnect();
  EXPECT_TRUE(next.welcomed());
}

TEST_F(CloneTest, ADaemonThatReadsItsTakeOverFromAnotherHostIsToldSo) {
  Connect(&a_);
  Connect(&copy_);
  clock_.Advance(1s);
  coordinator_->Tick();
  EXPECT_TRUE(copy_.welcomed());
  EXPECT_EQ(ReasonOf(a_.closed()), "CLONED_NODE");
}

// The first daemon is paused for longer than a newcomer waits.
TEST_F(CloneTest, OneThatWasAdmittedDoesNotEndRanksThatStep) {
  for (const bool knows : {false, true}) {
    const JobName name = knows ? "knows" : "empty";
    a_.Restart(true);
    Connect(&a_);
    if (!b_.connected()) Connect(&b_);
    MustSubmit(Wide(name));
    Run();
    ASSERT_EQ(State(name), JobState::kRunning);
    StepFast(name);
    FakeDaemon copy("a", a_.info.capacity);
    copy.info = a_.info;
    ++copy.info.incarnation.counter;
    copy.info.boot_id += " of another host";
    if (knows) {
      copy_.gangs.clear();
      CopyGangs();
      copy.gangs = copy_.gangs;
    }
    Connect(&copy);
    int64_t step = 100;
    const auto advance = [&](Duration time, bool steps) {
      for (Duration done{}; done < time; done += 500ms) {
        clock_.Advance(500ms);
        if (copy.welcomed()) {
          EXPECT_TRUE(copy.Beat().ok());
        }
        if (b_.gangs.contains({name, 1})) {
          ASSERT_TRUE(b_.Progress(name, 1, steps ? ++step : step).ok());
        }
        coordinator_->Tick();
        PumpAll({&b_, &copy});
      }
    };
    advance(1500ms, true);
    ASSERT_TRUE(copy.welcomed());
    ASSERT_EQ(ReasonOf(a_.closed()), "CLONED_NODE");
    advance(20s, true);
    EXPECT_EQ(State(name), JobState::kRunning);
    EXPECT_FALSE(Get(name).failing) << Get(name).failing->message;
    EXPECT_THAT(GoalsOf(copy, name), IsEmpty()) << "two would run";
    // Its ranks end with their host; no step says that they live any more.
    advance(4500ms, false);
    EXPECT_FALSE(Get(name).failing);
    advance(1500ms, false);
    PumpAll({&b_, &copy});
    EXPECT_EQ(Get(name).attempts.size(), 1u);
    if (!knows) {
      EXPECT_EQ(Get(name).attempts[0].end_cause.reason, Reason::kNodeLost);
    }
    ASSERT_TRUE(Cancel(name).ok());
    PumpAll({&b_, &copy});
    copy.Disconnect();
    a_.info = copy.info;
    a_.gangs.clear();
  }
}

TEST_F(CloneTest, OneIsJudgedAtATimeAndAStreamThatEndsIsForgotten) {
  Connect(&a_);
  Connect(&copy_);
  FakeDaemon third("a", a_.info.capacity);
  third.info.incarnation = {3, 6};
  EXPECT_EQ(third.Connect(coordinator_.get()).code(), StatusCode::kUnavailable);
  copy_.Disconnect();
  Connect(&third);
  ASSERT_TRUE(a_.Beat().ok());
  clock_.Advance(1s);
  coordinator_->Tick();
  EXPECT_EQ(ReasonOf(third.closed()), "CLONED_NODE") << "of the same boot";
  EXPECT_TRUE(a_.closed().ok());
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
  EXPECT_EQ(coordinator_->OnGangStatus(a_.session(), one_more).code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(
      coordinator_->OnGangStatus(a_.session(), a_.gangs.at({"ghost", 7}).status)
          .ok())
      << "news of one that is known";
}

}  // namespace
}  // namespace lockstep
