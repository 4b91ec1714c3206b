// `lockstep jobs submit training` against a coordinator that answers from a
// table.
#include <gmock/gmock.h>

#include <thread>

#include "client/cli/cli_fixture.h"
#include "client/cli/training_packages.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TrainingTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    Write("config.yaml",
          "trainingInput:\n"
          "  scaleTier: CUSTOM\n"
          "  masterType: n1-standard-8\n"
          "  masterConfig:\n"
          "    acceleratorConfig: {count: 2, type: NVIDIA_TESLA_V100}\n");
    Write("trainer/__init__.py", "");
    Write("trainer/task.py", "print(1)\n");
  }
  void Write(const std::string& path, const std::string& text) {
    const std::string full = dir_ + "/" + path;
    FileSystem* const files = RealFileSystem();
    ASSERT_TRUE(files->MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(files->WriteAtomic(full, text).ok());
  }
  int Training(std::vector<std::string> args) {
    args.insert(args.begin(), {"jobs", "submit", "training"});
    return Run(args);
  }
  v1::SubmitJobRequest Submitted() {
    // But for questions.
    std::vector<v1::SubmitJobRequest> submits = server_->Answers().submits;
    std::erase_if(submits, [](const auto& r) { return r.validate_only(); });
    EXPECT_EQ(submits.size(), 1u);
    return submits.empty() ? v1::SubmitJobRequest() : submits.back();
  }
};

TEST_F(TrainingTest, TheCommandOfTheTutorial) {
  server_->Update([](FakeAnswers* a) {
    a->training_answer.add_notes("trainingInput.region: is not used");
  });
  EXPECT_EQ(
      Training({"vision_1", "--region", "us-central1", "--master-image-uri",
                "gcr.io/p/trainer:1", "--config", "./config.yaml", "--",
                "trainer/task.py", "--bucket", "b"}),
      0)
      << err_.str();
  const v1::TrainingJob training = Submitted().training();
  EXPECT_EQ(training.job_id(), "vision_1");
  EXPECT_EQ(training.training_input().region(), "us-central1");
  EXPECT_EQ(training.training_input().master_config().image_uri(),
            "gcr.io/p/trainer:1");
  EXPECT_EQ(
      training.training_input().master_config().accelerator_config().count(),
      2);
  EXPECT_THAT(training.training_input().args(),
              testing::ElementsAre("trainer/task.py", "--bucket", "b"));
  EXPECT_EQ(out_.str(), "jobId: vision_1\nstate: QUEUED\n");
  EXPECT_THAT(err_.str(),
              HasSubstr("note: trainingInput.region: is not used\n"
                        "Job [vision_1] submitted successfully.\n"
                        "Your job is still active. You may view the status of "
                        "your job with the command\n\n"
                        "  $ lockstep jobs describe vision_1\n\n"
                        "or continue streaming the logs with the command\n\n"
                        "  $ lockstep jobs stream-logs vision_1\n"));
}

TEST_F(TrainingTest, PacksAndUploadsAFolder) {
  EXPECT_EQ(Training({"a", "--package-path", "trainer", "--module-name",
                      "trainer.task", "--runtime-version", "2.11"}),
            0)
      << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("package trainer.tar.gz ("));
  EXPECT_THAT(err_.str(), HasSubstr("uploaded\n"));
  const v1::SubmitJobRequest request = Submitted();
  ASSERT_EQ(request.packages_size(), 1);
  EXPECT_EQ(request.packages(0).format(), v1::PACKAGE_FORMAT_TREE);
  EXPECT_EQ(request.training().training_input().package_uris(0),
            "trainer.tar.gz");
  EXPECT_EQ(server_->Answers().packages.count(request.packages(0).digest()),
            1u);
  // Again, the same content is not sent again.
  EXPECT_EQ(
      Training({"b", "--package-path", dir_ + "/trainer/", "--module-name",
                "trainer.task", "--runtime-version", "2.11"}),
      0);
  EXPECT_THAT(err_.str(), HasSubstr("exists already\n"));
}

TEST_F(TrainingTest, WhatASetupBesideTheFolderRequiresIsNoted) {
  const auto train = [this](const std::string& name) {
    return Training({name, "--package-path", "trainer", "--module-name",
                     "trainer.task", "--runtime-version", "2.11"});
  };
  Write("setup.py", "setup(name='trainer')\n");
  EXPECT_EQ(train("a"), 0) << err_.str();
  EXPECT_THAT(err_.str(), Not(HasSubstr("install_requires")));
  Write("setup.py", "setup(install_requires=['numpy'])\n");
  EXPECT_EQ(train("b"), 0) << err_.str();
  EXPECT_THAT(err_.str(),
              HasSubstr("note: --package-path: " + dir_ +
                        "/setup.py has install_requires, but a folder is "
                        "not installed"));
}

// As after a restart of the coordinator, or where it went meanwhile.
TEST_F(TrainingTest, APackageThatIsMissingIsSentOnceMore) {
  const std::vector<std::string> args = {"a",
                                         "--package-path",
                                         "trainer",
                                         "--module-name",
                                         "trainer.task",
                                         "--runtime-version",
                                         "2.11"};
  const Status missing = WithReason(
      FailedPrecondition("packages[0]: is not stored"), "PACKAGE_MISSING");
  server_->Update([&](FakeAnswers* a) {
    a->errors = {OkStatus(), OkStatus(), missing};
  });
  EXPECT_EQ(Training(args), 0) << err_.str();
  FakeAnswers answers = server_->Answers();
  EXPECT_EQ(answers.uploads.size(), 2u);
  EXPECT_EQ(answers.jobs.size(), 1u);
  // Not for ever.
  server_->Update([&](FakeAnswers* a) {
    a->jobs.clear();
    a->errors = {OkStatus(), OkStatus(), missing, OkStatus(), missing};
  });
  EXPECT_EQ(Training(args), 1);
  EXPECT_THAT(err_.str(), HasSubstr("is not stored"));
  answers = server_->Answers();
  EXPECT_EQ(answers.uploads.size(), 4u);
  EXPECT_TRUE(answers.jobs.empty());
}

TEST_F(TrainingTest, FindsTheModuleInOrBesideTheFolder) {
  EXPECT_EQ(Training({"a", "--package-path", ".", "--module-name",
                      "trainer.task", "--runtime-version", "2.11"}),
            0)
      << err_.str();
  EXPECT_EQ(Training({"b", "--package-path", "trainer", "--module-name",
                      "trainer.main", "--runtime-version", "2.11"}),
            2);
  EXPECT_THAT(err_.str(), HasSubstr("there is no trainer/main.py"));
  EXPECT_EQ(Training({"b", "--package-path", "trainer/task.py", "--module-name",
                      "trainer.task", "--runtime-version", "2.11"}),
            2);
  EXPECT_THAT(err_.str(),
              HasSubstr("trainer/task.py: is a file; give its folder"));
  EXPECT_EQ(Training({"c", "--package-path", "none", "--module-name",
                      "trainer.task", "--runtime-version", "2.11"}),
            1);
  EXPECT_THAT(err_.str(), HasSubstr("--package-path"));
}

TEST_F(TrainingTest, UploadsSdistsAndWheels) {
  Write("dist/trainer-0.1.tar.gz", "\x1f\x8b.");
  EXPECT_EQ(
      Training({"--packages", "dist/trainer-0.1.tar.gz", "a", "--module-name",
                "trainer.task", "--runtime-version", "2.11"}),
      0)
      << err_.str();
  EXPECT_EQ(Submitted().packages(0).file_name(), "trainer-0.1.tar.gz");
  EXPECT_EQ(Training({"b", "--packages", "gs://x/a.whl", "--module-name", "m",
                      "--runtime-version", "2.11"}),
            2);
  EXPECT_THAT(err_.str(), HasSubstr("URLs are not downloaded"));
}

TEST_F(TrainingTest, ADryRunUploadsNothing) {
  server_->Update([](FakeAnswers* a) {
    v1::RoleSpec* role =
        a->training_answer.mutable_job()->mutable_spec()->add_roles();
    role->set_type(v1::TASK_TYPE_CHIEF);
    role->set_count(1);
    role->mutable_resources()->set_cpus(1);
    role->mutable_machine()->set_type("n1-standard-8");
    role->mutable_machine()->mutable_nominal()->set_cpus(8);
    a->training_answer.set_ml_units_per_hour(0.7755);
    a->training_answer.set_cost_per_hour(0.38);
    a->training_answer.set_currency("USD");
    a->training_answer.mutable_waiting()->set_message("others run");
    a->training_answer.add_notes("no note");
  });
  for (const bool plan : {false, true}) {
    const std::vector<std::string> args = {"a",
                                           "--package-path",
                                           "trainer",
                                           "--module-name",
                                           "trainer.task",
                                           "--runtime-version",
                                           "2.11"};
    std::vector<std::string> line = {"jobs", "submit", "training", "--dry-run"};
    if (plan) line = {"plan", "training", "--stream-logs"};
    line.insert(line.end(), args.begin(), args.end());
    EXPECT_EQ(Run(line), 0) << err_.str();
    EXPECT_EQ(out_.str(),
              "ROLE   TASKS  RANKS EACH  MACHINE                 RESERVES "
              "EACH\n"
              "chief  1      1           n1-standard-8 (8 cpus)  1 cpu\n\n"
              "a would wait: others run\n"
              "price: 0.38 USD per hour, 0.7755 ML units per hour\n");
    EXPECT_THAT(err_.str(), HasSubstr("note: no note"));
  }
  const FakeAnswers answers = server_->Answers();
  EXPECT_TRUE(answers.uploads.empty());
  EXPECT_TRUE(answers.jobs.empty());
  EXPECT_TRUE(answers.submits.at(0).validate_only());
}

TEST_F(TrainingTest, StrictRefusesWhatHasNoEffect) {
  server_->Update(
      [](FakeAnswers* a) { a->training_answer.add_notes("region: unused"); });
  EXPECT_EQ(Training({"a", "--strict", "--master-image-uri", "i"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--strict: region: unused"));
  EXPECT_TRUE(server_->Answers().jobs.empty());
}

TEST_F(TrainingTest, SaysWhereTheConfigIsWrong) {
  Write("bad.yaml", "trainingInput:\n  scaleTeir: CUSTOM\n");
  EXPECT_EQ(Training({"a", "--config", "bad.yaml"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("bad.yaml:2:3"));
  EXPECT_THAT(err_.str(), HasSubstr("did you mean scaleTier?"));
  EXPECT_EQ(Training({"a", "--config", "none.yaml"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("--config"));
}

// The message that a coordinator gets has no place for them.
TEST_F(TrainingTest, WhatIsNoTrainingIsRefusedBeforeAnythingIsSent) {
  struct Case {
    const char* field;
    const char* sentence;
  };
  for (const Case& c :
       {Case{"hyperparameters: {goal: MAXIMIZE}",
             "trainingInput.hyperparameters: lockstep does not tune; submit "
             "one job for each set of values, as arguments after --"},
        Case{"nasJobSpec: {maxTrials: 3}",
             "trainingInput.nasJobSpec: lockstep does not search "
             "architectures; leave it out"}}) {
    Write("bad.yaml", "trainingInput:\n  " + std::string(c.field) + "\n");
    EXPECT_EQ(Training({"a", "--config", "bad.yaml", "--package-path",
                        "trainer", "--module-name", "trainer.task",
                        "--runtime-version", "2.11"}),
              2);
    EXPECT_EQ(err_.str(), "lockstep: " + std::string(c.sentence) + "\n");
  }
  const FakeAnswers answers = server_->Answers();
  EXPECT_TRUE(answers.uploads.empty());
  EXPECT_TRUE(answers.submits.empty());
}

TEST_F(TrainingTest, ATakenNameIsAnError) {
  server_->Update([](FakeAnswers* a) { a->jobs.emplace_back().set_name("a"); });
  EXPECT_EQ(Training({"a", "--master-image-uri", "i"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("there is a job a already"));
  EXPECT_THAT(err_.str(), Not(HasSubstr("submitted")));
}

TEST_F(TrainingTest, WhatTheCoordinatorRefusesIsNoWrongUsage) {
  const auto refuse = [this] {
    server_->Update([](FakeAnswers* a) {
      a->errors = {InvalidArgument("trainingInput.scaleTier: is taken away")};
    });
  };
  for (const char* flag : {"--dry-run", "--strict", "--async"}) {
    refuse();
    EXPECT_EQ(Training({"a", "--master-image-uri", "i", flag}), 1) << flag;
    // Who gave no file is told the flag.
    EXPECT_THAT(err_.str(),
                HasSubstr("lockstep: --scale-tier: is taken away\n"));
  }
  refuse();
  Write("job.yaml", "trainingInput: {}\n");
  EXPECT_EQ(Training({"a", "--config", "job.yaml", "--master-image-uri", "i"}),
            1);
  EXPECT_THAT(err_.str(),
              HasSubstr("lockstep: trainingInput.scaleTier: is taken away\n"));
  EXPECT_TRUE(server_->Answers().jobs.empty());
}

TEST_F(TrainingTest, StreamsToTheEnd) {
  server_->Update([](FakeAnswers* a) {
    v1::LogLine line;
    line.set_text("loss 0.1");
    line.set_task("master-replica-0");
    a->lines = {line};
    a->training_answer.mutable_job()->set_state(v1::JOB_STATE_SUCCEEDED);
    a->keeps_training_state = true;
  });
  EXPECT_EQ(Training({"a", "--master-image-uri", "i", "--stream-logs"}), 0)
      << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("master-replica-0\t\tloss 0.1\n"));
  EXPECT_THAT(out_.str(), HasSubstr("jobId: a\nstate: SUCCEEDED\n"));
  EXPECT_THAT(err_.str(), Not(HasSubstr("still active")));
  EXPECT_TRUE(server_->Answers().log_requests.at(0).include_events());
  server_->Update([](FakeAnswers* a) {
    a->training_answer.mutable_job()->set_state(v1::JOB_STATE_FAILED);
  });
  EXPECT_EQ(Training({"b", "--master-image-uri", "i", "--stream-logs"}), 1);
}

TEST_F(TrainingTest, CtrlCLeavesTheJobRunning) {
  server_->Update([](FakeAnswers* a) { a->endless = true; });
  // Not before it is submitted.
  env_.interrupted = [this] { return !server_->Answers().jobs.empty(); };
  EXPECT_EQ(Training({"a", "--master-image-uri", "i", "--stream-logs"}), 130);
  EXPECT_THAT(err_.str(), HasSubstr("the job runs on"));
  EXPECT_TRUE(server_->Answers().cancelled.empty());
}

TEST_F(TrainingTest, CtrlCInAnUploadSubmitsNothing) {
  server_->Update([](FakeAnswers* a) { a->stalls_uploads = true; });
  env_.interrupted = [this] { return !server_->Answers().uploads.empty(); };
  EXPECT_EQ(Training({"a", "--package-path", "trainer", "--module-name",
                      "trainer.task", "--runtime-version", "2.11"}),
            130);
  EXPECT_THAT(err_.str(), HasSubstr("uploading trainer.tar.gz"));
  EXPECT_TRUE(server_->Answers().jobs.empty());
}

TEST_F(TrainingTest, WhatWillBeRefusedIsNotUploaded) {
  const std::vector<std::string> args = {"a", "--package-path", "trainer",
                                         "--module-name", "trainer.task"};
  server_->Update([](FakeAnswers* a) {
    a->errors = {InvalidArgument("trainingInput.runtimeVersion: is missing")};
  });
  EXPECT_EQ(Training(args), 1);
  EXPECT_THAT(err_.str(), HasSubstr("--runtime-version: is missing"));
  server_->Update([](FakeAnswers* a) {
    a->training_answer.add_never_fits("no node has a V100");
    a->training_answer.add_never_fits("no node has podman");
  });
  EXPECT_EQ(Training(args), 1);
  EXPECT_THAT(err_.str(), HasSubstr("can never run here: no node has a V100; "
                                    "no node has podman"));
  const FakeAnswers answers = server_->Answers();
  EXPECT_TRUE(answers.uploads.empty());
  EXPECT_TRUE(answers.jobs.empty());
}

TEST(UploadTextTest, SaysHowFastItIsAndHowLongItTakes) {
  EXPECT_EQ(UploadText("a.whl", 0, 40 << 20, std::chrono::milliseconds(100)),
            "  uploading a.whl: 0.0 KiB of 40.0 MiB");
  EXPECT_EQ(UploadText("a.whl", 12 << 20, 40 << 20, std::chrono::seconds(2)),
            "  uploading a.whl: 12.0 MiB of 40.0 MiB, 6.0 MiB/s, 5 s left");
  EXPECT_EQ(UploadText("a.whl", 40 << 20, 40 << 20, std::chrono::seconds(4)),
            "  uploading a.whl: 40.0 MiB of 40.0 MiB, 10.0 MiB/s, 0 s left");
}

TEST_F(TrainingTest, GivesOtherFormats) {
  EXPECT_EQ(Training({"a", "--master-image-uri", "i", "-o", "name"}), 0);
  EXPECT_EQ(out_.str(), "a\n");
  EXPECT_EQ(Training({"b", "--master-image-uri", "i", "-o", "json"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("\"jobId\": \"b\""));
}

TEST_F(TrainingTest, NamesTheNearestFlag) {
  EXPECT_EQ(Training({"a", "--master-image-url", "i"}), 2);
  EXPECT_EQ(err_.str(),
            "lockstep: lockstep jobs submit training has no option "
            "--master-image-url; did you mean --master-image-uri?\n"
            "lockstep jobs submit training --help lists them\n");
}

TEST_F(TrainingTest, TakesTheAddressBeforeTheCommand) {
  env_.variables.erase("LOCKSTEP_ADDRESS");
  EXPECT_EQ(Run({"--address", server_->address(), "jobs", "submit", "training",
                 "a", "--master-image-uri", "i", "--", "x"}),
            0)
      << err_.str();
  EXPECT_EQ(Submitted().training().training_input().args(0), "x");
}

}  // namespace
}  // namespace lockstep::cli
