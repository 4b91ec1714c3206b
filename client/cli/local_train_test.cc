// What `lockstep local train` makes of its command line.
#include <gmock/gmock.h>
#include <unistd.h>

#include "client/cli/cli_fixture.h"
#include "client/cli/local_train_spec.h"
#include "client/cli/stream_job.h"
#include "client/cli/training_packages.h"

namespace lockstep::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class LocalTrainTest : public CliTest {
 protected:
  LocalTrainTest() { flags_.module_name = "trainer.task"; }

  LocalTrainFlags flags_;
};

TEST_F(LocalTrainTest, IsOneTaskUnlessDistributed) {
  flags_.args = {"--epochs", "1"};
  const auto spec = BuildLocalTrain(flags_, env_);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->roles_size(), 1);
  EXPECT_EQ(spec->roles(0).resources().cpus(), 0);
  EXPECT_THAT(spec->argv(),
              ElementsAre("python3", "-m", "trainer.task", "--epochs", "1"));
  EXPECT_EQ(spec->working_directory(), dir_);
  EXPECT_EQ(spec->restart_budget(), 0);
  EXPECT_EQ(spec->end_with(), v1::END_WITH_CHIEF);
  EXPECT_EQ(spec->tf_config_job(),
            R"({"job_name":"trainer.task","args":["--epochs","1"]})");
  EXPECT_TRUE(spec->empty_tf_config());
  EXPECT_EQ(LocalTrainTasks(flags_), 1);
  EXPECT_EQ(LocalTrainPorts(flags_), "27182,27183-27214");
}

TEST_F(LocalTrainTest, PortsOfParameterServersComeBeforeThoseOfWorkers) {
  flags_.distributed = true;
  flags_.worker_count = 2;
  flags_.parameter_server_count = 3;
  flags_.evaluator_count = 1;
  const auto spec = BuildLocalTrain(flags_, env_);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->roles_size(), 4);
  EXPECT_FALSE(spec->empty_tf_config());
  EXPECT_EQ(LocalTrainTasks(flags_), 6);
  // In the order of tasks: chief, workers, parameter servers.
  EXPECT_EQ(LocalTrainPorts(flags_),
            "27182,27186-27187,27183-27185,27188-27219");
  flags_.parameter_server_count = 0;
  EXPECT_EQ(LocalTrainPorts(flags_), "27182,27183-27184,27185-27216");
}

TEST_F(LocalTrainTest, HandsTheJobDirOn) {
  flags_.job_dir = "out";
  auto spec = BuildLocalTrain(flags_, env_);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->output_directory(), dir_ + "/out");
  EXPECT_THAT(spec->argv(), ElementsAre("python3", "-m", "trainer.task",
                                        "--job-dir", dir_ + "/out"));
  flags_.job_dir = "gs://bucket/a";
  spec = BuildLocalTrain(flags_, env_);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->output_directory(), "");
  EXPECT_EQ(spec->argv(4), "gs://bucket/a");
}

TEST_F(LocalTrainTest, InheritsWhatIsSetHere) {
  env_.variables["TF_USE_LEGACY_KERAS"] = "1";
  env_.variables["TF_CONFIG"] = "{}";
  const auto spec = BuildLocalTrain(flags_, env_);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->inherited_environment(), Contains("TF_USE_LEGACY_KERAS"));
  EXPECT_THAT(spec->inherited_environment(), Not(Contains("TF_CONFIG")));
}

TEST_F(LocalTrainTest, ASecondSignalDoesNotWaitForTheJob) {
  server_->Update([](FakeAnswers* a) {
    a->jobs = {Ended("train", v1::JOB_STATE_RUNNING)};
    a->endless = true;
  });
  env_.interrupted = [] { return true; };
  env_.signals = [this] {
    return server_->Answers().cancelled.empty() ? 1 : 2;
  };
  Cli cli;
  cli.env = &env_;
  const auto client = cli.Connect();
  ASSERT_TRUE(client.ok()) << client.status();
  StreamJobOptions options;
  options.job = "train";
  options.write = [](const v1::LogLine&) { return true; };
  options.cancels = true;
  options.leaves_at_second = true;
  const auto job = StreamJob(cli, client->get(), options);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->has_value());
  EXPECT_THAT(server_->Answers().cancelled, ElementsAre("train"));
}

// Another package of that name in the working directory would run instead.
TEST_F(LocalTrainTest, StartsWhereThePackageLies) {
  FileSystem* const files = RealFileSystem();
  for (const char* folder : {"trainer", "other/trainer"}) {
    const std::string dir = dir_ + "/" + folder;
    ASSERT_TRUE(files->MakeDirs(dir).ok());
    ASSERT_TRUE(files->WriteAtomic(dir + "/task.py", "").ok());
  }
  const auto root = [&](const std::string& folder) {
    const auto place = FindModule(folder, "trainer.task");
    return place.ok() ? place->prefix + " " + place->root
                      : Message(place.status());
  };
  EXPECT_EQ(root(dir_ + "/trainer"), "trainer " + dir_);
  EXPECT_EQ(root(dir_ + "/other/trainer/"), "trainer " + dir_ + "/other");
  EXPECT_EQ(root(dir_ + "/other/trainer/."), "trainer " + dir_ + "/other");
  EXPECT_EQ(root(dir_ + "/other"), " " + dir_ + "/other");
  ASSERT_TRUE(files->MakeDirs(dir_ + "/links").ok());
  ASSERT_EQ(symlink((dir_ + "/other/trainer").c_str(),
                    (dir_ + "/links/trainer").c_str()),
            0);
  EXPECT_EQ(root(dir_ + "/links/trainer"), "trainer " + dir_ + "/links");
  EXPECT_EQ(root(dir_ + "/./other/.."), " " + dir_);
  EXPECT_THAT(root(dir_ + "/trainer/task.py"), HasSubstr("is a file"));
}

TEST_F(LocalTrainTest, CountsOfRolesThatAreNotThereAreNoted) {
  EXPECT_EQ(Run({"local", "train", "--module-name", "trainer.task",
                 "--worker-count", "2"}),
            2);
  EXPECT_THAT(err_.str(), HasSubstr("note: --worker-count: is not used without "
                                    "--distributed\n"));
  EXPECT_EQ(Run({"local", "train", "--module-name", "trainer.task",
                 "--distributed", "--worker-count", "2"}),
            2);
  EXPECT_THAT(err_.str(), Not(HasSubstr("note:")));
}

TEST_F(LocalTrainTest, RefusesWhatCannotBe) {
  EXPECT_EQ(Run({"local", "train"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--module-name is required"));
  EXPECT_EQ(Run({"local", "train", "--module-name", "trainer.task"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("there is no trainer/task.py"));
  flags_.evaluator_count = 2;
  EXPECT_FALSE(BuildLocalTrain(flags_, env_).ok());
  flags_.evaluator_count = 0;
  flags_.start_port = 65530;
  EXPECT_FALSE(BuildLocalTrain(flags_, env_).ok());
}

}  // namespace
}  // namespace lockstep::cli
