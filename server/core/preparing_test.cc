#include "server/core/preparing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ns;
using testing::ElementsAre;
using testing::HasSubstr;

// ---- PREPARING ----

TEST(PreparingTest, NativeJobFormsWhenEveryNodeHasPrepared) {
  Scene s = Preparing();
  s.Prepared();
  s.Gang("b").phase = GangPhase::kPreparing;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_FALSE(s.job.cluster);
  s.Gang("b").phase = GangPhase::kPrepared;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kForming);
  ASSERT_TRUE(s.job.cluster);
  EXPECT_EQ(s.job.cluster->world_size, 2);
  EXPECT_EQ(s.job.cluster->generation, 1u);
  EXPECT_EQ(s.job.cluster->tasks[0].address, "10.0.0.1:7000");
  EXPECT_EQ(s.job.cluster->tasks[1].address, "10.0.0.2:7000");
  EXPECT_EQ(s.job.cluster->master_address, "10.0.0.1");
  EXPECT_EQ(s.job.cluster->master_port, 7999);
  EXPECT_EQ(s.job.job_key, std::string(32, 'k'));
}

TEST(PreparingTest, ClusterSpecGivesEachRankItsGpus) {
  JobSpec spec = NativeSpec("j", 1);
  spec.roles.Edit()[0].ranks_per_task = 2;
  spec.roles.Edit()[0].resources.gpus = 4;
  Scene s(spec);
  s.Put({"a"});
  s.job.tasks[0].gpus = {3, 5, 6, 7};
  s.Prepared();
  s.Settle();
  ASSERT_TRUE(s.job.cluster);
  EXPECT_THAT(s.job.cluster->tasks[0].ranks[0].gpus, ElementsAre(3, 5));
  EXPECT_THAT(s.job.cluster->tasks[0].ranks[1].gpus, ElementsAre(6, 7));
}

TEST(PreparingTest, ANodeThatLeasedTooFewPortsHasNotPrepared) {
  Scene s(NativeSpec("j", 2));
  s.Put({"a", "a"});
  s.Prepared();
  s.Gang("a").ports.pop_back();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_FALSE(s.job.cluster);
}

TEST(PreparingTest, PreparingTimesOutJustAfterItsLimit) {
  Scene s = Preparing();
  s.Prepared();
  s.Gang("b").phase = GangPhase::kPreparing;
  s.Advance(10s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kPrepareTimeout);
  EXPECT_THAT(s.job.failing->message, HasSubstr(": worker 0 on b (no report)"));
  EXPECT_THAT(s.job.failing->message, Not(HasSubstr("on a")));
  EXPECT_EQ(s.job.state, JobState::kPreparing);
}

TEST(PreparingTest, RefusalFailsTheJobAtOnceWithTheNodesSentence) {
  Scene s = Preparing();
  s.Refused("b", {Reason::kPrepareRefused, "no program train"});
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kPrepareRefused);
  EXPECT_EQ(s.job.cause.message, "node b: no program train");
}

TEST(PreparingTest, ANodeThatForgotItsPartIsNotTheJobsFault) {
  Scene s = Preparing();
  s.Refused("b", {Reason::kNodeLost, "never prepared"});
  s.Settle();
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(s.job.generation, 2u);
  EXPECT_EQ(s.job.failures_without_progress, 0);
}

TEST(PreparingTest, LostNodeWhilePreparing) {
  Scene s = Preparing();
  s.view.nodes["b"].state = NodeState::kLost;
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kNodeLost);
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
}

// A restarted daemon has no reservation and is simply told again.
TEST(PreparingTest, NodeThatCameBackBeforeLaunchIsNoFailure) {
  Scene s = Preparing();
  s.view.nodes["b"].gangs.clear();
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  EXPECT_EQ(s.job.state, JobState::kPreparing);
}

// ---- One output directory for all nodes ----

const std::string kIdentity(32, 'a');

Scene WithOutput() {
  JobSpec spec = NativeSpec("job", 2);
  spec.output_directory = "/out";
  Scene s(spec);
  s.Put({"a", "b"});
  return s;
}

// As daemons do that know of identities.
void Looks(GangStatus* gang, const std::string& identity) {
  gang->preparations = {TaskPreparation{{{"output", {}}}, "", ""}};
  gang->output_identity = identity;
}

TEST(PreparingTest, AllNodesMustSeeTheDirectoryOfTheFirst) {
  Scene s = WithOutput();
  s.Prepared();
  Looks(&s.Gang("b"), "");
  Looks(&s.Gang("a"), kIdentity);
  s.Settle();
  EXPECT_EQ(s.job.output_identity, kIdentity);
  EXPECT_FALSE(s.job.cluster) << "b has not looked";
  Looks(&s.Gang("b"), kIdentity);
  s.Settle();
  EXPECT_TRUE(s.job.cluster);
}

TEST(PreparingTest, OnlyTheNodeOfRankZeroNamesTheDirectory) {
  Scene s = WithOutput();
  s.Gang("b").phase = GangPhase::kPrepared;
  Looks(&s.Gang("b"), kIdentity);
  s.Settle();
  EXPECT_EQ(s.job.output_identity, "");
  Looks(&s.Gang("a"), "no identity");
  s.Settle();
  EXPECT_EQ(s.job.output_identity, "");
}

TEST(PreparingTest, AnOlderDaemonThatCannotLookIsNotWaitedFor) {
  Scene s = WithOutput();
  s.Prepared();
  Looks(&s.Gang("a"), kIdentity);
  s.Settle();
  EXPECT_TRUE(s.job.cluster);
}

TEST(PreparingTest, LookingForTheDirectoryHasTimeOfItsOwn) {
  Scene s = WithOutput();
  s.Prepared();
  Looks(&s.Gang("a"), kIdentity);
  s.Gang("a").preparations[0].parts.push_back(
      {std::string(kFetchPart), std::chrono::minutes(5)});
  Looks(&s.Gang("b"), "");
  s.Gang("b").phase = GangPhase::kPreparing;
  s.Advance(5min + 10s + 90s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kPrepareTimeout);
}

TEST(PreparingTest, ADirectoryThatIsNotSharedEndsTheJobAtOnce) {
  Scene s = WithOutput();
  s.Refused("b", {Reason::kOutputNotShared, "/out is not shared"});
  s.Settle();
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kOutputNotShared);
  EXPECT_EQ(s.job.cause.message,
            "node b: /out is not shared (rank 0 is on node a)");
  EXPECT_NE(s.job.exit_code, 0);
}

// A file system that is not mounted on the node of the next attempt.
TEST(PreparingTest, AJobThatRanHoldsWhereADirectoryIsMissing) {
  Scene s = WithOutput();
  s.job.start_time = s.now.wall;
  s.Refused("b", {Reason::kOutputNotShared, "/out is not shared"});
  s.Settle();
  s.Stopped("a");
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.cause.reason, Reason::kOutputMissing);
  EXPECT_EQ(s.job.failures_without_progress, 0);
}

// ---- Parts of preparing ----

TaskPreparation Doing(const std::string& current, Duration fetched = {},
                      std::string detail = "") {
  TaskPreparation preparation;
  preparation.parts.push_back({std::string(kFetchPart), fetched});
  if (current != kFetchPart) preparation.parts.push_back({current, {}});
  preparation.current = current;
  preparation.detail = std::move(detail);
  return preparation;
}

TEST(PreparingTest, FetchingHasItsOwnLimit) {
  Scene s = Preparing();
  s.Prepared();
  s.Gang("b").phase = GangPhase::kPreparing;
  s.Gang("b").preparations = {Doing("fetch", 10s, "3 of 200 MiB")};
  s.Advance(30min);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  EXPECT_EQ(s.job.tasks[1].preparation.detail, "3 of 200 MiB");
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kPrepareTimeout);
  EXPECT_EQ(s.job.failing->message,
            "not fetched after 30 m 00 s: worker 0 on b (fetch: 3 of 200 MiB)");
}

TEST(PreparingTest, TheTimeOfTheFetchDoesNotCount) {
  Scene s = Preparing();
  s.Prepared();
  s.Gang("b").phase = GangPhase::kPreparing;
  s.Gang("b").preparations = {Doing("preflight", 100s)};
  s.Advance(110s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->message,
            "not prepared after 10.0 s: worker 0 on b (preflight)");
}

// A node fetches for all its tasks together.
TEST(PreparingTest, TheLongestFetchOfANodeCounts) {
  Scene s(ParameterServers());
  s.Put({"a", "a"});
  s.Gang("a").preparations = {Doing("ports", 60s), Doing("ports", 120s)};
  s.Advance(130s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_THAT(s.job.failing->message,
              HasSubstr("chief 0 on a (ports), ps 0 on a (ports)"));
}

TEST(PreparingTest, AFetchThatIsMadeUpDoesNotWaitForEver) {
  Scene s = Preparing();
  s.Gang("b").preparations = {Doing("ports", std::chrono::hours(1'000'000))};
  s.Advance(30min + 11s);
  s.Settle();
  EXPECT_TRUE(s.job.failing);
}

TEST(PreparingTest, StartingTheProgramHasItsWholeTimeAfterALongFetch) {
  Scene s(ParameterServers());
  s.Put({"a", "b"});
  s.Gang("a").preparations = {Doing("fetch")};
  s.Gang("b").preparations = {Doing("fetch")};
  s.Settle();
  s.Advance(20min);
  s.Settle();
  s.Prepared();
  s.Settle();
  ASSERT_TRUE(s.job.cluster);
  s.Advance(120s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  EXPECT_TRUE(s.job.failing);
}

// Each change of the job is a commit.
TEST(PreparingTest, ProgressOfAFetchIsTakenOverOnceASecond) {
  Scene s = Preparing();
  s.Gang("b").preparations = {Doing("fetch", 1s, "1 MiB")};
  s.Settle();
  s.Gang("b").preparations = {Doing("fetch", 1900ms, "2 MiB")};
  s.Settle();
  EXPECT_EQ(s.job.tasks[1].preparation.detail, "1 MiB");
  s.Gang("b").preparations = {Doing("fetch", 2s, "3 MiB")};
  s.Settle();
  EXPECT_EQ(s.job.tasks[1].preparation.detail, "3 MiB");
  s.Gang("b").preparations = {Doing("ports", 2100ms)};
  s.Settle();
  EXPECT_EQ(s.job.tasks[1].preparation.current, "ports");
  s.Gang("b").preparations.clear();
  s.Settle();
  EXPECT_EQ(s.job.tasks[1].preparation.current, "ports");
}

TEST(PreparingTest, EachGenerationPreparesAnew) {
  Scene s = Running();
  s.Gang("b").preparations = {Doing("exec", 2s)};
  s.Exited(1, Code(1));
  s.Settle();
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.generation, 2u);
  EXPECT_EQ(s.job.tasks[1].preparation, TaskPreparation());
  EXPECT_EQ(s.job.attempts[0].tasks[1].preparation.current, "exec");
}

TEST(PreparingTest, ProgramsShareAPortForJax) {
  Scene s(ParameterServers());
  s.job.spec.environment_options.master_in_tf_config = true;
  s.job.spec.environment_options.slurm_environment = true;
  s.job.spec.environment_options.tf_config_job = "{}";
  s.Put({"a", "b"});
  s.Prepared();
  s.Settle();
  ASSERT_TRUE(s.job.cluster);
  EXPECT_THAT(s.job.cluster->services,
              ElementsAre(testing::Pair("jax", "10.0.0.1:7998")));
  EXPECT_TRUE(s.job.cluster->environment_options.master_in_tf_config);
  EXPECT_TRUE(s.job.cluster->environment_options.slurm_environment);
  EXPECT_EQ(s.job.cluster->environment_options.tf_config_job, "{}");
}

TEST(PreparingTest, ADaemonThatKnowsNoServicesPreparesAllTheSame) {
  Scene s(ParameterServers());
  s.Put({"a", "b"});
  s.Prepared();
  s.Gang("a").service_ports.clear();
  s.Settle();
  ASSERT_TRUE(s.job.cluster);
  EXPECT_TRUE(s.job.cluster->services.empty());
}

}  // namespace
}  // namespace lockstep::server
