#include "client/cli/training_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/training/training_file.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The config of a chief with two V100s, as its author wrote it.
constexpr char kConfig[] = R"(trainingInput:
    scaleTier: CUSTOM
    # Configure a master worker with 2 V100 GPUs
    masterType: n1-standard-8 # Specify the base machine type
    masterConfig:
      acceleratorConfig:
        count: 2
        type: NVIDIA_TESLA_V100
)";

class TrainingFlagsTest : public testing::Test {
 protected:
  TrainingFlagsTest() {
    env_.working_directory = "/home/ann/work";
    env_.variables = {{"TOKEN", "secret"}};
    flags_.job = "vision_1";
    flags_.master.image_uri = "gcr.io/p/trainer:1";
  }
  StatusOr<TrainingRequest> Build(const TrainingJob& file = {}) const {
    return BuildTraining(flags_, file, env_);
  }
  // `why` is in the refusal.
  void ExpectRefused(const std::string& why) const {
    const auto request = Build();
    EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(request.status()), HasSubstr(why));
  }

  CliEnvironment env_;
  TrainingFlags flags_;
};

TEST_F(TrainingFlagsTest, FlagsBeatTheFile) {
  const auto file = ParseTrainingFile(kConfig, "config.yaml");
  ASSERT_TRUE(file.ok()) << file.status();
  flags_.region = "us-central1";
  flags_.master.accelerator = "type=nvidia-tesla-t4";
  flags_.args = {"trainer/task.py", "--bucket", "b"};
  const auto request = Build(*file);
  ASSERT_TRUE(request.ok()) << request.status();
  const TrainingInput& input = request->job.training_input;
  EXPECT_EQ(request->job.job_id, "vision_1");
  EXPECT_EQ(input.scale_tier, "CUSTOM");
  EXPECT_EQ(input.master.type, "n1-standard-8");
  EXPECT_EQ(input.master.config.image_uri, "gcr.io/p/trainer:1");
  EXPECT_EQ(input.master.config.accelerator_config->type, "NVIDIA_TESLA_T4");
  EXPECT_EQ(input.master.config.accelerator_config->count, 1);
  EXPECT_EQ(input.region, "us-central1");
  EXPECT_THAT(input.args, ElementsAre("trainer/task.py", "--bucket", "b"));
}

TEST_F(TrainingFlagsTest, TakesEveryFlag) {
  flags_.master = {"n1-standard-4", std::nullopt, "", ""};
  flags_.scale_tier = "custom";
  flags_.worker = {"n1-highcpu-8", 3, "type=nvidia-tesla-t4,count=2", ""};
  flags_.parameter_server = {"n1-standard-4", 2, "", ""};
  flags_.use_chief_in_tf_config = "False";
  flags_.packages = {"a.whl"};
  flags_.module_name = "trainer.task";
  flags_.runtime_version = "2.11";
  flags_.labels = {"team=vision"};
  flags_.ranks_per_task = "gpu";
  flags_.env = {"TOKEN", "A=b=c"};
  flags_.runtime = "tf";
  flags_.kms_key = "k";
  flags_.kms_keyring = "r";
  flags_.kms_location = "l";
  flags_.kms_project = "p";
  const auto request = Build();
  ASSERT_TRUE(request.ok()) << request.status();
  const TrainingJob& job = request->job;
  EXPECT_EQ(job.training_input.scale_tier, "CUSTOM");
  EXPECT_EQ(job.training_input.worker.count, 3);
  EXPECT_EQ(job.training_input.worker.config.accelerator_config->count, 2);
  EXPECT_EQ(job.training_input.parameter_server.type, "n1-standard-4");
  EXPECT_EQ(job.training_input.use_chief_in_tf_config, false);
  EXPECT_EQ(job.training_input.runtime_version, "2.11");
  EXPECT_EQ(job.training_input.kms_key_name,
            "projects/p/locations/l/keyRings/r/cryptoKeys/k");
  EXPECT_EQ(job.labels.at("team"), "vision");
  EXPECT_TRUE(job.lockstep.ranks_per_gpu);
  EXPECT_EQ(job.lockstep.env.at("TOKEN"), "secret");
  EXPECT_EQ(job.lockstep.env.at("A"), "b=c");
  EXPECT_EQ(job.lockstep.runtime, "tf");
}

TEST_F(TrainingFlagsTest, PathsAreAbsoluteAndUrlsStay) {
  flags_.job_dir = "models/a";
  auto request = Build();
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->job.training_input.job_dir, "/home/ann/work/models/a");
  EXPECT_THAT(request->notes, ElementsAre(HasSubstr("--job-dir: models/a is")));
  flags_.job_dir = "gs://bucket/a";
  request = Build();
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->job.training_input.job_dir, "gs://bucket/a");
  EXPECT_THAT(request->notes, ElementsAre());
}

TEST_F(TrainingFlagsTest, NotesWhatHasNoEffect) {
  flags_.staging_bucket = "gs://b";
  flags_.project = "p";
  flags_.quiet = true;
  flags_.verbosity = "debug";
  flags_.async = true;
  const auto request = Build();
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->notes,
              ElementsAre(HasSubstr("--staging-bucket"), HasSubstr("--project"),
                          HasSubstr("--quiet"), HasSubstr("--verbosity"),
                          HasSubstr("--async: is deprecated")));
}

TEST_F(TrainingFlagsTest, RefusesWhatCannotBe) {
  const TrainingFlags good = flags_;
  ASSERT_TRUE(Build().ok());
  flags_.runtime_version = "2.11";
  ExpectRefused("--master-image-uri and --runtime-version exclude each other");
  flags_ = good;
  flags_.scale_tier = "CUSTOM";
  ExpectRefused("--master-machine-type is required");
  flags_ = good;
  flags_.worker.count = 2;
  ExpectRefused("--worker-machine-type is missing");
  flags_ = good;
  flags_.parameter_server.machine_type = "n1-standard-4";
  ExpectRefused("in the file): --parameter-server-count is missing");
  flags_.parameter_server.count = 0;
  ExpectRefused("in the file): --parameter-server-count is 0");
  flags_ = good;
  flags_.master.image_uri = "";
  ExpectRefused("there is nothing to run");
  flags_.packages = {"a.whl"};
  ExpectRefused("--module-name is required");
  flags_ = good;
  flags_.package_path = "trainer";
  flags_.module_name = "trainer.task";
  ExpectRefused("--master-image-uri and --package-path exclude each other");
  flags_ = good;
  flags_.async = flags_.stream_logs = true;
  ExpectRefused("--async and --stream-logs exclude each other");
  flags_ = good;
  flags_.job = "1st";
  ExpectRefused("\"1st\" is not a job name");
  flags_ = good;
  flags_.kms_keyring = "r";
  ExpectRefused("--kms-keyring: needs --kms-key, which is missing");
  flags_ = good;
  flags_.kms_key = "k";
  ExpectRefused("--kms-key k: needs");
  flags_ = good;
  flags_.labels = {"a=1", "a=2"};
  ExpectRefused("a is given twice");
  flags_ = good;
  flags_.env = {"NOT_THERE"};
  ExpectRefused("--env NOT_THERE: the variable is not set here");
  flags_ = good;
  flags_.ranks_per_task = "0";
  ExpectRefused("--ranks-per-task");
  flags_ = good;
  flags_.use_chief_in_tf_config = "maybe";
  ExpectRefused("\"maybe\" is neither true nor false");
}

TEST_F(TrainingFlagsTest, RefusesAcceleratorsThatAreNone) {
  for (const std::string text : {"", "nvidia-tesla-t4", "count=2",
                                 "type=", "type=a,count=x", "type=a,type=b"}) {
    EXPECT_FALSE(ParseAccelerator(text).ok()) << text;
  }
}

}  // namespace
}  // namespace lockstep::cli
