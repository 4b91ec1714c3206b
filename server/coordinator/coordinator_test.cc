#include "server/coordinator/coordinator.h"

#include <gmock/gmock.h>

#include <csignal>

#include "server/coordinator/coordinator_fixture.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  EXPECT_EQ(State("j"), JobState::kRunning) << "the worker is not done";
  EXPECT_EQ(b_.Find("j")->assignment.goal, Goal::kGo);
  b_.Exit("j", 1, ExitCode(0));
  Run();
  EXPECT_EQ(State("j"), JobState::kSucceeded);
  EXPECT_THAT(a_.gangs, IsEmpty()) << "forgotten";
  EXPECT_THAT(b_.gangs, IsEmpty());
  CheckBooking();
  EXPECT_EQ(coordinator_->queries()->Stats().allocated.cpus, 0);
}

TEST_F(CoordinatorTest, JobWaitsForNodesAndSaysSo) {
  MustSubmit(Wide("j"));
  EXPECT_EQ(State("j"), JobState::kQueued);
  EXPECT_EQ(coordinator_->queries()->GetJob("j")->waiting->reason,
            Reason::kNoNodes);
  Connect(&a_);
  EXPECT_EQ(State("j"), JobState::kQueued);
  EXPECT_EQ(coordinator_->queries()->GetJob("j")->waiting->reason,
            Reason::kNoCapacity);
  Connect(&b_);
  EXPECT_EQ(State("j"), JobState::kPreparing);
  EXPECT_FALSE(coordinator_->queries()->GetJob("j")->waiting);
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

TEST_F(CoordinatorTest, ALostRankIsReplacedWhileTheOtherStays) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  RankStatus& first = a_.Find("j")->status.ranks[0];
  RankStatus& second = b_.Find("j")->status.ranks[0];
  const auto report = [&] {
    a_.Find("j")->dirty = b_.Find("j")->dirty = true;
    Run();
  };
  first.recoverable = second.recoverable = true;
  report();
  ASSERT_TRUE(coordinator_->sessions()
                  ->OnRendezvousPut(a_.session(), "j", 1, "k", "old")
                  .ok());
  b_.Exit("j", 1, KilledBy(SIGKILL));
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_EQ(Get("j").recovery, 1u);
  EXPECT_EQ(Get("j").cause.reason, Reason::kRecovering);
  EXPECT_EQ(a_.Find("j")->assignment.recovery, 1u);
  const Assignment& told = b_.assignments.back();
  EXPECT_EQ(told.recovery, 1u);
  EXPECT_EQ(told.spec->tasks[0].ranks[0].restarts, 1);
  // What the old communicator was formed with is gone.
  ASSERT_TRUE(coordinator_->sessions()
                  ->OnRendezvousGet(a_.session(), "j", 1, "k")
                  .ok());
  EXPECT_THAT(a_.rendezvous, testing::IsEmpty());
  // A coordinator that starts now knows it.
  Restart();
  Connect(&a_);
  Connect(&b_);
  Run();
  EXPECT_EQ(Get("j").recovery, 1u);
  RankStatus fresh;
  fresh.rank = 1;
  fresh.restarts = 1;
  second = fresh;
  first.state = second.state = RankState::kJoined;
  first.recovery = second.recovery = 1;
  report();
  EXPECT_EQ(Get("j").cause.reason, Reason::kRunning);
}

// It may have started the rank just before.
TEST_F(CoordinatorTest, ANodeThatVanishesWhileItRestartsARankIsNotFree) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  for (FakeDaemon* daemon : {&a_, &b_}) {
    daemon->Find("j")->status.ranks[0].recoverable = true;
    daemon->Find("j")->dirty = true;
  }
  Run();
  b_.Exit("j", 1, KilledBy(SIGKILL));
  b_.Find("j")->status.phase = GangPhase::kStopped;
  b_.Pump();
  coordinator_->Tick();
  ASSERT_EQ(Get("j").recovery, 1u) << "and b has not said that it does it";
  b_.Disconnect();
  a_.Exit("j", 0, KilledBy(SIGKILL));
  Run();
  EXPECT_TRUE(Get("j").failing);
  EXPECT_EQ(State("j"), JobState::kRunning) << "b may have a process";
  EXPECT_EQ(Get("j").generation, 1u);
  // Its next daemon knows.
  Connect(&b_);
  Run();
  EXPECT_EQ(Get("j").generation, 2u);
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
  EXPECT_EQ(coordinator_->queries()->GetJob("j")->waiting->reason,
            Reason::kBackoff);
  clock_.Advance(999ms);
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
  ASSERT_EQ(Get("j").attempts.size(), 1u);
  EXPECT_EQ(Get("j").attempts[0].end_cause.reason, Reason::kFormTimeout);
  EXPECT_EQ(Get("j").failures_without_progress, 0)
      << "no rank ended: the program may be well";
  for (int i = 0; i < 60 && !IsFinal(State("j")); ++i) Pass(60s, 1s);
  EXPECT_EQ(State("j"), JobState::kFailed) << "not for ever";
  EXPECT_EQ(Get("j").cause.reason, Reason::kFormTimeout);
  EXPECT_EQ(Get("j").restarts, kMostUncharged);
}

// ---- Views ----

TEST_F(CoordinatorTest, StatsAddUp) {
  Connect(&a_);
  MustSubmit(ProgramSpec("p", {Role(TaskType::kChief, 1)}));
  MustSubmit(ProgramSpec("q", {Role(TaskType::kChief, 1, {2, 0, 0, ""})}));
  Run();
  clock_.Advance(10s);
  const CoordinatorStats stats = coordinator_->queries()->Stats();
  EXPECT_EQ(stats.jobs.at(JobState::kRunning), 1);
  EXPECT_EQ(stats.jobs.at(JobState::kQueued), 1);
  EXPECT_EQ(stats.nodes.at(NodeState::kReady), 1);
  EXPECT_EQ(stats.capacity.cpus, 2);
  EXPECT_EQ(stats.allocated.cpus, 1);
  EXPECT_EQ(stats.oldest_queued_seconds, 10);
  EXPECT_EQ(stats.commits.commits, store_.commits());
}

TEST_F(CoordinatorTest, JobsAreListedNewestFirst) {
  for (const char* name : {"b1", "a1", "c1"}) {
    MustSubmit(Wide(name));
    clock_.Advance(1s);
  }
  std::vector<JobName> names;
  for (const JobSnapshot& job : coordinator_->queries()->ListJobs()) {
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
  EXPECT_NEAR(coordinator_->queries()->GetJob("j")->bill.cost, 4, 0.01);
  ASSERT_TRUE(Cancel("j").ok());
  Run();
  ASSERT_EQ(State("j"), JobState::kCancelled);
  clock_.Advance(10h);
  options_.prices.core_hour = 100;
  Restart();
  EXPECT_NEAR(coordinator_->queries()->GetJob("j")->bill.cost, 4, 0.01);
}

TEST_F(CoordinatorTest, RunningJobSaysThatItsNodeIsAway) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  EXPECT_FALSE(coordinator_->queries()->GetJob("j")->waiting);
  b_.Disconnect();
  const auto trouble = coordinator_->queries()->GetJob("j")->waiting;
  ASSERT_TRUE(trouble);
  EXPECT_EQ(trouble->reason, Reason::kNodeUnknown);
  EXPECT_THAT(trouble->message, HasSubstr("node b has been silent for"));
}

// What a worker that is started again alone has of time counts from when its
// node can be asked.
TEST_F(CoordinatorTest, AWorkersRestartIsNotLateWhileNobodyWasThere) {
  JobSpec spec =
      ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 1),
                        Role(TaskType::kPs, 1)});
  spec.restart_worker_alone = true;
  Connect(&a_);
  Connect(&b_);
  MustSubmit(spec);
  Run();
  ASSERT_EQ(State("p"), JobState::kRunning);
  FakeDaemon* const daemon = Get("p").tasks[1].node == "a" ? &a_ : &b_;
  daemon->Exit("p", 1, KilledBy(9));
  Run();
  ASSERT_EQ(Get("p").tasks[1].ranks[0].restarts, 1);
  Pass(60s);
  ASSERT_FALSE(Get("p").failing);
  // The coordinator is away for an hour.
  for (FakeDaemon* one : all_) one->Disconnect();
  coordinator_.reset();
  clock_.Advance(std::chrono::hours(1));
  Start();
  Run();
  EXPECT_FALSE(Get("p").failing);
  Connect(&a_);
  Connect(&b_);
  Pass(119s);
  EXPECT_FALSE(Get("p").failing);
  EXPECT_EQ(Get("p").generation, 1u);
  Pass(3s);
  EXPECT_GT(Get("p").generation, 1u) << "now it is late";
}

}  // namespace
}  // namespace lockstep::server
