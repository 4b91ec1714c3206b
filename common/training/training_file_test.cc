#include "common/training/training_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/training/training_file_fixture.h"
#include "common/training/translate.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

constexpr int64_t kGibibyte = int64_t{1} << 30;

std::string TrainingError(const std::string& text) {
  const auto job = ParseTrainingFile(text, "config.yaml");
  EXPECT_EQ(job.status().code(), StatusCode::kInvalidArgument) << text;
  return Message(job.status());
}

TEST(TrainingFileTest, TwoV100OnOneMachine) {
  const auto file = ParseTrainingFile(kTwoV100, "config.yaml");
  ASSERT_TRUE(file.ok()) << file.status();
  TrainingJob flags;
  flags.job_id = "cats_dogs_20210401_101500";
  flags.training_input.region = "us-central1";
  flags.training_input.master.config.image_uri = "gcr.io/fast-ai/cats:v1";
  flags.training_input.args = {"trainer/task.py", "--bucket", "b"};
  const auto plan = Translate(Overlay(*file, flags), DefaultSite());
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->spec.roles.size(), 1u);
  EXPECT_EQ(plan->spec.roles[0].resources,
            (Resources{8, 30 * kGibibyte, 2, "Tesla V100"}));
  EXPECT_EQ(plan->spec.roles[0].ranks_per_task, 1);
  EXPECT_EQ(plan->spec.roles[0].container->image, "gcr.io/fast-ai/cats:v1");
  EXPECT_THAT(plan->spec.roles[0].argv,
              ElementsAre("trainer/task.py", "--bucket", "b"));
  EXPECT_NEAR(plan->spec.roles[0].machine->ml_units_per_hour.value(), 10.90,
              0.01);
  EXPECT_THAT(plan->notes, ElementsAre("trainingInput.region: us-central1 uses "
                                       "the default pool, all nodes"));
}

TEST(TrainingFileTest, AMasterAndAWorker) {
  const auto file = ParseTrainingFile(kTwoMachines, "config.yaml");
  ASSERT_TRUE(file.ok()) << file.status();
  TrainingJob flags;
  flags.job_id = "multi_worker";
  flags.training_input.region = "europe-west2";
  flags.training_input.job_dir = "gs://bucket/model_dir";
  flags.training_input.args = {"--epochs", "5"};
  const auto plan = Translate(Overlay(*file, flags), DefaultSite());
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->spec.roles.size(), 2u);
  for (const RoleSpec& role : plan->spec.roles) {
    EXPECT_EQ(role.count, 1);
    EXPECT_EQ(role.resources, (Resources{8, 30 * kGibibyte, 1, "Tesla T4"}));
    EXPECT_THAT(role.argv, ElementsAre("--epochs", "5", "--job-dir",
                                       "gs://bucket/model_dir"));
  }
  EXPECT_FALSE(plan->spec.environment_options.master_in_tf_config);
}

TEST(TrainingFileTest, EveryFieldInJson) {
  const auto job = ParseTrainingFile(R"({
    "jobId": "a", "labels": {"team": "vision"}, "state": "QUEUED",
    "trainingInput": {
      "scaleTier": "CUSTOM", "region": "r", "masterType": "m",
      "masterConfig": {
        "imageUri": "i", "containerCommand": ["sh"], "containerArgs": ["-c"],
        "tpuTfVersion": "2.1",
        "diskConfig": {"bootDiskSizeGb": 200, "bootDiskType": "pd-standard"}},
      "workerType": "w", "workerCount": "3",
      "parameterServerType": "p", "parameterServerCount": 2,
      "parameterServerConfig": {
        "acceleratorConfig": {"count": "1", "type": "NVIDIA_TESLA_T4"}},
      "evaluatorType": "e", "evaluatorCount": 1, "evaluatorConfig": {},
      "packageUris": ["u"], "pythonModule": "a.b", "pythonVersion": "3.7",
      "runtimeVersion": "2.1", "args": ["--epochs", 5, "\u00fc\/"],
      "jobDir": "gs://d",
      "useChiefInTfConfig": false,
      "scheduling": {"maxRunningTime": "7200s", "maxWaitTime": "3600s",
        "priority": 5, "resilientToWorkerRestart": true,
        "strategy": "ON_DEMAND"},
      "serviceAccount": "s", "network": "n", "enableWebAccess": true,
      "encryptionConfig": {"kmsKeyName": "k"},
      "hyperparameters": {"goal": "MAXIMIZE", "params": []}},
    "lockstep": {"env": {"A": 1, "B": true}, "ranksPerTask": 2,
      "restart": {"budget": 5}, "runtime": "tf", "images": {"x": "y"}}})",
                                     "config.json");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->job_id, "a");
  EXPECT_THAT(job->labels, ElementsAre(Pair("team", "vision")));
  EXPECT_THAT(job->ignored, ElementsAre("state"));
  const TrainingInput& in = job->training_input;
  EXPECT_EQ(in.scale_tier, "CUSTOM");
  EXPECT_EQ(in.region, "r");
  EXPECT_EQ(
      in.master,
      (ReplicaInput{
          "m",
          {},
          {{}, DiskConfig{200, "pd-standard"}, "i", {"sh"}, {"-c"}, "2.1"}}));
  EXPECT_EQ(in.worker, (ReplicaInput{"w", 3, {}}));
  EXPECT_EQ(in.parameter_server.count, 2);
  EXPECT_EQ(in.parameter_server.config.accelerator_config,
            (AcceleratorConfig{1, "NVIDIA_TESLA_T4"}));
  EXPECT_EQ(in.evaluator, (ReplicaInput{"e", 1, {}}));
  EXPECT_THAT(in.package_uris, ElementsAre("u"));
  EXPECT_EQ(in.python_module, "a.b");
  EXPECT_EQ(in.python_version, "3.7");
  EXPECT_EQ(in.runtime_version, "2.1");
  EXPECT_THAT(in.args, ElementsAre("--epochs", "5", "ü/"));
  EXPECT_EQ(in.job_dir, "gs://d");
  EXPECT_EQ(in.use_chief_in_tf_config, false);
  EXPECT_EQ(in.scheduling, (SchedulingInput{std::chrono::seconds(7200),
                                            std::chrono::seconds(3600), 5, true,
                                            "ON_DEMAND"}));
  EXPECT_EQ(in.service_account, "s");
  EXPECT_EQ(in.network, "n");
  EXPECT_EQ(in.enable_web_access, true);
  EXPECT_EQ(in.kms_key_name, "k");
  EXPECT_TRUE(in.has_hyperparameters);
  EXPECT_FALSE(in.has_nas_job_spec);
  EXPECT_THAT(job->lockstep.env,
              ElementsAre(Pair("A", "1"), Pair("B", "true")));
  EXPECT_EQ(job->lockstep.ranks_per_task, 2);
  EXPECT_EQ(job->lockstep.restart_budget, 5);
  EXPECT_EQ(job->lockstep.runtime, "tf");
  EXPECT_THAT(job->lockstep.images, ElementsAre(Pair("x", "y")));
}

TEST(TrainingFileTest, WhatIsWrongIsNamedWithItsPlace) {
  EXPECT_EQ(
      TrainingError("trainingInput:\n  scaleTier: CUSTOM\n  masterTyp: x\n"),
      "config.yaml:3:3: trainingInput: TrainingInput has no field "
      "\"masterTyp\"; did you mean masterType?");
  EXPECT_THAT(
      TrainingError("trainingInput:\n  masterConfig:\n    imageURI: x\n"),
      HasSubstr("config.yaml:3:5: trainingInput.masterConfig: "
                "ReplicaConfig has no field \"imageURI\"; did you mean "
                "imageUri?"));
  EXPECT_THAT(TrainingError("scaleTier: CUSTOM\n"),
              HasSubstr("1:1: a job has no field \"scaleTier\"; it is a field "
                        "of trainingInput: indent it under that"));
  EXPECT_THAT(TrainingError("trainingInput: {labels: {a: b}}"),
              HasSubstr("it belongs next to trainingInput"));
  EXPECT_THAT(TrainingError("trainingInput: {workerCount: two}"),
              HasSubstr("trainingInput.workerCount: \"two\" is not a whole"));
  EXPECT_THAT(TrainingError("trainingInput: {workerCount: -1}"),
              HasSubstr("must be 0..2147483647, not -1"));
  EXPECT_THAT(TrainingError("trainingInput: {masterCount: 1}"),
              HasSubstr("no field \"masterCount\""));
  EXPECT_THAT(
      TrainingError("trainingInput:\n  scheduling: {maxRunningTime: 2h}\n"),
      HasSubstr("2:32: trainingInput.scheduling.maxRunningTime: \"2h\" "
                "is not a number of seconds such as 7200s"));
  EXPECT_THAT(
      TrainingError("trainingInput: {scheduling: {strategy: ON_DEMAN}}"),
      HasSubstr("did you mean ON_DEMAND?"));
  EXPECT_THAT(TrainingError("trainingInput: {args: --epochs}"),
              HasSubstr("trainingInput.args: must be a list"));
  EXPECT_THAT(TrainingError("trainingInput: {useChiefInTfConfig: perhaps}"),
              HasSubstr("must be true or false"));
  EXPECT_THAT(TrainingError("trainingInput: [a]"),
              HasSubstr("\"name: value\""));
  EXPECT_THAT(TrainingError("predictionInput: {}"),
              HasSubstr("predictionInput: lockstep does not predict"));
  EXPECT_THAT(
      TrainingError("lockstep: {ranksPerTask: many}"),
      HasSubstr("lockstep.ranksPerTask: must be a number of processes"));
  EXPECT_THAT(TrainingError("lockstep: {ranks: 2}"),
              HasSubstr("no field \"ranks\""));
  EXPECT_THAT(TrainingError("trainingInput: {a"), HasSubstr("config.yaml:1:"));
  EXPECT_THAT(TrainingError(""), HasSubstr("nothing in it"));
}

// Whatever is typed: a job, or an error that names the file.
TEST(TrainingFileTest, NoByteOfAFileBreaksTheReader) {
  const std::string whole = kTwoMachines;
  const Site site = DefaultSite();
  int translated = 0;
  const auto read = [&](const std::string& text) {
    auto job = ParseTrainingFile(text, "config.yaml");
    if (job.ok()) {
      job->job_id = "a";
      const auto plan = Translate(*job, site);
      EXPECT_TRUE(plan.ok() ||
                  plan.status().code() == StatusCode::kInvalidArgument)
          << plan.status();
      translated += plan.ok();
    } else {
      EXPECT_THAT(Message(job.status()), StartsWith("config.yaml:")) << text;
    }
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    read(whole.substr(0, i));
    std::string changed = whole;
    constexpr std::string_view kBytes("\0\t\n:{*-\xff", 8);
    changed[i] = kBytes[i % kBytes.size()];
    read(changed);
  }
  EXPECT_GT(translated, 0);
}

}  // namespace
}  // namespace lockstep
