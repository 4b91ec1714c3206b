// What translate.h refuses, each with its sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/training/translate_fixture.h"

namespace lockstep::translate_tests {
namespace {

using ::testing::HasSubstr;

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
               "workerCount must be given together"},
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
           in + "masterConfig.acceleratorConfig.count: n1-standard-8 supports "
                "1, 2, 4 or 8 of NVIDIA_TESLA_V100, not 3"},
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
           in + "runtimeVersion: is for a Python package, but masterConfig."
                "imageUri names a container; leave one of them out"},
          {[](auto* j) { j->training_input.package_uris = {"a"}; },
           in + "packageUris: is for a Python package"},
          {[](auto* j) { j->training_input.python_module = "a.b"; },
           "give the module as arguments: -- -m a.b"},
          {[](auto* j) { j->lockstep.runtime = "tf"; }, "lockstep.runtime: "},
          {[](auto* j) {
             j->training_input.worker.config.container_args = {"a"};
           },
           in + "workerConfig.containerArgs: cannot be combined with "
                "trainingInput.args"},
          {[](auto* j) {
             j->training_input.master.config.container_command = {"a"};
           },
           in + "masterConfig.containerCommand: cannot be combined with"},
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
           in + "args[1]: has 200000 bytes; Linux allows at most 131071"},
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
           in + "pythonModule: \"trainer/task.py\" is not a module"},
          {[](auto* j) { j->training_input.python_module = "-c"; },
           "is not a module"},
          {[](auto* j) { j->training_input.python_module = "a..b"; },
           "is not a module"},
          {[](auto* j) {
             TrainingInput& input = j->training_input;
             input.python_module = input.runtime_version = "";
             input.package_uris = {};
           },
           "has no program: give masterConfig.imageUri"},
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
          {[](auto* j) { j->job_id = ""; }, "jobId: \"\" is not a job name"},
          {[](auto* j) { j->job_id = "1a"; },
           "jobId: \"1a\" is not a job name"},
          {[](auto* j) { j->job_id = "a b"; },
           "jobId: \"a b\" is not a job name"},
          {[](auto* j) { j->training_input.has_hyperparameters = true; },
           in + "hyperparameters: lockstep does not tune; submit one job for "
                "each set of values"},
          {[](auto* j) { j->training_input.has_nas_job_spec = true; },
           in + "nasJobSpec: lockstep does not search"},
          {[](auto* j) { j->training_input.kms_key_name = "k"; },
           in + "encryptionConfig: lockstep does not encrypt"},
          {[](auto* j) { j->training_input.job_dir = "model"; },
           in + "jobDir: \"model\" is neither absolute nor a URL"},
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
           "lockstep.env: \"1A\" is not a variable name"},
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
           in + "workerType: has 2000 bytes; at most 1024 are allowed"},
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
           "lockstep.images: \"\" is a prefix of every image"},
      });
}

}  // namespace
}  // namespace lockstep::translate_tests
