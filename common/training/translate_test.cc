#include "common/training/translate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

// A container on machines of its own: chief, 2 workers, ps, evaluator.
TrainingJob Container() {
  TrainingJob job;
  job.job_id = "a";
  TrainingInput& in = job.training_input;
  in.scale_tier = "CUSTOM";
  in.master = {"n1-standard-8", {}, {}};
  in.master.config.image_uri = "gcr.io/p/trainer:1";
  in.master.config.accelerator_config =
      AcceleratorConfig{2, "NVIDIA_TESLA_V100"};
  in.worker = {"n1-standard-4", 2, {}};
  in.worker.config.accelerator_config = AcceleratorConfig{1, "NVIDIA_TESLA_T4"};
  in.parameter_server = {"n1-highmem-2", 1, {}};
  in.evaluator = {"n1-standard-4", 1, {}};
  in.args = {"trainer/task.py", "--epochs", "5"};
  return job;
}

TrainingJob Package() {
  TrainingJob job;
  job.job_id = "a";
  TrainingInput& in = job.training_input;
  in.scale_tier = "BASIC";
  in.package_uris = {"sha256:1"};
  in.python_module = "trainer.task";
  in.runtime_version = "2.11";
  in.args = {"--epochs", "5"};
  return job;
}

StatusOr<TrainingPlan> Do(const TrainingJob& job) {
  return Translate(job, DefaultMachineTable());
}

TEST(TranslateTest, EveryRoleHasItsMachine) {
  const auto plan = Do(Container());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const JobSpec& spec = plan->spec;
  EXPECT_EQ(spec.name, "a");
  EXPECT_EQ(spec.kind, JobKind::kProgram);
  ASSERT_EQ(spec.roles.size(), 4u);
  const std::vector<std::string> argv = {"trainer/task.py", "--epochs", "5"};
  const RoleSpec want[] = {
      {TaskType::kChief, 1, 1, {8, 30 * kGiB, 2, "Tesla V100"}, argv, {}},
      {TaskType::kWorker, 2, 1, {4, 15 * kGiB, 1, "Tesla T4"}, argv, {}},
      {TaskType::kPs, 1, 1, {2, 13 * kGiB, 0, ""}, argv, {}},
      {TaskType::kEvaluator, 1, 1, {4, 15 * kGiB, 0, ""}, argv, {}},
  };
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(spec.roles[i], want[i]) << Name(want[i].type);
    EXPECT_EQ(plan->roles[i].type, want[i].type);
    EXPECT_EQ(plan->roles[i].count, want[i].count);
    EXPECT_EQ(plan->roles[i].image, "gcr.io/p/trainer:1");
    EXPECT_THAT(plan->roles[i].command, IsEmpty());
  }
  EXPECT_EQ(spec.max_running_time, std::chrono::hours(168));
  EXPECT_EQ(spec.max_wait_time, std::nullopt);
  EXPECT_EQ(spec.restart_budget, 3);
  EXPECT_TRUE(plan->use_chief);
  EXPECT_TRUE(plan->restart_lost_worker_alone);
  EXPECT_THAT(plan->notes, IsEmpty());
  EXPECT_NEAR(plan->ml_units_per_hour.value(),
              10.8979 + 2 * 1.1021 + 0.2416 + 0.3878, 1e-4);
}

TEST(TranslateTest, APackageIsRunByItsModule) {
  TrainingJob job = Package();
  job.training_input.job_dir = "gs://bucket/model";
  const auto plan = Do(job);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->spec.roles.size(), 1u);
  EXPECT_THAT(plan->spec.roles[0].argv,
              ElementsAre("python3", "-m", "trainer.task", "--epochs", "5",
                          "--job-dir", "gs://bucket/model"));
  EXPECT_EQ(plan->spec.output_directory, "");  // The program's own business.
  EXPECT_EQ(plan->job_dir, "gs://bucket/model");
  EXPECT_THAT(plan->packages, ElementsAre("sha256:1"));
  EXPECT_EQ(plan->runtime_version, "2.11");
  EXPECT_TRUE(plan->use_chief);

  job.training_input.job_dir = "/data/model";
  EXPECT_EQ(Do(job)->spec.output_directory, "/data/model");
  job.training_input.runtime_version = "1.15";
  EXPECT_FALSE(Do(job)->use_chief);
  job.training_input.runtime_version = "";
  job.lockstep.runtime = "tf";
  EXPECT_EQ(Do(job)->runtime, "tf");
}

TEST(TranslateTest, ScaleTiers) {
  struct Case {
    const char* tier;
    std::vector<int32_t> counts;
    int32_t gpus;
    double units;
  };
  const Case cases[] = {{"BASIC", {1}, 0, 0.3878},
                        {"STANDARD_1", {1, 4, 3}, 0, 4.0571},
                        {"PREMIUM_1", {1, 19, 11}, 0, 33.7829},
                        {"BASIC_GPU", {1}, 1, 1.6939}};
  for (const Case& c : cases) {
    TrainingJob job = Package();
    job.training_input.scale_tier = c.tier;
    const auto plan = Do(job);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<int32_t> counts;
    for (const RoleSpec& role : plan->spec.roles) counts.push_back(role.count);
    EXPECT_EQ(counts, c.counts) << c.tier;
    EXPECT_EQ(plan->spec.roles[0].resources.gpus, c.gpus) << c.tier;
    EXPECT_NEAR(plan->ml_units_per_hour.value(), c.units, 1e-3) << c.tier;
  }
}

// What runs in an image: the job's fields, then what the plan says.
TEST(TranslateTest, CommandAndArgumentsOfAnImage) {
  struct Case {
    std::vector<std::string> command, container_args, args;
    std::string job_dir;
    std::vector<std::string> want_command, want_args;
  };
  const Case cases[] = {
      {{}, {}, {}, "", {}, {}},
      {{}, {}, {"x"}, "", {}, {"x"}},
      {{}, {"y"}, {}, "", {}, {"y"}},
      {{"sh", "-c"}, {}, {}, "", {"sh", "-c"}, {}},
      {{"sh"}, {"y"}, {}, "", {"sh"}, {"y"}},
      {{}, {}, {"x"}, "/d", {}, {"x", "--job-dir", "/d"}},
      {{"sh"}, {"y"}, {}, "/d", {"sh"}, {"y", "--job-dir", "/d"}},
  };
  for (const Case& c : cases) {
    TrainingJob job = Container();
    TrainingInput& in = job.training_input;
    in.worker = in.parameter_server = in.evaluator = {};
    in.args = c.args;
    in.job_dir = c.job_dir;
    in.master.config.container_command = c.command;
    in.master.config.container_args = c.container_args;
    const auto plan = Do(job);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->roles[0].command, c.want_command);
    EXPECT_EQ(plan->roles[0].args, c.want_args);
  }
}

TEST(TranslateTest, AJobDirAloneReplacesTheImagesCmdAndSaysSo) {
  TrainingJob job = Container();
  job.training_input.args = {};
  job.training_input.job_dir = "/d";
  EXPECT_THAT(Do(job)->notes, Contains(HasSubstr("replaces the CMD")));
}

TEST(TranslateTest, ImagesOfRolesAndTheirPrefixes) {
  TrainingJob job = Container();
  job.training_input.worker.config.image_uri = "gcr.io/q/other:2";
  job.lockstep.images = {{"gcr.io", "a"}, {"gcr.io/p", "registry.local/x"}};
  const auto plan = Do(job);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->roles[0].image, "registry.local/x/trainer:1");
  EXPECT_EQ(plan->roles[1].image, "a/q/other:2");
  EXPECT_EQ(plan->roles[2].image, "registry.local/x/trainer:1");
  EXPECT_THAT(plan->notes,
              Contains("trainingInput.workerConfig.imageUri: gcr.io/q/other:2 "
                       "is a/q/other:2 here"));
}

TEST(TranslateTest, RanksSchedulingAndChief) {
  TrainingJob job = Container();
  job.lockstep.ranks_per_gpu = true;
  job.lockstep.restart_budget = 0;
  job.lockstep.env = {{"A", "1"}};
  SchedulingInput& scheduling = job.training_input.scheduling;
  scheduling.max_running_time = std::chrono::seconds(7200);
  scheduling.max_wait_time = std::chrono::seconds(3600);
  scheduling.priority = 1000;
  scheduling.resilient_to_worker_restart = true;
  job.training_input.use_chief_in_tf_config = false;
  const auto plan = Do(job);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<int32_t> ranks;
  for (const RoleSpec& role : plan->spec.roles) {
    ranks.push_back(role.ranks_per_task);
  }
  EXPECT_THAT(ranks, ElementsAre(2, 1, 1, 1));
  EXPECT_EQ(plan->spec.restart_budget, 0);
  EXPECT_EQ(plan->spec.environment.at("A"), "1");
  EXPECT_EQ(plan->spec.max_running_time, std::chrono::seconds(7200));
  EXPECT_EQ(plan->spec.max_wait_time, std::chrono::seconds(3600));
  EXPECT_EQ(plan->spec.priority, 1000);
  EXPECT_FALSE(plan->restart_lost_worker_alone);
  EXPECT_FALSE(plan->use_chief);
  EXPECT_THAT(plan->notes, Contains(HasSubstr("TensorFlow 2 refuses")));

  job.lockstep.ranks_per_gpu = false;
  job.lockstep.ranks_per_task = 4;
  EXPECT_EQ(Do(job)->spec.roles[1].ranks_per_task, 4);
  EXPECT_EQ(Do(job)->spec.roles[2].ranks_per_task, 1);  // Of a ps, always.
}

using Change = std::function<void(TrainingJob*)>;
struct Case {
  Change change;
  std::string want;
};

TEST(TranslateTest, WhatHasNoEffectIsNoted) {
  const std::string in = "trainingInput.";
  const Case cases[] = {
      {[](auto* j) { j->training_input.region = "us-central1"; },
       in + "region: us-central1 is taken by the default pool"},
      {[](auto* j) { j->training_input.service_account = "x"; },
       in + "serviceAccount: is not used"},
      {[](auto* j) { j->training_input.network = "x"; },
       in + "network: is not used"},
      {[](auto* j) { j->training_input.enable_web_access = true; },
       in + "enableWebAccess: is not used"},
      {[](auto* j) { j->training_input.python_version = "3.7"; },
       in + "pythonVersion: is not used"},
      {[](auto* j) { j->training_input.scheduling.strategy = "LOW_COST"; },
       in + "scheduling.strategy: LOW_COST is taken as ON_DEMAND"},
      {[](auto* j) {
         j->training_input.worker.config.disk_config = {100, "pd-ssd"};
       },
       in + "workerConfig.diskConfig: is not used"},
      {[](auto* j) {
         j->training_input.evaluator = {};
         j->training_input.evaluator.config.image_uri = "x";
       },
       in + "evaluatorConfig: is not used: the job has no evaluator"},
      {[](auto* j) { j->ignored = {"state"}; }, "state: is set by the service"},
  };
  for (const Case& c : cases) {
    TrainingJob job = Container();
    c.change(&job);
    const auto plan = Do(job);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_THAT(plan->notes, ElementsAre(HasSubstr(c.want)));
  }
}

TEST(TranslateTest, ATierThatIsNotGivenIsBasic) {
  TrainingJob job = Package();
  job.training_input.scale_tier = "";
  const auto plan = Do(job);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->roles[0].machine.type, "n1-standard-4");
  EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("is not given: BASIC")));
}

void ExpectRefused(const TrainingJob& base, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    TrainingJob job = base;
    c.change(&job);
    const auto plan = Do(job);
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument) << c.want;
    EXPECT_THAT(Message(plan.status()), HasSubstr(c.want));
  }
}

TEST(TranslateTest, MachinesThatAreRefused) {
  const std::string in = "trainingInput.";
  const auto gpus = [](int64_t count, const char* type) -> Change {
    return [=](TrainingJob* j) {
      j->training_input.master.config.accelerator_config = {count, type};
    };
  };
  ExpectRefused(
      Container(),
      {
          {[](auto* j) { j->training_input.master.type = ""; },
           in + "masterType: is missing: scaleTier CUSTOM needs"},
          {[](auto* j) { j->training_input.worker.count = {}; },
           in + "workerCount: is missing: " + in + "workerType and " + in +
               "workerCount go together"},
          {[](auto* j) { j->training_input.worker.type = ""; },
           in + "workerType: is missing"},
          {[](auto* j) { j->training_input.parameter_server.count = {}; },
           in + "parameterServerCount: is missing"},
          {[](auto* j) { j->training_input.evaluator.type = ""; },
           in + "evaluatorType: is missing"},
          {[](auto* j) { j->training_input.evaluator.count = 2; },
           in + "evaluatorCount: must be 1, not 2"},
          {[](auto* j) { j->training_input.worker.count = -1; },
           in + "workerCount: must be 0 or more, not -1"},
          {[](auto* j) { j->training_input.worker.count = 5449; },
           "the job has 5452 tasks; TF_CONFIG has room"},
          {[](auto* j) { j->training_input.worker.count = int64_t{1} << 40; },
           in + "workerCount: must be at most"},
          {[](auto* j) { j->training_input.worker.type = "n2-standard-4"; },
           in + "workerType: there is no machine type \"n2-standard-4\"; did "
                "you mean n1-standard-4?"},
          {gpus(3, "NVIDIA_TESLA_V100"),
           in + "masterConfig.acceleratorConfig.count: n1-standard-8 takes 1, "
                "2, 4 or 8 of NVIDIA_TESLA_V100, not 3"},
          {gpus(0, "NVIDIA_TESLA_V100"),
           in + "masterConfig.acceleratorConfig.count: must be 1 or more"},
          {gpus(1, ""), in + "masterConfig.acceleratorConfig.type: is missing"},
          {gpus(8, "TPU_V2"), "there are no TPUs"},
          {[](auto* j) { j->training_input.scale_tier = "BASIC"; },
           in + "masterType: is for scaleTier CUSTOM only, and the tier is "
                "BASIC; set scaleTier: CUSTOM"},
          {[](auto* j) { j->training_input.scale_tier = ""; },
           in + "masterType: is for scaleTier CUSTOM only"},
          {[](auto* j) { j->training_input.scale_tier = "BASIC_TPU"; },
           in + "scaleTier: BASIC_TPU: there are no TPUs"},
          {[](auto* j) { j->training_input.scale_tier = "CUSTON"; },
           in + "scaleTier: there is no CUSTON; did you mean CUSTOM?"},
      });
  ExpectRefused(
      Package(),
      {
          {[](auto* j) {
             j->training_input.worker = {"", 2, {}};
           },
           in + "workerCount: is for scaleTier CUSTOM only"},
          {[&](auto* j) { gpus(1, "NVIDIA_TESLA_T4")(j); },
           in + "masterConfig.acceleratorConfig: is for scaleTier CUSTOM"},
      });
}

TEST(TranslateTest, ProgramsThatAreRefused) {
  const std::string in = "trainingInput.";
  ExpectRefused(
      Container(),
      {
          {[](auto* j) { j->training_input.runtime_version = "2.1"; },
           in + "runtimeVersion: goes with a Python package, and masterConfig."
                "imageUri names a container; leave one of them out"},
          {[](auto* j) { j->training_input.package_uris = {"a"}; },
           in + "packageUris: goes with"},
          {[](auto* j) { j->training_input.python_module = "a.b"; },
           "give the module as arguments: -- -m a.b"},
          {[](auto* j) { j->lockstep.runtime = "tf"; }, "lockstep.runtime: "},
          {[](auto* j) {
             j->training_input.worker.config.container_args = {"a"};
           },
           in + "workerConfig.containerArgs: excludes trainingInput.args"},
          {[](auto* j) {
             j->training_input.master.config.container_command = {"a"};
           },
           in + "masterConfig.containerCommand: excludes"},
          {[](auto* j) {
             j->training_input.args = {};
             j->training_input.master.config.container_command = {""};
           },
           "names an empty program"},
          {[](auto* j) {
             j->training_input.worker.config.tpu_tf_version = "2.1";
           },
           in + "workerConfig.tpuTfVersion: there are no TPUs"},
          {[](auto* j) {
             j->training_input.master.config.disk_config = {{}, "ssd"};
           },
           in + "masterConfig.diskConfig.bootDiskType: there is no ssd"},
          {[](auto* j) {
             j->training_input.args[1] = std::string(200'000, 'x');
           },
           in + "args[1]: has 200000 bytes; Linux takes at most 131071"},
          {[](auto* j) { j->training_input.args[0] = std::string("a\0b", 3); },
           in + "args[0]: holds a NUL"},
      });
  ExpectRefused(
      Package(),
      {
          {[](auto* j) { j->training_input.runtime_version = ""; },
           in + "runtimeVersion: is missing"},
          {[](auto* j) { j->training_input.package_uris = {}; },
           in + "packageUris: is empty"},
          {[](auto* j) { j->training_input.package_uris.resize(101); },
           in + "packageUris: has 101 packages; at most 100"},
          {[](auto* j) { j->training_input.python_module = ""; },
           in + "pythonModule: is missing"},
          {[](auto* j) { j->training_input.python_module = "trainer/task.py"; },
           in + "pythonModule: \"trainer/task.py\" is no module"},
          {[](auto* j) { j->training_input.python_module = "-c"; },
           "is no module"},
          {[](auto* j) { j->training_input.python_module = "a..b"; },
           "is no module"},
          {[](auto* j) {
             TrainingInput& input = j->training_input;
             input.python_module = input.runtime_version = "";
             input.package_uris = {};
           },
           "says not what to run: give masterConfig.imageUri"},
          {[](auto* j) {
             j->training_input.scale_tier = "STANDARD_1";
             j->training_input.worker.config.image_uri = "a";
           },
           in + "workerConfig.imageUri: is given, but not masterConfig"},
          {[](auto* j) {
             j->training_input.master.config.container_command = {"a"};
           },
           in + "masterConfig.containerCommand: needs a container"},
      });
}

TEST(TranslateTest, TheRestThatIsRefused) {
  const std::string in = "trainingInput.";
  ExpectRefused(
      Container(),
      {
          {[](auto* j) { j->job_id = ""; }, "jobId: \"\" is no name of a job"},
          {[](auto* j) { j->job_id = "1a"; }, "jobId: \"1a\" is no name"},
          {[](auto* j) { j->job_id = "a b"; }, "jobId: \"a b\" is no name"},
          {[](auto* j) { j->training_input.has_hyperparameters = true; },
           in + "hyperparameters: lockstep does not tune; submit a job for "
                "each set of values"},
          {[](auto* j) { j->training_input.has_nas_job_spec = true; },
           in + "nasJobSpec: lockstep does not search"},
          {[](auto* j) { j->training_input.kms_key_name = "k"; },
           in + "encryptionConfig: lockstep has no keys"},
          {[](auto* j) { j->training_input.job_dir = "model"; },
           in + "jobDir: \"model\" is neither absolute nor has a scheme"},
          {[](auto* j) {
             j->training_input.scheduling.max_wait_time =
                 std::chrono::seconds(1799);
           },
           in + "scheduling.maxWaitTime: must be at least 1800s, not 1799s"},
          {[](auto* j) {
             j->training_input.scheduling.max_running_time = Duration{};
           },
           in + "scheduling.maxRunningTime: must be more than 0s"},
          {[](auto* j) { j->training_input.scheduling.priority = 1001; },
           in + "scheduling.priority: must be 0..1000, not 1001"},
          {[](auto* j) { j->training_input.scheduling.strategy = "CHEAP"; },
           in + "scheduling.strategy: there is no CHEAP"},
          {[](auto* j) {
             j->lockstep.env = {{"1A", ""}};
           },
           "lockstep.env: \"1A\" is no name of a variable"},
          {[](auto* j) {
             j->lockstep.env = {{"A", std::string(200'000, 'x')}};
           },
           "lockstep.env.A"},
          {[](auto* j) { j->lockstep.restart_budget = -1; },
           "lockstep.restart.budget: must be 0..1000000, not -1"},
          {[](auto* j) { j->lockstep.ranks_per_task = 0; },
           "lockstep.ranksPerTask: must be 1..65536 or gpu, not 0"},
      });
}

TEST(TranslateTest, TextsThatFitNoLineAreRefusedAndNotRepeated) {
  const std::string in = "trainingInput.";
  const std::string longer(2000, 'x');
  ExpectRefused(
      Container(),
      {
          {[&](auto* j) { j->job_id = longer; }, "jobId: has 2000 bytes"},
          {[&](auto* j) { j->training_input.worker.type = longer; },
           in + "workerType: has 2000 bytes; at most 1024 are taken"},
          {[](auto* j) { j->training_input.scale_tier = "a\nb"; },
           in + "scaleTier: holds a control character"},
          {[](auto* j) { j->training_input.master.config.image_uri += "\n"; },
           in + "masterConfig.imageUri: holds a control character"},
          {[](auto* j) {
             j->training_input.worker.config.accelerator_config->type = "\x1b";
           },
           in + "workerConfig.acceleratorConfig.type: holds a control"},
          {[](auto* j) {
             j->training_input.evaluator.config.disk_config = {{}, "\t"};
           },
           in + "evaluatorConfig.diskConfig.bootDiskType: holds a control"},
          {[](auto* j) {
             j->training_input.job_dir = "/" + std::string(4095, 'x');
           },
           in + "jobDir: has 4096 bytes; at most 4095"},
          {[](auto* j) {
             j->training_input.package_uris = {"a", "\n"};
           },
           in + "packageUris[1]: holds"},
          {[](auto* j) {
             j->lockstep.images = {{"", "a"}};
           },
           "lockstep.images: \"\" is the beginning of every image"},
      });
}

}  // namespace
}  // namespace lockstep
