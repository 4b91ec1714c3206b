// Jobs that leave a drained node.
#include "server/core/moving.h"

#include <gmock/gmock.h>

#include <csignal>

#include "server/core/assignments.h"
#include "server/core/scheduler.h"
#include "server/core/testing.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void DrainNodeOf(Scene* s, const NodeName& node,
                 std::optional<Duration> grace) {
  Drain drain;
  drain.requester = "user/ann";
  drain.reason = "new kernel";
  drain.time = s->now.wall;
  drain.grace = grace;
  s->view.nodes.at(node).drain = drain;
  s->view.nodes.at(node).takes_work = false;
}

Assignment GoalOn(const Scene& s, const NodeName& node) {
  const auto goals =
      DesiredAssignments(s.job, s.view, node, StopGraces(), s.now);
  return goals.empty() ? Assignment() : goals.back();
}

TEST(MovingTest, WithoutGraceTheJobRunsToItsEnd) {
  Scene s(NativeSpec("j", 2));
  s.Run({"a", "b"});
  const Job before = s.job;
  DrainNodeOf(&s, "b", std::nullopt);
  s.Advance(100000s);
  s.Settle();
  EXPECT_EQ(s.job, before);
  // A restart is new work: not there.
  s.Exited(0, Signal(SIGKILL));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.failures_without_progress, 1);
}

TEST(MovingTest, NativeJobSavesStopsAndGoesOnElsewhere) {
  Scene s(NativeSpec("j", 2));
  s.job.spec.restart_budget = 0;
  s.Run({"a", "b"});
  s.job = *AddCheckpointDirective(s.job, s.view, s.now);
  DrainNodeOf(&s, "b", 30s);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  EXPECT_FALSE(s.job.failing);
  EXPECT_THAT(s.job.directives,
              ElementsAre(Directive{1, DirectiveKind::kCheckpoint},
                          Directive{2, DirectiveKind::kStop}));
  EXPECT_EQ(GoalOn(s, "a").goal, Goal::kGo);
  EXPECT_THAT(GoalOn(s, "a").directives, testing::SizeIs(2));
  EXPECT_THAT(s.job.events.back().message,
              HasSubstr("node b is drained by user/ann: new kernel"));
  // A drain of another host is the same stop.
  DrainNodeOf(&s, "a", 60s);
  s.Settle();
  EXPECT_THAT(s.job.directives, testing::SizeIs(2));
  s.view.nodes.at("a").drain.reset();
  s.view.nodes.at("a").takes_work = true;

  s.Gang("a").checkpoint = Checkpoint{41, 1, "/out/ckpt-41", {}, 100};
  s.Gang("a").directive_done = 2;
  s.Rank(0).progress.committed_step = 41;
  s.Rank(0).progress.total_steps = 100;
  s.Exited(0, Code(0));
  s.Exited(1, Code(0));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kNodeDrained);
  EXPECT_EQ(
      s.job.failing->message,
      "saved and stopped after step 41, as requested: node b is drained by "
      "user/ann: new kernel")
      << "also where all ranks there have ended already";
  EXPECT_EQ(GoalOn(s, "a").grace, 30s);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.cause.reason, Reason::kNodeDrained);
  EXPECT_EQ(s.job.failures_without_progress, 0) << "costs nothing";
  EXPECT_EQ(s.job.failure_signature, "");
  EXPECT_THAT(s.job.holds, IsEmpty());
  EXPECT_EQ(s.job.attempts.back().end_cause.reason, Reason::kNodeDrained);
  s.Run({"a", "c"});
  EXPECT_EQ(s.job.generation, 2u);
  EXPECT_EQ(s.job.last_checkpoint->step, 41);
  EXPECT_THAT(s.job.directives, IsEmpty());
  EXPECT_EQ(s.job.failed_formings, 0);
}

TEST(MovingTest, JobThatWasJustDoneIsDone) {
  Scene s(NativeSpec("j", 2));
  s.Run({"a", "b"});
  DrainNodeOf(&s, "b", 30s);
  s.Settle();
  s.Rank(0).progress.committed_step = 100;
  s.Rank(0).progress.total_steps = 100;
  s.Exited(0, Code(0));
  s.Exited(1, Code(0));
  s.Settle();
  EXPECT_EQ(s.job.outcome, JobState::kSucceeded);
}

TEST(MovingTest, WhatStillRunsAtTheDeadlineIsKilled) {
  Scene s(NativeSpec("j", 2));
  s.Run({"a", "b"});
  DrainNodeOf(&s, "b", 30s);
  s.Settle();
  s.Advance(29s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1s);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_THAT(s.job.failing->message,
              HasSubstr("its grace of 30.0 s has ended"));
  EXPECT_EQ(GoalOn(s, "a").goal, Goal::kStop);
  EXPECT_EQ(GoalOn(s, "a").grace, StopGraces().failure);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.failures_without_progress, 0);
}

TEST(MovingTest, ProgramIsStoppedWithTheGrace) {
  Scene s(ProgramSpec("p", {Role(TaskType::kChief, 1)}));
  s.job.spec.restart_budget = 0;
  s.Run({"a"});
  DrainNodeOf(&s, "a", 45s);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(GoalOn(s, "a").goal, Goal::kStop);
  EXPECT_EQ(GoalOn(s, "a").grace, 45s);
  s.Advance(45s);
  EXPECT_EQ(GoalOn(s, "a").grace, StopGraces().failure) << "its time is over";
  // Whatever a program's answer to SIGTERM is.
  s.Exited(0, Victim(Code(3)));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.cause.reason, Reason::kNodeDrained);
}

// Two ranks of a program that have joined.
Scene JoinedProgram() {
  Scene s(ProgramSpec("p", {Role(TaskType::kWorker, 2)}));
  s.job.spec.restart_budget = 0;
  s.Run({"a", "b"});
  for (int rank = 0; rank < 2; ++rank) s.Rank(rank).progress.phase = "compute";
  return s;
}

TEST(MovingTest, AProgramThatHasJoinedSavesAndStops) {
  Scene s = JoinedProgram();
  DrainNodeOf(&s, "b", 60s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  EXPECT_THAT(s.job.directives,
              ElementsAre(Directive{1, DirectiveKind::kStop}));
  EXPECT_THAT(GoalOn(s, "a").directives, testing::SizeIs(1));
  // Rank 0 has agreed with the others.
  s.Gang("a").directive_done = 1;
  s.Advance(50s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Rank(0).progress.committed_step = 41;
  s.Exited(0, Code(0));
  s.Exited(1, Code(0));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_THAT(s.job.failing->message,
              HasSubstr("stopped after step 41, as requested"));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.failures_without_progress, 0);
}

// The chief may have exited while another rank still writes its shard.
TEST(MovingTest, TheOtherRanksMayEndTheSameStep) {
  for (const EndWith end : {EndWith::kAll, EndWith::kChief}) {
    Scene s = JoinedProgram();
    s.job.spec.end_with = end;
    DrainNodeOf(&s, "b", 60s);
    s.Settle();
    s.Gang("a").directive_done = 1;
    s.Rank(0).progress.committed_step = 41;
    s.Exited(0, Code(0));
    s.Settle();
    EXPECT_EQ(s.job.state, JobState::kRunning);
    EXPECT_FALSE(s.job.failing);
    EXPECT_EQ(GoalOn(s, "b").goal, Goal::kGo) << "it is not stopped";
    Scene late = s;
    s.Advance(14s);
    s.Settle();
    EXPECT_FALSE(s.job.failing);
    s.Exited(1, Code(0));
    s.Settle();
    ASSERT_TRUE(s.job.failing) << "at once";
    EXPECT_THAT(s.job.failing->message,
                HasSubstr("stopped after step 41, as requested"));

    late.Advance(16s);
    late.Settle();
    ASSERT_TRUE(late.job.failing) << "not for ever";
    EXPECT_EQ(late.job.failing->reason, Reason::kNodeDrained);
    EXPECT_EQ(GoalOn(late, "b").goal, Goal::kStop);
  }
}

TEST(MovingTest, AProgramThatDoesNotAskIsStoppedWithTheGrace) {
  Scene s = JoinedProgram();
  DrainNodeOf(&s, "b", 60s);
  s.Settle();
  s.Advance(14s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1s);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_THAT(s.job.failing->message, HasSubstr("did not agree on a step"));
  EXPECT_EQ(GoalOn(s, "a").grace, 60s);
}

TEST(MovingTest, AProgramThatDoesNotAskMayBeDone) {
  Scene s = JoinedProgram();
  DrainNodeOf(&s, "b", 60s);
  s.Settle();
  s.Exited(0, Code(0));
  s.Exited(1, Code(0));
  s.Settle();
  EXPECT_EQ(s.job.outcome, JobState::kSucceeded);
}

TEST(MovingTest, AProgramOfWhichARankHasNotJoinedIsStoppedAtOnce) {
  for (const char* phase : {"", "finished"}) {
    Scene s = JoinedProgram();
    s.Rank(1).progress.phase = phase;
    EXPECT_THAT(NotJoined(s.job, s.view), ElementsAre(1));
    DrainNodeOf(&s, "b", 60s);
    s.Settle();
    ASSERT_TRUE(s.job.failing);
    EXPECT_THAT(s.job.directives, IsEmpty());
    EXPECT_EQ(GoalOn(s, "a").grace, 60s);
  }
}

TEST(MovingTest, AJoinedProgramSavesWhenItsTimeIsOver) {
  for (const bool agrees : {true, false}) {
    Scene s = JoinedProgram();
    s.job.spec.max_running_time = 100s;
    s.Advance(100s);
    s.Settle();
    EXPECT_THAT(s.job.directives, IsEmpty());
    s.Advance(1s);
    s.Settle();
    EXPECT_EQ(s.job.state, JobState::kRunning);
    EXPECT_THAT(s.job.directives,
                ElementsAre(Directive{1, DirectiveKind::kStop}));
    if (agrees) s.Gang("a").directive_done = 1;
    s.Advance(14s);
    s.Settle();
    EXPECT_EQ(s.job.state, agrees ? JobState::kRunning : JobState::kFinishing);
    if (agrees) {
      s.Exited(0, Code(0));
      s.Exited(1, Code(0));
      s.Settle();
      EXPECT_EQ(s.job.state, JobState::kFinishing);
    }
    EXPECT_EQ(s.job.outcome, JobState::kCancelled);
    EXPECT_EQ(s.job.cause.reason, Reason::kMaxRunningTime);
  }
}

TEST(MovingTest, AJoinedProgramSavesWhenItIsIdle) {
  Scene s = JoinedProgram();
  s.view.idle_end = {{Reason::kIdle, "no rank works"}, 0s};
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  EXPECT_THAT(s.job.directives,
              ElementsAre(Directive{1, DirectiveKind::kStop}));
  s.Gang("a").directive_done = 1;
  s.view.idle_end->since = 5s;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  s.Exited(0, Code(0));
  s.Exited(1, Code(0));
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFinishing);
  EXPECT_EQ(s.job.outcome, JobState::kCancelled);
  EXPECT_EQ(s.job.cause.reason, Reason::kIdle);
}

TEST(MovingTest, AJoinedProgramThatDoesNotEndIsEnded) {
  Scene s = JoinedProgram();
  s.job.spec.max_running_time = 100s;
  s.Advance(101s);
  s.Settle();
  s.Gang("a").directive_done = 1;
  s.Advance(28s);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  s.Advance(1s);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFinishing);
  EXPECT_EQ(s.job.outcome, JobState::kCancelled);
}

TEST(MovingTest, NothingIsSavedBeforeTheFirstStep) {
  Scene preparing(NativeSpec("j", 2));
  preparing.Put({"a", "b"});
  Scene forming(NativeSpec("j", 2));
  forming.Put({"a", "b"});
  forming.Prepared();
  forming.Settle();
  ASSERT_EQ(forming.job.state, JobState::kForming);
  for (Scene* s : {&preparing, &forming}) {
    DrainNodeOf(s, "b", 30s);
    s->Settle();
    ASSERT_TRUE(s->job.failing);
    s->AllStopped();
    s->Settle();
    EXPECT_EQ(s->job.state, JobState::kPlacing);
    EXPECT_EQ(s->job.failures_without_progress, 0);
    EXPECT_EQ(s->job.failed_formings, 0);
  }
}

TEST(MovingTest, JobWithoutOutputDirectoryHasNothingToSaveIn) {
  Scene s(NativeSpec("j", 2));
  s.job.spec.output_directory.clear();
  s.Run({"a", "b"});
  DrainNodeOf(&s, "b", 30s);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(GoalOn(s, "a").grace, 30s);
}

TEST(MovingTest, WaitingJobSaysHowManyNodesAreDrained) {
  Job job = Scene(NativeSpec("j", 1)).job;
  std::vector<HostCapacity> hosts(3);
  for (int i = 0; i < 3; ++i) {
    hosts[i].node = std::string(1, static_cast<char>('a' + i));
    hosts[i].capacity.cpus = i == 0 ? 0.5 : 2;
    hosts[i].ready = i == 0;
    hosts[i].drained = i != 0;
  }
  EXPECT_TRUE(CheckCanEverFit(job.spec, hosts).ok()) << "they exist";
  auto result = Schedule({{&job, Duration{}, false}}, hosts, {});
  EXPECT_THAT(result.waiting["j"].message,
              HasSubstr("2 of 3 nodes are drained"));
  hosts[0].ready = false;
  hosts[0].drained = true;
  result = Schedule({{&job, Duration{}, false}}, hosts, {});
  EXPECT_EQ(result.waiting["j"].reason, Reason::kNoNodes);
  EXPECT_THAT(result.waiting["j"].message,
              HasSubstr("3 of 3 nodes are drained"));
}

// ---- Stalls and nodes that were given up ----

Stall Stalled(int32_t rank, const std::string& phase, Duration still,
              int32_t waiting) {
  Stall stall;
  stall.rank = rank;
  stall.phase = phase;
  stall.step = 12;
  stall.still = still;
  stall.deadline = 5s;
  stall.waiting = waiting;
  return stall;
}

TEST(MovingTest, StalledRankIsNamedAndTheJobIsTriedAgain) {
  Scene s(NativeSpec("j", 2));
  s.Run({"a", "b"});
  s.view.stall = Stalled(1, "compute", 6s, 1);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kStalled);
  EXPECT_THAT(s.job.failing->message,
              HasSubstr("rank 1 (worker 0 on b) has stalled in compute of step "
                        "12 for 6.0 s while 1 other rank waits for it"));
  s.view.stall.reset();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.generation, 2u) << "in place";
  EXPECT_EQ(s.job.attempts.back().end_cause.reason, Reason::kStalled);
  EXPECT_EQ(s.job.failures_without_progress, 1);
}

TEST(MovingTest, StallOfAllNamesNobody) {
  Scene s(NativeSpec("j", 2));
  s.Run({"a", "b"});
  s.view.stall = Stalled(-1, "allreduce", 31s, 2);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_THAT(
      s.job.failing->message,
      HasSubstr("all 2 ranks have stalled in the all-reduce of step 12"));
}

TEST(MovingTest, ForgottenNodeIsLostByAnOperatorsWord) {
  Scene s(NativeSpec("j", 2));
  s.Run({"a", "b"});
  s.view.nodes.at("b").gangs.clear();
  s.view.nodes.at("b").state = NodeState::kLost;
  s.view.nodes.at("b").forgotten = true;
  s.view.nodes.at("b").takes_work = false;
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kNodeForgotten);
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_THAT(s.job.holds, IsEmpty());
}

}  // namespace
}  // namespace lockstep::server
