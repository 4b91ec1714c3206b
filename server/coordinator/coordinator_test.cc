#include "server/coordinator/coordinator.h"

#include <gmock/gmock.h>

#include <csignal>

#include "server/coordinator/coordinator_fixture.h"
#include "server/store/sqlite_store.h"

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
using testing::SizeIs;

// Cores so that a gang of two needs both nodes.
JobSpec Wide(const JobName& name) {
  JobSpec spec = NativeSpec(name, 2);
  for (RoleSpec& role : spec.roles) role.resources.cpus = 2;
  return spec;
}

std::vector<Goal> GoalsOf(const FakeDaemon& daemon, const JobName& job) {
  std::vector<Goal> goals;
  for (const Assignment& assignment : daemon.assignments) {
    if (assignment.job == job) goals.push_back(assignment.goal);
  }
  return goals;
}

// ---- From submission to success ----

TEST_F(CoordinatorTest, JobGoesItsWayToSuccess) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  EXPECT_EQ(State("j"), JobState::kPreparing) << "placed at once";
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_THAT(GoalsOf(a_, "j"),
              ElementsAre(Goal::kPrepare, Goal::kLaunch, Goal::kGo));
  EXPECT_EQ(a_.Find("j")->assignment.cluster, b_.Find("j")->assignment.cluster);
  EXPECT_EQ(a_.Find("j")->assignment.epoch, 1u);
  a_.Exit("j", 0, ExitCode(0));
  Run();
  EXPECT_EQ(State("j"), JobState::kFinishing);
  EXPECT_EQ(b_.Find("j")->assignment.goal, Goal::kGo) << "may end by itself";
  b_.Exit("j", 1, ExitCode(0));
  Run();
  EXPECT_EQ(State("j"), JobState::kSucceeded);
  EXPECT_THAT(a_.gangs, IsEmpty()) << "forgotten";
  EXPECT_THAT(b_.gangs, IsEmpty());
  CheckBooking();
  EXPECT_EQ(coordinator_->Stats().allocated.cpus, 0);
}

TEST_F(CoordinatorTest, JobWaitsForNodesAndSaysSo) {
  MustSubmit(Wide("j"));
  EXPECT_EQ(State("j"), JobState::kQueued);
  EXPECT_EQ(coordinator_->GetJob("j")->waiting->reason, Reason::kNoNodes);
  Connect(&a_);
  EXPECT_EQ(State("j"), JobState::kQueued);
  EXPECT_EQ(coordinator_->GetJob("j")->waiting->reason, Reason::kNoCapacity);
  Connect(&b_);
  EXPECT_EQ(State("j"), JobState::kPreparing);
  EXPECT_FALSE(coordinator_->GetJob("j")->waiting);
}

TEST_F(CoordinatorTest, TwoJobsForOnePlaceGoOneAfterTheOther) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("first"));
  clock_.Advance(1s);
  MustSubmit(Wide("second"));
  Run();
  EXPECT_EQ(State("first"), JobState::kRunning);
  EXPECT_EQ(State("second"), JobState::kQueued);
  CheckBooking();
  a_.Exit("first", 0, ExitCode(0));
  b_.Exit("first", 1, ExitCode(0));
  Run();
  EXPECT_EQ(State("first"), JobState::kSucceeded);
  EXPECT_EQ(State("second"), JobState::kRunning);
}

// The failed job's places are not given away before it has them again.
TEST_F(CoordinatorTest, WaitingJobDoesNotSlipIntoARestart) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  MustSubmit(ProgramSpec("small", {Role(TaskType::kChief, 1)}));
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  b_.habits.stops = false;
  a_.Exit("j", 0, KilledBy(SIGKILL));
  Run();
  EXPECT_TRUE(Get("j").failing);
  EXPECT_EQ(State("small"), JobState::kQueued) << "a is empty, but not free";
  b_.habits.stops = true;
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 2u);
  EXPECT_EQ(State("small"), JobState::kQueued);
  CheckBooking();
}

TEST_F(CoordinatorTest, CancelStopsEverythingThenEnds) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  b_.habits.stops = false;
  ASSERT_TRUE(Cancel("j").ok());
  Run();
  EXPECT_EQ(State("j"), JobState::kFinishing);
  EXPECT_EQ(b_.Find("j")->assignment.grace, 30s);
  Pass(60s);
  EXPECT_EQ(State("j"), JobState::kFinishing) << "b has not said so";
  b_.habits.stops = true;
  Run();
  EXPECT_EQ(State("j"), JobState::kCancelled);
}

TEST_F(CoordinatorTest, QueuedJobIsCancelledAtOnce) {
  MustSubmit(Wide("j"));
  const auto answer = Cancel("j");
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(State("j"), JobState::kCancelled);
}

TEST_F(CoordinatorTest, BackoffIsWaitedFor) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  a_.habits.joins = b_.habits.joins = false;
  Run();
  ASSERT_EQ(State("j"), JobState::kForming);
  a_.Exit("j", 0, ExitCode(1));
  Run();
  EXPECT_EQ(State("j"), JobState::kPlacing);
  EXPECT_EQ(coordinator_->GetJob("j")->waiting->reason, Reason::kBackoff);
  clock_.Advance(199ms);
  Run();
  EXPECT_EQ(State("j"), JobState::kPlacing);
  clock_.Advance(1ms);
  a_.habits.joins = b_.habits.joins = true;
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 2u);
}

TEST_F(CoordinatorTest, JobThatAlwaysCrashesFailsWithItsFirstCause) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  for (int i = 0; i < 100 && !IsFinal(State("j")); ++i) {
    Run();
    if (State("j") == JobState::kRunning) {
      b_.Exit("j", 1, ExitCode(3));
      Run();
    }
    Pass(1s);
  }
  EXPECT_EQ(State("j"), JobState::kFailed);
  EXPECT_EQ(Get("j").attempts.size(), 4u);
  EXPECT_THAT(Get("j").cause.message, HasSubstr("rank 1 (worker 0 on b)"));
  EXPECT_EQ(Get("j").exit_code, 3);
}

TEST_F(CoordinatorTest, RankThatNeverJoinsIsGivenUp) {
  Connect(&a_);
  Connect(&b_);
  JobSpec spec = Wide("j");
  spec.restart_budget = 0;
  b_.habits.joins = false;
  MustSubmit(spec);
  Run();
  Pass(30s);
  EXPECT_EQ(State("j"), JobState::kForming);
  Pass(1s);
  EXPECT_EQ(State("j"), JobState::kFailed);
  EXPECT_EQ(Get("j").cause.reason, Reason::kFormTimeout);
}

// ---- Requests ----

TEST_F(CoordinatorTest, RepeatGetsTheFirstAnswer) {
  const auto first = Submit(Wide("j"), "r1");
  ASSERT_TRUE(first.ok());
  Connect(&a_);
  Connect(&b_);
  Run();
  const auto again = Submit(Wide("j"), "r1");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *first);
  Restart();
  EXPECT_EQ(Submit(Wide("j"), "r1").value_or(""), *first);
  EXPECT_EQ(coordinator_->ListJobs().size(), 1u);
}

TEST_F(CoordinatorTest, SameIdWithOtherContentsIsRefused) {
  ASSERT_TRUE(Submit(Wide("j"), "r1").ok());
  const auto other = Submit(Wide("k"), "r1");
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(other.status()), "REQUEST_ID_REUSED");
  EXPECT_EQ(coordinator_->ListJobs().size(), 1u);
  EXPECT_EQ(coordinator_
                ->CancelJob({"user/ann", "r1", "CancelJob", "j"}, "j", Anybody,
                            Encode)
                .status()
                .code(),
            StatusCode::kInvalidArgument);
  // Ids of somebody else are others.
  EXPECT_TRUE(coordinator_
                  ->CancelJob({"user/bob", "r1", "CancelJob", "j"}, "j",
                              Anybody, Encode)
                  .ok());
}

TEST_F(CoordinatorTest, RequestIdsAreForgottenAfterADay) {
  ASSERT_TRUE(Submit(Wide("j"), "r1").ok());
  clock_.Advance(24h);
  ASSERT_TRUE(Submit(Wide("k"), "r2").ok());
  EXPECT_TRUE(Submit(Wide("j"), "r1").ok()) << "exactly a day";
  clock_.Advance(1h);
  ASSERT_TRUE(Submit(Wide("l"), "r3").ok());
  EXPECT_EQ(Submit(Wide("j"), "r1").status().code(),
            StatusCode::kAlreadyExists);
}

TEST_F(CoordinatorTest, NamesAreUsedOnce) {
  ASSERT_TRUE(Submit(Wide("j"), "r1").ok());
  EXPECT_EQ(ReasonOf(Submit(Wide("j"), "r2").status()), "JOB_EXISTS");
  ASSERT_TRUE(Cancel("j").ok());
  EXPECT_EQ(ReasonOf(Submit(Wide("j"), "r3").status()), "JOB_EXISTS");
  Cause waiting;
  EXPECT_EQ(ReasonOf(coordinator_->Plan(Wide("j"), &waiting).status()),
            "JOB_EXISTS");
}

TEST_F(CoordinatorTest, JobThatCanNeverFitIsRefusedAndNotStored) {
  Connect(&a_);
  JobSpec spec = Wide("j");
  spec.roles[0].resources.cpus = 64;
  const int64_t version = coordinator_->version();
  EXPECT_EQ(ReasonOf(Submit(spec).status()), "NEVER_FITS");
  EXPECT_THAT(coordinator_->ListJobs(), IsEmpty());
  EXPECT_EQ(coordinator_->version(), version);
}

TEST_F(CoordinatorTest, TwoNativeJobsDoNotWriteToOneDirectory) {
  JobSpec first = Wide("first");
  first.output_directory = "/out/x";
  MustSubmit(first);
  for (const char* same : {"/out/x", "/out//x/", "/out/./x"}) {
    JobSpec second = Wide("second");
    second.output_directory = same;
    EXPECT_EQ(ReasonOf(Submit(second).status()), "OUTPUT_IN_USE") << same;
  }
  JobSpec program = ProgramSpec("program", {Role(TaskType::kChief, 1)});
  program.output_directory = "/out/x";
  EXPECT_TRUE(Submit(program).ok()) << "what it does there is its own matter";
  ASSERT_TRUE(Cancel("first").ok());
  JobSpec second = Wide("second");
  second.output_directory = "/out/x";
  EXPECT_TRUE(Submit(second).ok());
}

TEST_F(CoordinatorTest, PlanChangesNothing) {
  Cause waiting;
  auto plan = coordinator_->Plan(Wide("j"), &waiting);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(*plan, IsEmpty());
  EXPECT_EQ(waiting.reason, Reason::kNoNodes);
  Connect(&a_);
  Connect(&b_);
  const int64_t version = coordinator_->version();
  plan = coordinator_->Plan(Wide("j"), &waiting);
  ASSERT_TRUE(plan.ok());
  ASSERT_THAT(*plan, SizeIs(2));
  EXPECT_EQ((*plan)[0].node, "a");
  EXPECT_EQ((*plan)[1].node, "b");
  EXPECT_EQ(coordinator_->version(), version);
  EXPECT_THAT(coordinator_->ListJobs(), IsEmpty());
}

TEST_F(CoordinatorTest, NearNamesAreOffered) {
  MustSubmit(Wide("mnist"));
  EXPECT_THAT(Message(coordinator_->GetJob("mnits").status()),
              HasSubstr("did you mean mnist?"));
  EXPECT_EQ(ReasonOf(Cancel("zzzzzzzz").status()), "NO_SUCH_JOB");
  Connect(&a_);
  EXPECT_EQ(ReasonOf(coordinator_->GetNode("x").status()), "NO_SUCH_NODE");
  EXPECT_TRUE(coordinator_->GetNode("a").ok());
}

TEST_F(CoordinatorTest, WhoMayNotChangeAJobDoesNot) {
  MustSubmit(Wide("j"));
  const auto nobody = [](const Job&) { return PermissionDenied("no"); };
  EXPECT_EQ(
      coordinator_
          ->CancelJob({"user/bob", "x", "CancelJob", "j"}, "j", nobody, Encode)
          .status()
          .code(),
      StatusCode::kPermissionDenied);
  EXPECT_EQ(State("j"), JobState::kQueued);
}

TEST_F(CoordinatorTest, CheckpointDirectiveReachesTheSpeaker) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  const auto ask = [&](const std::string& id) {
    return coordinator_->RequestCheckpoint(
        {"user/ann", id, "RequestCheckpoint", "j"}, "j", Anybody, Encode);
  };
  EXPECT_EQ(ReasonOf(ask("1").status()), "NOT_RUNNING");
  Run();
  ASSERT_TRUE(ask("2").ok());
  ASSERT_TRUE(ask("2").ok()) << "a repeat";
  Run();
  EXPECT_THAT(a_.Find("j")->assignment.directives, SizeIs(1));
  a_.Find("j")->status.directive_done = 1;
  a_.Publish("j", 1, 40);
  Run();
  EXPECT_THAT(Get("j").directives, IsEmpty());
  EXPECT_EQ(Get("j").last_checkpoint->step, 40);
}

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
  spec.roles.resize(1);
  spec.roles[0].count = 1;
  spec.roles[0].resources.gpus = 1;
  MustSubmit(spec);
  coordinator_->Tick();
  EXPECT_EQ(State("j"), JobState::kQueued);
  readings.gpus[0].memory_used_bytes = 0;
  ASSERT_TRUE(coordinator_->OnHeartbeat(gpu.session(), 2, readings, {}).ok());
  coordinator_->Tick();
  EXPECT_EQ(State("j"), JobState::kPreparing);
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
  EXPECT_EQ(ReasonOf(clone.Connect(coordinator_.get())), "CLONED_NODE");
  EXPECT_TRUE(a_.closed().ok());
  EXPECT_TRUE(a_.Beat().ok());
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

// ---- Rendezvous ----

TEST_F(CoordinatorTest, RendezvousAnswersNowOrLater) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  const auto put = [&](FakeDaemon& from, const char* key, const char* value) {
    return coordinator_->OnRendezvousPut(from.session(), "j", 1, key, value);
  };
  const auto get = [&](FakeDaemon& from, const char* key) {
    return coordinator_->OnRendezvousGet(from.session(), "j", 1, key);
  };
  ASSERT_TRUE(get(b_, "x").ok());
  Run();
  EXPECT_THAT(b_.rendezvous, IsEmpty());
  ASSERT_TRUE(put(a_, "x", "1").ok());
  ASSERT_TRUE(put(a_, "x", "other").ok());
  ASSERT_TRUE(get(a_, "x").ok());
  Run();
  EXPECT_THAT(b_.rendezvous, ElementsAre("j g1 x=1"));
  EXPECT_THAT(a_.rendezvous, ElementsAre("j g1 x=1"));
}

TEST_F(CoordinatorTest, RendezvousIsOfOneGenerationAndItsNodes) {
  FakeDaemon c("c", {2, 0, 0, ""});
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  Connect(&c);
  EXPECT_EQ(
      coordinator_->OnRendezvousPut(c.session(), "j", 1, "x", "evil").code(),
      StatusCode::kPermissionDenied);
  EXPECT_EQ(coordinator_->OnRendezvousGet(c.session(), "j", 1, "x").code(),
            StatusCode::kPermissionDenied);
  // Of other generations and jobs: late, and nothing happens.
  EXPECT_TRUE(
      coordinator_->OnRendezvousPut(a_.session(), "j", 2, "x", "1").ok());
  EXPECT_TRUE(
      coordinator_->OnRendezvousGet(a_.session(), "ghost", 1, "x").ok());
  ASSERT_TRUE(
      coordinator_->OnRendezvousPut(a_.session(), "j", 1, "x", "old").ok());
  b_.Exit("j", 1, ExitCode(1));
  Run();
  ASSERT_EQ(Get("j").generation, 2u);
  ASSERT_TRUE(coordinator_->OnRendezvousGet(a_.session(), "j", 2, "x").ok());
  Run();
  EXPECT_THAT(a_.rendezvous, IsEmpty()) << "the board is clean";
  c.Disconnect();
}

TEST_F(CoordinatorTest, RendezvousIsBounded) {
  options_.rendezvous_bytes = 10'000;
  options_.all_rendezvous_bytes = 15'000;
  Restart();
  Connect(&a_);
  const auto fill = [&](const JobName& job) {
    const std::string value(1000, 'x');
    Status status;
    int kept = 0;
    for (; kept < 100; ++kept) {
      status = coordinator_->OnRendezvousPut(a_.session(), job, 1,
                                             std::to_string(kept), value);
      if (!status.ok()) break;
    }
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    return kept;
  };
  for (const char* name : {"i", "j"}) {
    JobSpec spec = NativeSpec(name, 1);
    spec.output_directory.clear();
    spec.roles[0].resources.cpus = 1;
    MustSubmit(spec);
  }
  Run();
  ASSERT_THAT(NodesOf(Get("i")), ElementsAre("a"));
  ASSERT_THAT(NodesOf(Get("j")), ElementsAre("a"));
  EXPECT_EQ(fill("i"), 8) << "of one generation";
  EXPECT_EQ(fill("j"), 5) << "of all";
  // Who waits takes room as well.
  EXPECT_EQ(coordinator_
                ->OnRendezvousGet(a_.session(), "i", 1, std::string(2000, 'k'))
                .code(),
            StatusCode::kResourceExhausted);
  ASSERT_TRUE(Cancel("i").ok());
  Run();
  ASSERT_EQ(State("i"), JobState::kCancelled);
  // Who has waited takes none: 28 answered keys would not fit with it.
  for (int i = 0; i < 28; ++i) {
    const std::string key = fmt::format("late {}", i);
    ASSERT_TRUE(coordinator_->OnRendezvousGet(a_.session(), "j", 1, key).ok());
    ASSERT_TRUE(
        coordinator_->OnRendezvousPut(a_.session(), "j", 1, key, "").ok());
  }
  EXPECT_TRUE(
      coordinator_->OnRendezvousPut(a_.session(), "j", 1, "more", "x").ok())
      << "an ended job's room is free again";
}

// ---- Logs ----

TEST_F(CoordinatorTest, LogsAreTakenFromWhoRanThem) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  const std::string uid = Get("j").uid;
  const auto check = [&](FakeDaemon& from, Generation generation,
                         int32_t rank) {
    return coordinator_->CheckLog(from.session(), "j", uid, generation, rank)
        .code();
  };
  EXPECT_EQ(check(a_, 1, 0), StatusCode::kOk);
  EXPECT_EQ(check(b_, 1, 0), StatusCode::kPermissionDenied);
  EXPECT_EQ(check(b_, 1, 1), StatusCode::kOk);
  EXPECT_EQ(check(b_, 1, 7), StatusCode::kPermissionDenied);
  EXPECT_EQ(check(b_, 9, 1), StatusCode::kNotFound);
  EXPECT_EQ(coordinator_->CheckLog(a_.session(), "j", "other", 1, 0).code(),
            StatusCode::kNotFound);
  b_.Exit("j", 1, ExitCode(1));
  Run();
  ASSERT_EQ(Get("j").generation, 2u);
  EXPECT_EQ(check(a_, 1, 0), StatusCode::kOk) << "of the attempt before";
  EXPECT_EQ(check(b_, 1, 0), StatusCode::kPermissionDenied);
}

// ---- The store ----

TEST_F(CoordinatorTest, FailedCommitChangesNothingAndIsTriedAgain) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  store_.FailWith(ResourceExhausted("the disk is full"));
  EXPECT_EQ(Submit(Wide("k")).status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(coordinator_->GetJob("k").ok());
  EXPECT_FALSE(coordinator_->store_healthy());
  a_.Exit("j", 0, ExitCode(0));
  const size_t told = b_.assignments.size();
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning) << "not stored, so not so";
  EXPECT_EQ(b_.assignments.size(), told);
  store_.FailWith(OkStatus());
  Run();
  EXPECT_TRUE(coordinator_->store_healthy());
  EXPECT_EQ(State("j"), JobState::kFinishing);
  EXPECT_TRUE(Submit(Wide("k")).ok()) << "the same request again";
}

TEST_F(CoordinatorTest, NodeThatCouldNotBeStoredIsNoMember) {
  store_.FailWith(Unavailable("i/o error"));
  EXPECT_EQ(a_.Connect(coordinator_.get()).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(coordinator_->GetNode("a").ok());
  store_.FailWith(OkStatus());
  Connect(&a_);
  Restart();
  EXPECT_TRUE(coordinator_->GetNode("a").ok()) << "it was stored then";
}

// Without any command: readiness comes back by itself.
TEST_F(CoordinatorTest, StoreThatFailedIsTriedEverySecond) {
  store_.FailWith(Unavailable("i/o error"));
  EXPECT_FALSE(Submit(Wide("j")).ok());
  Pass(5s);
  EXPECT_FALSE(coordinator_->store_healthy());
  store_.FailWith(OkStatus());
  Pass(2s);
  EXPECT_TRUE(coordinator_->store_healthy());
  const int64_t commits = store_.commits();
  Pass(10s);
  EXPECT_EQ(store_.commits(), commits) << "and then no more";
}

TEST_F(CoordinatorTest, TroubleOfARunningJobIsSaid) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  EXPECT_FALSE(coordinator_->GetJob("j")->waiting);
  for (int64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(a_.Progress("j", 1, step).ok());
    clock_.Advance(1s);
  }
  Pass(40s);
  auto trouble = coordinator_->GetJob("j")->waiting;
  ASSERT_TRUE(trouble);
  EXPECT_THAT(trouble->message, HasSubstr("no step for"));
  b_.Disconnect();
  trouble = coordinator_->GetJob("j")->waiting;
  ASSERT_TRUE(trouble);
  EXPECT_THAT(trouble->message, HasSubstr("node b is UNKNOWN"));
}

// What was decided while the store worked is told although it does not now.
TEST_F(CoordinatorTest, BrokenStoreKeepsRunningJobsRunning) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  store_.FailWith(Unavailable("i/o error"));
  MustSubmit(Wide("j"));  // The repeat is answered from memory.
  b_.Disconnect();
  ASSERT_TRUE(b_.Connect(coordinator_.get()).ok()) << "nothing new to store";
  const size_t told = b_.assignments.size();
  Run();
  EXPECT_GT(b_.assignments.size(), told);
  Pass(2min);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(b_.Find("j")->assignment.goal, Goal::kGo);
}

TEST_F(CoordinatorTest, VersionCountsCommits) {
  EXPECT_EQ(coordinator_->version(), 0);
  MustSubmit(Wide("j"));
  EXPECT_EQ(coordinator_->version(), 1);
  EXPECT_EQ(Get("j").resource_version, 1);
  Restart();
  EXPECT_EQ(coordinator_->version(), 1);
  EXPECT_EQ(coordinator_->epoch(), 2u);
}

// The coordinator dies in each state and goes on where the store says.
TEST_F(CoordinatorTest, RestartInEveryStateGoesOn) {
  struct Point {
    const char* name;
    std::function<void()> reach;
  };
  int number = 0;
  const std::vector<Point> points = {
      {"queued", [] {}},
      {"preparing",
       [&] {
         a_.habits.prepares = false;
         Connect(&a_);
         Connect(&b_);
         Run();
       }},
      {"forming",
       [&] {
         a_.habits.joins = false;
         Connect(&a_);
         Connect(&b_);
         Run();
       }},
      {"running",
       [&] {
         Connect(&a_);
         Connect(&b_);
         Run();
       }},
      {"failing",
       [&] {
         Connect(&a_);
         Connect(&b_);
         Run();
         a_.habits.stops = false;
         b_.Exit(fmt::format("j{}", number), 1, ExitCode(1));
         Run();
       }},
      {"placing",
       [&] {
         a_.habits.joins = false;
         Connect(&a_);
         Connect(&b_);
         Run();
         b_.Exit(fmt::format("j{}", number), 1, ExitCode(1));
         Run();
       }},
  };
  for (const Point& point : points) {
    SCOPED_TRACE(point.name);
    const JobName name = fmt::format("j{}", ++number);
    MustSubmit(Wide(name));
    point.reach();
    if (testing::Test::HasFatalFailure()) return;
    const Job before = Get(name);
    EXPECT_FALSE(IsFinal(before.state));
    Restart();
    EXPECT_EQ(Get(name), before);
    a_.habits = b_.habits = {};
    clock_.Advance(1s);
    Connect(&a_);
    Connect(&b_);
    Run();
    EXPECT_EQ(State(name), JobState::kRunning);
    a_.Exit(name, 0, ExitCode(0));
    b_.Exit(name, 1, ExitCode(0));
    Run();
    EXPECT_EQ(State(name), JobState::kSucceeded);
    a_.Disconnect();
    b_.Disconnect();
    Restart();
  }
}

TEST_F(CoordinatorTest, RestartWhileFinishingEndsWithTheStoredOutcome) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  b_.habits.stops = false;
  a_.Exit("j", 0, ExitCode(0));
  Run();
  ASSERT_EQ(State("j"), JobState::kFinishing);
  Restart();
  b_.habits.stops = true;
  b_.Exit("j", 1, ExitCode(9));
  Connect(&a_);
  Connect(&b_);
  Run();
  EXPECT_EQ(State("j"), JobState::kSucceeded);
}

// Nobody is declared lost before there was time to come back.
TEST_F(CoordinatorTest, RestartDeclaresNobodyLost) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  clock_.Advance(1h);
  Restart();
  Run();
  EXPECT_EQ(coordinator_->GetNode("b")->member.state, NodeState::kUnknown);
  EXPECT_EQ(State("j"), JobState::kRunning);
  Connect(&a_);
  Run();
  Pass(60s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  Connect(&b_);
  Run();
  EXPECT_EQ(Get("j").generation, 1u);
}

TEST_F(CoordinatorTest, RankThatDiedWhileTheCoordinatorWasAway) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  Restart();
  b_.Exit("j", 1, KilledBy(SIGSEGV));
  Connect(&a_);
  Connect(&b_);
  Run();
  EXPECT_EQ(Get("j").generation, 2u);
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(CoordinatorTest, SqliteServesAsWell) {
  auto sqlite = OpenSqliteStore(":memory:");
  ASSERT_TRUE(sqlite.ok()) << Message(sqlite.status());
  CoordinatorOptions options;
  options.new_uid = [] { return std::string("uid"); };
  options.new_key = [] { return std::string(32, 'k'); };
  for (uint64_t epoch = 1; epoch <= 2; ++epoch) {
    WatchHub hub;
    auto coordinator =
        std::make_unique<Coordinator>(options, sqlite->get(), &clock_, &hub);
    ASSERT_TRUE(coordinator->Load().ok());
    EXPECT_EQ(coordinator->epoch(), epoch);
    std::swap(coordinator, coordinator_);
    Connect(&a_);
    Connect(&b_);
    MustSubmit(Wide("j"));
    Run();
    EXPECT_EQ(State("j"), JobState::kRunning);
    a_.Disconnect();
    b_.Disconnect();
    std::swap(coordinator, coordinator_);
  }
}

TEST_F(CoordinatorTest, StatsAddUp) {
  Connect(&a_);
  MustSubmit(ProgramSpec("p", {Role(TaskType::kChief, 1)}));
  MustSubmit(ProgramSpec("q", {Role(TaskType::kChief, 1, {2, 0, 0, ""})}));
  Run();
  clock_.Advance(10s);
  const CoordinatorStats stats = coordinator_->Stats();
  EXPECT_EQ(stats.jobs.at(JobState::kRunning), 1);
  EXPECT_EQ(stats.jobs.at(JobState::kQueued), 1);
  EXPECT_EQ(stats.nodes.at(NodeState::kReady), 1);
  EXPECT_EQ(stats.capacity.cpus, 2);
  EXPECT_EQ(stats.allocated.cpus, 1);
  EXPECT_EQ(stats.oldest_queued_seconds, 10);
  EXPECT_EQ(stats.commits, store_.commits());
}

TEST_F(CoordinatorTest, JobsAreListedNewestFirst) {
  for (const char* name : {"b1", "a1", "c1"}) {
    MustSubmit(Wide(name));
    clock_.Advance(1s);
  }
  std::vector<JobName> names;
  for (const JobSnapshot& job : coordinator_->ListJobs()) {
    names.push_back(job.job->spec.name);
  }
  EXPECT_THAT(names, ElementsAre("c1", "a1", "b1"));
}

TEST_F(CoordinatorTest, EndedJobKeepsItsBill) {
  options_.prices.core_hour = 1;
  Restart();
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  clock_.Advance(1h);
  ASSERT_TRUE(a_.Beat().ok());
  ASSERT_TRUE(b_.Beat().ok());
  EXPECT_NEAR(coordinator_->GetJob("j")->bill.cost, 4, 0.01);
  ASSERT_TRUE(Cancel("j").ok());
  Run();
  ASSERT_EQ(State("j"), JobState::kCancelled);
  clock_.Advance(10h);
  options_.prices.core_hour = 100;
  Restart();
  EXPECT_NEAR(coordinator_->GetJob("j")->bill.cost, 4, 0.01);
}

// Two jobs that write checkpoints in one directory take them from each other.
TEST_F(CoordinatorTest, OutputDirectoryHasOneLiveJob) {
  Connect(&a_);
  Connect(&b_);
  JobSpec first = Wide("first");
  first.output_directory = "/out/shared";
  MustSubmit(first);
  JobSpec second = Wide("second");
  second.output_directory = "/out//shared/";
  const auto refused = Submit(second);
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused.status()), "OUTPUT_IN_USE");
  EXPECT_THAT(Message(refused.status()), HasSubstr("job first"));
  Run();
  a_.Exit("first", 0, ExitCode(0));
  b_.Exit("first", 1, ExitCode(0));
  Run();
  EXPECT_EQ(State("first"), JobState::kSucceeded);
  EXPECT_TRUE(Submit(second).ok()) << "it has ended";
}

TEST_F(CoordinatorTest, RunningJobSaysThatItsNodeIsAway) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  EXPECT_FALSE(coordinator_->GetJob("j")->waiting);
  b_.Disconnect();
  const auto trouble = coordinator_->GetJob("j")->waiting;
  ASSERT_TRUE(trouble);
  EXPECT_EQ(trouble->reason, Reason::kNodeUnknown);
  EXPECT_THAT(trouble->message, HasSubstr("node b is UNKNOWN"));
}

}  // namespace
}  // namespace lockstep
