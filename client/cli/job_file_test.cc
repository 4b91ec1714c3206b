#include "client/cli/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const auto spec = ParseJobFile(text, "job.yaml");
  EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument) << text;
  return Message(spec.status());
}

TEST(JobFileTest, ReadsEveryKindOfField) {
  const auto spec = ParseJobFile(
      "name: fashion\n"
      "kind: native\n"
      "roles:\n"
      "- {type: chief, count: 1, resources: {cpus: 0.5, memoryBytes: 2GiB}}\n"
      "- type: TASK_TYPE_WORKER\n"
      "  count: 3\n"
      "  ranks_per_task: 2\n"
      "argv: [lockstep-train, --epochs, 3]\n"
      "environment: {EPOCHS: 3, DEBUG: true, EMPTY: }\n"
      "outputDirectory:\n"
      "checkpoint: {intervalSteps: 200}\n"
      "restartBudget: 0\n"
      "maxRunningTime: 1h30m\n",
      "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name(), "fashion");
  EXPECT_EQ(spec->kind(), v1::JOB_KIND_NATIVE);
  ASSERT_EQ(spec->roles_size(), 2);
  EXPECT_EQ(spec->roles(0).resources().cpus(), 0.5);
  EXPECT_EQ(spec->roles(0).resources().memory_bytes(), 2ll << 30);
  EXPECT_EQ(spec->roles(1).type(), v1::TASK_TYPE_WORKER);
  EXPECT_EQ(spec->roles(1).ranks_per_task(), 2);
  EXPECT_EQ(spec->argv(2), "3");
  EXPECT_EQ(spec->environment().at("EPOCHS"), "3");
  EXPECT_EQ(spec->environment().at("DEBUG"), "true");
  EXPECT_EQ(spec->environment().at("EMPTY"), "");
  EXPECT_EQ(spec->output_directory(), "");
  EXPECT_EQ(spec->checkpoint().interval_steps(), 200);
  EXPECT_TRUE(spec->has_restart_budget());
  EXPECT_EQ(spec->max_running_time().seconds(), 5400);
}

TEST(JobFileTest, TruthValues) {
  const auto spec = ParseJobFile(
      "slurmEnvironment: true\nrestartWorkerAlone: no\n", "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->slurm_environment());
  EXPECT_FALSE(spec->restart_worker_alone());
  EXPECT_EQ(ErrorOf("slurmEnvironment: 3"),
            "job.yaml:1:19: slurmEnvironment: \"3\" is not true or false");
}

TEST(JobFileTest, EnvIsTheEnvironment) {
  const auto spec = ParseJobFile(
      "env: {A: 1}\nroles:\n- {type: chief, env: {B: 2}}\n", "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->environment().at("A"), "1");
  EXPECT_EQ(spec->roles(0).environment().at("B"), "2");
  EXPECT_EQ(ErrorOf("env: {A: 1}\nenvironment: {A: 2}\n"),
            "job.yaml:2:1: environment is there twice");
  EXPECT_THAT(ErrorOf("checkpoint: {env: {A: 1}}"),
              HasSubstr("has no field env"));
}

TEST(JobFileTest, UnknownFieldWithItsPlaceAndTheNearestName) {
  EXPECT_EQ(ErrorOf("name: a\nretstartBudget: 3\n"),
            "job.yaml:2:1: JobSpec has no field retstartBudget; did you mean "
            "restartBudget?");
  EXPECT_THAT(ErrorOf("roles:\n- {type: chief, gpus: 1}\n"),
              HasSubstr("job.yaml:2:17: roles[0]: RoleSpec has no field gpus"));
}

TEST(JobFileTest, WrongValuesAreNamed) {
  EXPECT_THAT(ErrorOf("kind: nativ"), HasSubstr("did you mean NATIVE?"));
  EXPECT_THAT(ErrorOf("priority: high"),
              HasSubstr("1:11: priority: \"high\" is not a whole number"));
  EXPECT_THAT(ErrorOf("priority: 99999999999"),
              HasSubstr("priority: must be -2147483648..2147483647"));
  EXPECT_THAT(ErrorOf("argv: train"), HasSubstr("argv: must be a list"));
  EXPECT_THAT(ErrorOf("environment: [a]"), HasSubstr("name: value"));
  EXPECT_THAT(ErrorOf("name: {a: b}"), HasSubstr("single value"));
  EXPECT_THAT(ErrorOf("maxRunningTime: soon"), HasSubstr("not a duration"));
  EXPECT_THAT(ErrorOf("maxRunningTime: [1]"), HasSubstr("not a duration"));
  EXPECT_THAT(ErrorOf("name: a\nname: b"), HasSubstr("there twice"));
  EXPECT_THAT(ErrorOf("roles:\n- {resources: {cpus: .inf}}"),
              HasSubstr("cpus"));
}

TEST(JobFileTest, BrokenYamlIsAnErrorWithItsPlace) {
  EXPECT_EQ(ErrorOf("name: [a").substr(0, 9), "job.yaml:");
  EXPECT_THAT(ErrorOf("- a\n- b\n"), HasSubstr("name: value"));
  EXPECT_THAT(ErrorOf("name: a\n---\nname: b\n"), HasSubstr("2 documents"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("has nothing in it"));
}

}  // namespace
}  // namespace lockstep::cli
