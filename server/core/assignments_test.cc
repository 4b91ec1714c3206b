#include "server/core/assignments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ns;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<Assignment> For(const Scene& s, const NodeName& node) {
  return DesiredAssignments(s.job, s.view, node, StopGraces{}, s.now);
}
Assignment One(const Scene& s, const NodeName& node) {
  const auto wanted = For(s, node);
  EXPECT_THAT(wanted, SizeIs(1));
  return wanted.empty() ? Assignment() : wanted[0];
}
Scene Native() { return Scene(NativeSpec("j", 2)); }

TEST(AssignmentsTest, NothingBeforeThePlacement) {
  EXPECT_THAT(For(Native(), "a"), IsEmpty());
}

TEST(AssignmentsTest, GoalFollowsTheState) {
  Scene s = Native();
  s.job.spec.environment = {{"X", "job"}, {"Y", "job"}};
  s.job.spec.roles.Edit()[1].environment = {{"X", "role"}};
  s.job.spec.roles.Edit()[1].argv = {"other"};
  s.Put({"a", "b"});
  Assignment a = One(s, "b");
  EXPECT_EQ(a.goal, Goal::kPrepare);
  EXPECT_EQ(a.generation, 1u);
  EXPECT_EQ(a.job_uid, "uid");
  EXPECT_FALSE(a.cluster);
  ASSERT_TRUE(a.spec);
  ASSERT_THAT(a.spec->tasks, SizeIs(1));
  EXPECT_EQ(a.spec->tasks[0].type, TaskType::kWorker);
  EXPECT_THAT(a.spec->tasks[0].argv, ElementsAre("other"));
  EXPECT_EQ(a.spec->tasks[0].environment.at("X"), "role");
  EXPECT_EQ(a.spec->tasks[0].environment.at("Y"), "job");
  EXPECT_EQ(a.spec->tasks[0].ranks[0].rank, 1);
  EXPECT_THAT(a.spec->lineage, ElementsAre(LineageEntry{1, 0}));
  EXPECT_THAT(For(s, "c"), IsEmpty());

  s.Prepared();
  s.Settle();
  a = One(s, "a");
  EXPECT_EQ(a.goal, Goal::kLaunch);
  EXPECT_EQ(a.cluster, s.job.cluster);
  EXPECT_EQ(a.job_key, s.job.job_key);

  s.Started();
  s.Joined();
  s.Settle();
  EXPECT_EQ(One(s, "a").goal, Goal::kGo);
  s.job = *AddCheckpointDirective(s.job, s.view, s.now);
  EXPECT_THAT(One(s, "a").directives, SizeIs(1));
}

TEST(AssignmentsTest, ProgramIsLaunchedWhilePreparing) {
  Scene s(ProgramSpec("p", {Role(TaskType::kChief, 1)}));
  s.Put({"a"});
  s.Prepared();
  s.Settle();
  ASSERT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(One(s, "a").goal, Goal::kLaunch);
}

TEST(AssignmentsTest, SameHoweverOftenItIsAsked) {
  Scene s = Native();
  s.Run({"a", "b"});
  EXPECT_EQ(For(s, "a"), For(s, "a"));
}

TEST(AssignmentsTest, FailureStopsAllWithAShortGrace) {
  Scene s = Native();
  s.Run({"a", "b"});
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  const Assignment a = One(s, "a");
  EXPECT_EQ(a.goal, Goal::kStop);
  EXPECT_EQ(a.grace, 1s);
  EXPECT_EQ(a.stop_message, s.job.failing->message);
  EXPECT_FALSE(a.spec);
  EXPECT_EQ(a.job_key, "");
}

TEST(AssignmentsTest, CancelLeavesTime) {
  Scene s = Native();
  s.Run({"a", "b"});
  s.job = Cancel(s.job, "user/ann", s.now);
  s.Settle();
  EXPECT_EQ(One(s, "a").goal, Goal::kStop);
  EXPECT_EQ(One(s, "a").grace, 30s);
  EXPECT_EQ(One(s, "a").stop_message, "cancelled by user/ann");
}

Scene ChiefDecides() {
  JobSpec spec = NativeSpec("j", 2);
  spec.end_with = EndWith::kChief;
  spec.end_grace = 10s;
  return Scene(spec);
}

TEST(AssignmentsTest, WorkersMayEndByThemselvesAfterTheChief) {
  Scene s = ChiefDecides();
  s.Run({"a", "b"});
  s.Exited(0, Code(0));
  s.Settle();
  EXPECT_EQ(One(s, "b").goal, Goal::kGo);
  s.Advance(10s - 1ns);
  EXPECT_EQ(One(s, "b").goal, Goal::kGo);
  s.Advance(1ns);
  EXPECT_EQ(One(s, "b").goal, Goal::kStop);
  EXPECT_EQ(One(s, "b").grace, 1s);
}

TEST(AssignmentsTest, CancelEndsTheGraceOfWorkers) {
  Scene s = ChiefDecides();
  s.Run({"a", "b"});
  s.Exited(0, Code(0));
  s.Settle();
  const Job before = s.job;
  s.job = Cancel(s.job, "user/ann", s.now);
  EXPECT_FALSE(NodesToUpdate(&before, s.job).empty());
  EXPECT_EQ(One(s, "b").goal, Goal::kStop);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
}

TEST(AssignmentsTest, NothingIsStoppedWhileWorkersMustFinish) {
  Scene s = Native();
  s.Run({"a", "b"});
  s.Exited(0, Code(0));
  s.Settle();
  s.Advance(std::chrono::hours(10));
  s.Settle();
  EXPECT_EQ(One(s, "b").goal, Goal::kGo);
}

TEST(AssignmentsTest, WorkersOfAJobWithParameterServersAreStoppedAtOnce) {
  Scene s(
      ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 1),
                        Role(TaskType::kPs, 1)}));
  s.Run({"a", "b", "c"});
  s.Exited(0, Code(0));
  s.Settle();
  EXPECT_EQ(One(s, "b").goal, Goal::kStop);
  EXPECT_EQ(One(s, "c").goal, Goal::kStop);
}

TEST(AssignmentsTest, GraceIsOverWhenAllWorkersAre) {
  Scene s = ChiefDecides();
  s.Run({"a", "b"});
  s.Exited(0, Code(0));
  s.Exited(1, Code(5));
  s.Settle();
  EXPECT_EQ(One(s, "b").goal, Goal::kStop);
}

TEST(AssignmentsTest, ParameterServersAreNotWaitedFor) {
  Scene s(ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kPs, 1),
                            Role(TaskType::kEvaluator, 1)}));
  s.Run({"a", "b", "c"});
  s.Exited(0, Code(0));
  s.Settle();
  EXPECT_EQ(One(s, "b").goal, Goal::kStop);
  EXPECT_EQ(One(s, "c").goal, Goal::kStop);
}

TEST(AssignmentsTest, ForgetOnlyOnceTheEndIsStored) {
  Scene s = ChiefDecides();
  s.Run({"a", "b"});
  s.Exited(0, Code(0));
  s.Settle();
  s.Stopped("a");
  EXPECT_EQ(One(s, "a").goal, Goal::kStop) << "reported, not yet taken in";
  s.Settle();
  EXPECT_EQ(One(s, "a").goal, Goal::kForget);
  s.Stopped("b");
  s.Settle();
  EXPECT_EQ(One(s, "b").goal, Goal::kForget);
}

TEST(AssignmentsTest, OldGenerationIsForgottenAndTheNextPrepared) {
  Scene s = Native();
  s.Run({"a", "b"});
  s.Exited(1, Code(1));
  s.Settle();
  s.AllStopped();
  EXPECT_EQ(One(s, "a").goal, Goal::kStop);
  s.Settle();
  const auto wanted = For(s, "a");
  ASSERT_THAT(wanted, SizeIs(2));
  EXPECT_EQ(wanted[0].generation, 1u);
  EXPECT_EQ(wanted[0].goal, Goal::kForget);
  EXPECT_EQ(wanted[1].generation, 2u);
  EXPECT_EQ(wanted[1].goal, Goal::kPrepare);
  EXPECT_THAT(wanted[1].spec->lineage, SizeIs(2));
  EXPECT_EQ(wanted[1].spec->restart_count, 1);
}

TEST(AssignmentsTest, TheReductionPlanIsGivenToRanksThatStart) {
  Scene s = Native();
  s.Put({"a", "b"});
  EXPECT_EQ(One(s, "a").spec->reduction_plan, "");
  s.Run({"a", "b"});
  s.job.reduction_plan = "made by the first";
  EXPECT_EQ(One(s, "a").spec->reduction_plan, "") << "these have their own";
  s.Exited(1, Code(1));
  s.Settle();
  s.AllStopped();
  s.Settle();
  const auto wanted = For(s, "b");
  ASSERT_THAT(wanted, SizeIs(2));
  ASSERT_EQ(wanted[1].goal, Goal::kPrepare);
  EXPECT_EQ(wanted[1].spec->reduction_plan, "made by the first");
  EXPECT_FALSE(wanted[1].spec->reduction_plan_pinned);
  s.Prepared();
  s.Settle();
  for (const Assignment& assignment : For(s, "b")) {
    if (assignment.goal != Goal::kLaunch) continue;
    EXPECT_EQ(assignment.spec->reduction_plan, "made by the first");
  }

  s.job.spec.reduction_plan = "of the user";
  const auto pinned = For(s, "b");
  EXPECT_EQ(pinned.back().spec->reduction_plan, "of the user");
  EXPECT_TRUE(pinned.back().spec->reduction_plan_pinned);
}

TEST(AssignmentsTest, AJobThatAskedForGlooTakesAutoInItsNextGeneration) {
  Scene s = Native();
  s.Put({"a", "b"});
  s.Run({"a", "b"});
  // As an older version stored it.
  const std::vector<std::string> old = {"lockstep-train", "--backend", "gloo"};
  s.job.spec.argv = old;
  s.job.spec.reduction_plan = "of the user, for gloo";
  s.job.reduction_plan = "made by the first, for gloo";
  s.Settle();
  EXPECT_EQ(s.job.spec.argv, old) << "these ranks go on with it";
  s.Exited(1, Code(1));
  s.Settle();
  s.AllStopped();
  s.Settle();
  const auto wanted = For(s, "b");
  ASSERT_EQ(wanted.back().goal, Goal::kPrepare);
  EXPECT_THAT(wanted.back().spec->tasks[0].argv,
              ElementsAre("lockstep-train", "--backend", "auto"));
  EXPECT_EQ(wanted.back().spec->reduction_plan, "");
  EXPECT_FALSE(wanted.back().spec->reduction_plan_pinned);
  int events = 0;
  for (const Event& event : s.job.events) {
    events += event.reason == Reason::kBackendReplaced ? 1 : 0;
  }
  EXPECT_EQ(events, 1);
}

TEST(AssignmentsTest, TheIdentityOfTheOutputDirectoryIsToldToAll) {
  Scene s = Preparing();
  const Job before = s.job;
  s.job.output_identity = std::string(32, 'a');
  EXPECT_THAT(NodesToUpdate(&before, s.job), SizeIs(2));
  EXPECT_EQ(DesiredAssignments(s.job, s.view, "b", {}, s.now)[0]
                .spec->output_identity,
            s.job.output_identity);
}

TEST(AssignmentsTest, LostNodesOldRanksAreStoppedWhenItComesBack) {
  Scene s = Native();
  s.Run({"a", "b"});
  s.view.nodes["b"].state = NodeState::kLost;
  s.Settle();
  s.Stopped("a");
  s.Settle();
  ASSERT_EQ(s.job.state, JobState::kPlacing);
  s.view.nodes["b"].state = NodeState::kReady;
  EXPECT_EQ(One(s, "b").goal, Goal::kStop);
  EXPECT_EQ(One(s, "b").grace, 1s) << "a second copy must not live on";
  EXPECT_EQ(One(s, "b").stop_message,
            "generation 1 was ended while node b was disconnected");
  s.view.nodes["b"].gangs.at(1).phase = GangPhase::kStopped;
  EXPECT_EQ(One(s, "b").goal, Goal::kForget);
}

TEST(AssignmentsTest, GangOfNobodyIsStoppedThenForgotten) {
  GangStatus gang;
  gang.job = "ghost";
  gang.job_uid = "u";
  gang.generation = 4;
  gang.phase = GangPhase::kLaunched;
  EXPECT_EQ(DisownedAssignment(gang).goal, Goal::kStop);
  EXPECT_EQ(DisownedAssignment(gang).generation, 4u);
  EXPECT_EQ(DisownedAssignment(gang).job_uid, "u");
  gang.phase = GangPhase::kStopped;
  EXPECT_EQ(DisownedAssignment(gang).goal, Goal::kForget);
  gang.phase = GangPhase::kRefused;
  EXPECT_EQ(DisownedAssignment(gang).goal, Goal::kForget);
}

TEST(AssignmentsTest, TheProgramsWayComesWithIt) {
  JobSpec spec = ProgramSpec("p", {Role(TaskType::kChief, 1)});
  spec.packages = {{"sha256:0", 7, PackageFormat::kWheel, "x.whl"}};
  spec.runtime = {"tf", "/opt/tf/bin/python", true};
  spec.inherited_environment = {"http_proxy"};
  spec.roles.Edit()[0].container = Container{"image", {"run"}};
  Scene s(spec);
  s.Put({"a"});
  const Assignment a = One(s, "a");
  EXPECT_EQ(a.spec->packages, spec.packages);
  EXPECT_EQ(a.spec->runtime, spec.runtime);
  EXPECT_EQ(a.spec->inherited_environment, spec.inherited_environment);
  EXPECT_THAT(a.spec->services, ElementsAre("jax"));
  EXPECT_EQ(a.spec->tasks[0].container, spec.roles[0].container);
  Scene native = Native();
  native.Put({"a", "b"});
  EXPECT_THAT(One(native, "a").spec->services, IsEmpty());
}

TEST(AssignmentsTest, WorkersHaveTheirGraceAndEvaluatorsNone) {
  JobSpec spec =
      ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 2),
                        Role(TaskType::kEvaluator, 1)});
  spec.end_with = EndWith::kChief;
  spec.end_grace = 10s;
  {
    Scene s(spec);
    s.Run({"a", "b", "c", "d"});
    s.Exited(0, Code(0));
    s.Settle();
    EXPECT_EQ(One(s, "b").goal, Goal::kGo);
    EXPECT_EQ(One(s, "d").goal, Goal::kStop);
    EXPECT_EQ(One(s, "d").grace, 1s);
  }
  Scene s(spec);
  s.Run({"a", "b", "c", "c"});
  s.Exited(0, Code(0));
  s.Settle();
  // An evaluator beside a worker goes with the worker.
  EXPECT_EQ(One(s, "c").goal, Goal::kGo);
  s.Exited(2, Code(7));
  s.Settle();
  EXPECT_EQ(One(s, "c").goal, Goal::kStop);
  EXPECT_EQ(One(s, "b").goal, Goal::kGo);
  s.Advance(10s);
  EXPECT_EQ(One(s, "b").goal, Goal::kStop);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
}

TEST(AssignmentsTest, AWorkerStartedAgainAloneIsAHigherNumber) {
  JobSpec spec =
      ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 1),
                        Role(TaskType::kPs, 1)});
  spec.restart_worker_alone = true;
  Scene s(spec);
  s.Run({"a", "b", "b"});
  EXPECT_EQ(One(s, "b").spec->tasks[0].restarts, 0);
  s.Exited(1, Code(1));
  s.Settle();
  const Assignment a = One(s, "b");
  EXPECT_EQ(a.goal, Goal::kGo);
  EXPECT_EQ(a.generation, 1u);
  EXPECT_EQ(a.spec->tasks[0].restarts, 1);
  EXPECT_EQ(a.spec->tasks[1].restarts, 0);
}

}  // namespace
}  // namespace lockstep::server
