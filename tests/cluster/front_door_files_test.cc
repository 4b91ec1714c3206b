// The published config files of AI Platform with the commands that stand beside
// them, in which one word changes: GPUs are those of a fake driver, images are
// made here.
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "common/base/random.h"
#include "common/training/training_file_fixture.h"
#include "tests/cluster/front_door_fixture.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Replaced(const std::string& text, const std::string& what,
                     const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos
             ? text
             : text.substr(0, at) + with + text.substr(at + what.size());
}

class GpuFrontDoorTest : public FrontDoorTest {
 protected:
  GpuFrontDoorTest() { manual_start_ = true; }
};

// Without images, where there is no container engine either.
TEST_F(GpuFrontDoorTest, OneT4ForEachOfTwoMachines) {
  Gpus("T4", 2);
  StartCluster();
  UseSite(kFrontDoorSite);
  WriteFile(Path("config.yaml"),
            std::regex_replace(std::string(kTwoMachines),
                               std::regex("    imageUri:.*\n"), ""));
  const std::string package =
      Package("import os\nprint('gpus', os.environ['CUDA_VISIBLE_DEVICES'])\n");
  Ok(Training("t4", {"--region", "us-central1", "--config", Path("config.yaml"),
                     "--package-path", package, "--module-name", "trainer.task",
                     "--runtime-version", "2.4"}));
  const v1::Job job = WaitEnd("t4", v1::JOB_STATE_SUCCEEDED);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(job.attempts(0).tasks(rank).gpus_size(), 1);
    EXPECT_NE(Line("t4", rank, "gpus"), "");
  }
}

// Nodes with GPUs and a container engine, and an image made of busybox.
class PublishedTest : public FrontDoorTest {
 protected:
  PublishedTest() { manual_start_ = true; }

  // False where no engine works. The fake driver has no devices that an engine
  // could hand to a container: those asked for are noted and left out.
  bool Start(const char* model, int gpus) {
    Gpus(model, gpus);
    const std::string podman = Path("podman-without-devices");
    WriteFile(podman, fmt::format("#!/bin/sh\n"
                                  "left=$# device=\n"
                                  "while [ $left -gt 0 ]; do\n"
                                  "  word=$1; shift; left=$((left - 1))\n"
                                  "  if [ -n \"$device\" ]; then\n"
                                  "    echo \"$word\" >>{}; device=; continue\n"
                                  "  fi\n"
                                  "  if [ \"$word\" = --device ]; then\n"
                                  "    device=1; continue\n"
                                  "  fi\n"
                                  "  set -- \"$@\" \"$word\"\n"
                                  "done\n"
                                  "exec podman \"$@\"\n",
                                  Path("devices")));
    EXPECT_EQ(chmod(podman.c_str(), 0755), 0);
    WriteFile(Path("devices"), "");
    for (const char* worker : {"worker-0", "worker-1"}) {
      std::vector<std::string>& more = options_.extra_arguments[worker];
      more.insert(more.end(), {"--container-engine", podman});
    }
    StartCluster();
    UseSite(Replaced(kFrontDoorSite, "localhost/", prefix_));
    return !Engine().empty();
  }

  // With `entrypoint`, a JSON list. Its "python" says what it was given.
  void MakePython(const std::string& entrypoint) {
    MakeImage(prefix_ + "trainer:1", "python",
              "echo python \"$@\"\n"
              "echo $TF_CONFIG\n"
              "echo job $CLOUD_ML_JOB_ID gpus $CUDA_VISIBLE_DEVICES\n",
              entrypoint, "[\"trainer/task.py\"]");
  }

  // `command` of gcloud, as a shell runs it where config.yaml is, with
  // `variables`: its answer.
  std::string Run(const std::string& command,
                  const std::vector<std::string>& variables = {}) {
    std::vector<std::string> env = CliEnvironment();
    env.insert(env.end(), variables.begin(), variables.end());
    env.push_back(fmt::format("PATH={}:/usr/bin:/bin", options_.bin_dir));
    const CommandResult result =
        RunCommand({"/bin/sh", "-c",
                    "cd " + root() + " && " +
                        Replaced(command, "gcloud ai-platform", "lockstep")},
                   env);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out + result.err;
  }
  json TfConfig(const std::string& job, int rank) {
    return json::parse(Line(job, rank, "{"), nullptr, false);
  }
  // What engines were asked for, as "nvidia0".
  std::vector<std::string> Gpus() {
    std::vector<std::string> found;
    const std::string text = ReadFile(Path("devices"));
    const std::regex gpu("nvidia(?:.com/gpu=)?([0-9]+)\n");
    for (std::sregex_iterator it(text.begin(), text.end(), gpu), end; it != end;
         ++it) {
      found.push_back("nvidia" + (*it)[1].str());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  using FrontDoorTest::Gpus;

 private:
  const std::string prefix_ = "localhost/published-" + RandomHex(4) + "-";
};

TEST_F(PublishedTest, TwoV100OnOneMachine) {
  if (!Start("V100", 4)) GTEST_SKIP() << "no container engine works here";
  MakePython("[\"python\"]");
  WriteFile(Path("config.yaml"), kTwoV100);
  const std::string said =
      Run(kTwoV100Command,
          {"JOB_NAME=cats_dogs_20210401_101500", "REGION=us-central1",
           "IMAGE_URI=gcr.io/my-project/trainer:1", "BUCKET_NAME=cats",
           "TRAIN_FILES=train_tfr/*.tfrec", "VALIDATION_FILES=val_tfr/*"});
  const char* const name = "cats_dogs_20210401_101500";
  EXPECT_THAT(said,
              HasSubstr(fmt::format("Job [{}] submitted successfully.", name)));
  const v1::Job job = WaitEnd(name, v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.attempts_size(), 1);
  ASSERT_EQ(job.attempts(0).tasks_size(), 1);
  EXPECT_EQ(job.attempts(0).tasks(0).gpus_size(), 2);
  EXPECT_THAT(Gpus(), ElementsAre("nvidia0", "nvidia1"));
  EXPECT_EQ(Line(name, 0, "python"),
            "python trainer/task.py --bucket cats --train-pattern "
            "train_tfr/*.tfrec --valid-pattern val_tfr/*");
  EXPECT_EQ(Line(name, 0, "job"), fmt::format("job {} gpus 0,1", name));
  const json config = TfConfig(name, 0);
  ASSERT_TRUE(config.is_object());
  EXPECT_EQ(config["task"]["type"], "chief");
  EXPECT_EQ(config["cluster"].size(), 1u);
  EXPECT_EQ(json::parse(config["job"].get<std::string>())["master_type"],
            "n1-standard-8");
  // n1-standard-8 and two V100.
  EXPECT_NEAR(job.spec().roles(0).machine().ml_units_per_hour(), 10.9, 0.05);
}

TEST_F(PublishedTest, AMasterAndAWorkerWithAT4Each) {
  if (!Start("T4", 2)) GTEST_SKIP() << "no container engine works here";
  MakePython("[\"python\", \"-m\", \"trainer.task\"]");
  WriteFile(Path("config.yaml"), kTwoMachines);
  std::string command = Replaced(kTwoMachinesCommand, "{job_name}", "twins");
  Run(Replaced(command, "{gcs_bucket/model_dir}", "bucket/model_dir"));
  const v1::Job job = WaitEnd("twins", v1::JOB_STATE_SUCCEEDED);
  std::set<std::string> nodes;
  for (int rank = 0; rank < 2; ++rank) {
    const v1::TaskStatus& task = job.attempts(0).tasks(rank);
    EXPECT_EQ(task.gpus_size(), 1);
    nodes.insert(task.node());
    EXPECT_EQ(Line("twins", rank, "python"),
              "python -m trainer.task --epochs 5 --job-dir "
              "gs://bucket/model_dir");
    EXPECT_EQ(Line("twins", rank, "job"), "job twins gpus 0");
    const json config = TfConfig("twins", rank);
    ASSERT_TRUE(config.is_object());
    EXPECT_EQ(config["task"]["type"], rank == 0 ? "chief" : "worker");
    EXPECT_EQ(config["task"]["index"], 0);
    EXPECT_EQ(config["cluster"]["chief"].size(), 1u);
    EXPECT_EQ(config["cluster"]["worker"].size(), 1u);
  }
  EXPECT_EQ(nodes.size(), 2u);
  EXPECT_THAT(Gpus(), ElementsAre("nvidia0", "nvidia1"));
  // An image that nobody has: the job ends, and names it.
  Ok(Training("nowhere",
              {"--master-image-uri", "gcr.io/my-project/nowhere:1"}));
  const v1::Job nowhere = WaitEnd("nowhere", v1::JOB_STATE_FAILED);
  EXPECT_THAT(nowhere.cause().message(), HasSubstr("nowhere:1"));
}

}  // namespace
}  // namespace lockstep
