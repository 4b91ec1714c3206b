#include "common/training/translate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/training/translate_fixture.h"

namespace lockstep::translate_tests {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(TranslateTest, EveryRoleHasItsMachine) {
  const auto plan = Do(Container());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const JobSpec& spec = plan->spec;
  EXPECT_EQ(spec.name, "a");
  EXPECT_EQ(spec.kind, JobKind::kProgram);
  ASSERT_EQ(spec.roles.size(), 4u);
  const std::vector<std::string> argv = {"trainer/task.py", "--epochs", "5"};
  const lockstep::Container image{"gcr.io/p/trainer:1", {}};
  const auto role = [&](TaskType type, int32_t count, const char* machine,
                        const Resources& resources, double units) {
    RoleSpec out;
    out.type = type;
    out.count = count;
    out.resources = resources;
    out.argv = argv;
    out.container = image;
    out.machine = MachineType{machine, resources, units};
    return out;
  };
  const RoleSpec want[] = {
      role(TaskType::kChief, 1, "n1-standard-8",
           {8, 30 * kGiB, 2, "Tesla V100"}, 0.7755 + 2 * 5.0612),
      role(TaskType::kWorker, 2, "n1-standard-4", {4, 15 * kGiB, 1, "Tesla T4"},
           0.3878 + 0.7143),
      role(TaskType::kPs, 1, "n1-highmem-2", {2, 13 * kGiB, 0, ""}, 0.2416),
      role(TaskType::kEvaluator, 1, "n1-standard-4", {4, 15 * kGiB, 0, ""},
           0.3878),
  };
  for (size_t i = 0; i < 4; ++i) {
    RoleSpec got = spec.roles[i];
    EXPECT_NEAR(got.machine->ml_units_per_hour.value(),
                want[i].machine->ml_units_per_hour.value(), 1e-9);
    got.machine->ml_units_per_hour = want[i].machine->ml_units_per_hour;
    EXPECT_EQ(got, want[i]) << Name(want[i].type);
  }
  EXPECT_EQ(spec.max_running_time, std::chrono::hours(168));
  EXPECT_EQ(spec.max_wait_time, std::nullopt);
  EXPECT_EQ(spec.restart_budget, 3);
  EXPECT_FALSE(spec.environment_options.master_in_tf_config);
  EXPECT_TRUE(spec.restart_worker_alone);
  EXPECT_THAT(plan->notes, IsEmpty());
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
  EXPECT_EQ(plan->spec.job_dir, "gs://bucket/model");
  EXPECT_FALSE(plan->spec.environment_options.master_in_tf_config);
  EXPECT_EQ(plan->spec.roles[0].container, std::nullopt);

  job.training_input.job_dir = "/data/model";
  EXPECT_EQ(Do(job)->spec.output_directory, "/data/model");
  job.training_input.runtime_version = "1.15";
  EXPECT_TRUE(Do(job)->spec.environment_options.master_in_tf_config);
}

TEST(TranslateTest, TheRuntimeOfAPackage) {
  Site site = DefaultSite();
  site.runtimes = {{"tf2", {"/opt/tf2/bin/python3", true, {"2.*"}}},
                   {"tf2.8", {"/opt/tf28/bin/python3", false, {"2.8"}}}};
  TrainingJob job = Package();
  auto plan = Translate(job, site);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->spec.runtime, (Runtime{"tf2", "/opt/tf2/bin/python3", true}));
  EXPECT_EQ(plan->spec.roles[0].argv[0], "/opt/tf2/bin/python3");
  EXPECT_THAT(plan->notes, IsEmpty());

  job.training_input.runtime_version = "2.8";
  EXPECT_EQ(Translate(job, site)->spec.runtime.name, "tf2.8");

  // Nobody's: the default, which is said, and recorded.
  job.training_input.runtime_version = "3.0";
  plan = Translate(job, site);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->spec.runtime, (Runtime{"", "python3", false}));
  EXPECT_THAT(
      plan->events,
      ElementsAre(HasSubstr("runtimeVersion: 3.0 is not a runtime of this "
                            "site; the default interpreter is used: python3")));
  EXPECT_EQ(plan->events, plan->notes);
  site.default_runtime = "tf2";
  EXPECT_THAT(Translate(job, site)->notes,
              ElementsAre(HasSubstr("tf2 (/opt/tf2/bin/python3)")));
  site.strict_versions = true;
  EXPECT_THAT(Message(Translate(job, site).status()),
              HasSubstr("runtimeVersion: this site has no interpreter for 3.0; "
                        "name one by lockstep.runtime: tf2, tf2.8"));

  // By its name.
  job.lockstep.runtime = "tf2.8";
  EXPECT_EQ(Translate(job, site)->spec.runtime.name, "tf2.8");
  job.lockstep.runtime = "tf2.9";
  EXPECT_THAT(Message(Translate(job, site).status()),
              HasSubstr("lockstep.runtime: there is no tf2.9; did you mean "
                        "tf2.8?"));
  job.lockstep.runtime = "torch";
  EXPECT_THAT(Message(Translate(job, site).status()),
              HasSubstr("there is no torch; this site has tf2, tf2.8; add "
                        "others to the coordinator's machines_file"));
  EXPECT_THAT(Message(Translate(job, DefaultSite()).status()),
              HasSubstr("there is no torch; this site has none: add it to the "
                        "coordinator's machines_file, or leave it out"));
}

TEST(TranslateTest, WhatTheSiteSaysOfImagesAndRegions) {
  Site site = DefaultSite();
  site.images = {{"gcr.io/", "registry.local/"}};
  site.regions = {{"us-central1", {}}, {"mars", {"is far away", "a100"}}};
  TrainingJob job = Container();
  job.training_input.region = "us-central1";
  auto plan = Translate(job, site);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->spec.roles[0].container->image, "registry.local/p/trainer:1");
  EXPECT_THAT(plan->notes, Not(Contains(HasSubstr("region"))));
  EXPECT_EQ(plan->spec.pool, "");
  job.training_input.region = "mars";
  EXPECT_THAT(Translate(job, site)->notes,
              Contains("trainingInput.region: mars is far away"));
  EXPECT_EQ(Translate(job, site)->spec.pool, "a100");
  job.lockstep.images = {{"gcr.io/p/", "mine/"}};
  EXPECT_EQ(Translate(job, site)->spec.roles[0].container->image,
            "mine/trainer:1");
}

TEST(TranslateTest, ARegionThatNobodyKnowsIsTheDefaultPools) {
  Site site = DefaultSite();
  site.regions = {{"known", {}}, {"mars", {"", "a100"}}};
  TrainingJob job = Container();
  job.training_input.region = "pluto";
  auto plan = Translate(job, site);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->spec.pool, "");
  const std::string note =
      "trainingInput.region: pluto uses the default pool, ";
  EXPECT_THAT(plan->notes, Contains(note + "all nodes"));
  EXPECT_THAT(plan->events, Contains(note + "all nodes"));
  site.default_pool = "general";
  plan = Translate(job, site);
  EXPECT_EQ(plan->spec.pool, "general");
  EXPECT_THAT(plan->events, Contains(note + "general"));
  job.training_input.region = "known";
  plan = Translate(job, site);
  EXPECT_EQ(plan->spec.pool, "general");
  EXPECT_THAT(plan->notes, Not(Contains(HasSubstr("region"))));
  job.training_input.region = "mars";
  EXPECT_EQ(Translate(job, site)->spec.pool, "a100");
  job.training_input.region = "";
  EXPECT_EQ(Translate(job, site)->spec.pool, "general");
}

TEST(TranslateTest, VariablesFromElsewhere) {
  TrainingJob job = Container();
  job.lockstep.inherited_environment = {"HTTP_PROXY"};
  job.lockstep.slurm_environment = true;
  const auto plan = Do(job);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->spec.inherited_environment, ElementsAre("HTTP_PROXY"));
  EXPECT_TRUE(plan->spec.environment_options.slurm_environment);
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
    double units = 0;
    for (const RoleSpec& role : plan->spec.roles) {
      units += role.count * role.machine->ml_units_per_hour.value();
    }
    EXPECT_NEAR(units, c.units, 1e-3) << c.tier;
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
    EXPECT_EQ(plan->spec.roles[0].container->command, c.want_command);
    EXPECT_EQ(plan->spec.roles[0].argv, c.want_args);
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
  EXPECT_EQ(plan->spec.roles[0].container->image, "registry.local/x/trainer:1");
  EXPECT_EQ(plan->spec.roles[1].container->image, "a/q/other:2");
  EXPECT_EQ(plan->spec.roles[2].container->image, "registry.local/x/trainer:1");
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
  EXPECT_FALSE(plan->spec.restart_worker_alone);
  EXPECT_TRUE(plan->spec.environment_options.master_in_tf_config);
  EXPECT_THAT(plan->notes, Contains(HasSubstr("TensorFlow 2 rejects")));

  job.lockstep.ranks_per_gpu = false;
  job.lockstep.ranks_per_task = 4;
  EXPECT_EQ(Do(job)->spec.roles[1].ranks_per_task, 4);
  EXPECT_EQ(Do(job)->spec.roles[2].ranks_per_task, 1);  // Of a ps, always.
}

TEST(TranslateTest, WhatHasNoEffectIsNoted) {
  const std::string in = "trainingInput.";
  const Case cases[] = {
      {[](auto* j) { j->training_input.region = "us-central1"; },
       in + "region: us-central1 uses the default pool, all nodes"},
      {[](auto* j) { j->training_input.service_account = "x"; },
       in + "serviceAccount: is not used"},
      {[](auto* j) { j->training_input.network = "x"; },
       in + "network: is not used"},
      {[](auto* j) { j->training_input.enable_web_access = true; },
       in + "enableWebAccess: is not used"},
      {[](auto* j) { j->training_input.python_version = "3.7"; },
       in + "pythonVersion: is not used"},
      {[](auto* j) { j->training_input.scheduling.strategy = "LOW_COST"; },
       in + "scheduling.strategy: LOW_COST is treated as ON_DEMAND"},
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
  EXPECT_EQ(plan->spec.roles[0].machine->type, "n1-standard-4");
  EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("is not given: BASIC")));
}

}  // namespace
}  // namespace lockstep::translate_tests
