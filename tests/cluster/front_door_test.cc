// Jobs in AI Platform's words, from the command line to the end: commands with
// one word changed, packages, refusals.
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "common/os/process.h"
#include "tests/cluster/front_door_fixture.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A package from a folder, run as `python3 -m trainer.task` on each task.
TEST_F(FrontDoorTest, APackageIsPackedUploadedAndRun) {
  const std::string package = Package(
      "import json, os, sys\n"
      "config = json.loads(os.environ['TF_CONFIG'])\n"
      "print('task', config['task']['type'], config['task']['index'])\n"
      "print('args', sys.argv[1:])\n"
      "print('job', json.loads(config['job'])['scale_tier'])\n"
      "print('id', os.environ['CLOUD_ML_JOB_ID'])\n"
      "if config['task']['type'] == 'chief':\n"
      "    open(os.path.join(sys.argv[-1], 'model.keras'), 'w').write('x')\n");
  const CommandResult submitted =
      Lockstep(Training("packed", {"--region",
                                   "us-central1",
                                   "--scale-tier",
                                   "custom",
                                   "--master-machine-type",
                                   "n1-standard-4",
                                   "--worker-machine-type",
                                   "n1-standard-4",
                                   "--worker-count",
                                   "1",
                                   "--package-path",
                                   package,
                                   "--module-name",
                                   "trainer.task",
                                   "--runtime-version",
                                   "2.11",
                                   "--job-dir",
                                   Path("out"),
                                   "--labels",
                                   "team=vision",
                                   "--stream-logs",
                                   "--",
                                   "--epochs",
                                   "5"}));
  EXPECT_EQ(submitted.code, 0) << submitted.err << submitted.out;
  const std::string all = submitted.out + submitted.err;
  EXPECT_THAT(all, HasSubstr("Job [packed] submitted successfully."));
  EXPECT_THAT(all, HasSubstr("master-replica-0"));
  EXPECT_THAT(all, HasSubstr("worker-replica-0"));
  const v1::Job job = WaitEnd("packed", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Line("packed", 0, "task"), "task chief 0");
  EXPECT_EQ(Line("packed", 1, "task"), "task worker 0");
  EXPECT_EQ(Line("packed", 0, "job"), "job CUSTOM");
  EXPECT_EQ(Line("packed", 0, "id"), "id packed");
  EXPECT_EQ(
      Line("packed", 0, "args"),
      fmt::format("args ['--epochs', '5', '--job-dir', '{}']", Path("out")));
  EXPECT_EQ(job.spec().labels().at("team"), "vision");
  ASSERT_EQ(job.outputs_size(), 1);
  EXPECT_EQ(job.outputs(0).path(), "model.keras");
  EXPECT_EQ(job.outputs(0).bytes(), 1);
  EXPECT_GT(job.bill().ml_units(), 0);

  // As those who know the other service ask for it.
  const json described =
      json::parse(Ok({"jobs", "describe", "packed", "--format=json"}));
  EXPECT_EQ(described["jobId"], "packed");
  EXPECT_EQ(described["state"], "SUCCEEDED");
  EXPECT_EQ(described["trainingInput"]["workerCount"], "1");
  EXPECT_EQ(described["trainingInput"]["jobDir"], Path("out"));
  EXPECT_TRUE(described["trainingOutput"]["consumedMLUnits"].is_number());
  EXPECT_THAT(Ok({"jobs", "describe", "packed", "--summarize"}),
              HasSubstr("Training Input Summary"));
  EXPECT_THAT(Ok({"jobs", "list", "--filter", "jobId:pack* AND state:SUCCEEDED",
                  "--format=default"}),
              HasSubstr("packed"));
  EXPECT_THAT(Ok({"jobs", "stream-logs", "packed"}),
              HasSubstr("task worker 0"));
  EXPECT_THAT(Ok({"jobs", "logs", "packed", "--task", "worker-replica-0",
                  "--grep", "^task"}),
              AllOf(HasSubstr("task worker 0"), Not(HasSubstr("chief"))));
  Ok({"jobs", "update", "packed", "--update-labels", "stage=old",
      "--remove-labels", "team"});
  EXPECT_EQ(Get("packed").spec().labels().size(), 1u);
}

TEST_F(FrontDoorTest, TheSameCodeIsStoredOnce) {
  const std::string package = Package("print('hello')\n");
  const auto submit = [&](const std::string& name) {
    return Lockstep(
        Training(name, {"--package-path", package, "--module-name",
                        "trainer.task", "--runtime-version", "2.11"}));
  };
  EXPECT_EQ(submit("one").code, 0);
  EXPECT_EQ(submit("two").code, 0);
  const v1::Job one = WaitEnd("one", v1::JOB_STATE_SUCCEEDED);
  const v1::Job two = WaitEnd("two", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(one.spec().packages_size(), 1);
  EXPECT_EQ(one.spec().packages(0).digest(), two.spec().packages(0).digest());
  EXPECT_EQ(Line("two", 0, "hello"), "hello");
}

struct Refused {
  std::string what;
  std::vector<std::string> arguments;
  std::vector<std::string> sentence;
  std::string config = "";
};

// Each with its sentence, and nothing left behind.
TEST_F(FrontDoorTest, WhatCannotBeIsRefused) {
  const std::string package = Package("print('hello')\n");
  const std::vector<std::string> code = {"--package-path",    package,
                                         "--module-name",     "trainer.task",
                                         "--runtime-version", "2.11"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), code.begin(), code.end());
    return more;
  };
  Ok(Training("taken", code));
  WaitEnd("taken", v1::JOB_STATE_SUCCEEDED);
  const std::vector<Refused> cases = {
      {"unknown_field",
       code,
       {"config.yaml:2:3", "masterTyp"},
       "trainingInput:\n  masterTyp: n1-standard-4\n"},
      {"custom_without_master",
       with({"--scale-tier", "custom"}),
       {"master", "CUSTOM"}},
      {"count_without_type",
       with({"--scale-tier", "custom", "--master-machine-type", "n1-standard-4",
             "--worker-count", "1"}),
       {"worker"}},
      {"image_and_runtime",
       {"--master-image-uri", "gcr.io/my-project/a:1", "--runtime-version",
        "2.11"},
       {"runtime"}},
      {"taken", code, {"taken"}},
      {"3-bad.name", code, {"name"}},
      {"three_gpus",
       with({"--scale-tier", "custom", "--master-machine-type", "n1-standard-8",
             "--master-accelerator", "type=nvidia-tesla-t4,count=3"}),
       {"supports 1, 2 or 4 of NVIDIA_TESLA_T4, not 3"}},
      {"four_gpus",
       with({"--scale-tier", "custom", "--master-machine-type", "n1-standard-8",
             "--master-accelerator", "type=nvidia-tesla-t4,count=4"}),
       {"4 Tesla T4", "never run"}},
      {"long_argument",
       code,
       {"args[0]", "204800", "at most"},
       "trainingInput:\n  args: [" + std::string(200 * 1024, 'x') + "]\n"},
      {"no_code", {"--runtime-version", "2.11"}, {"package"}},
      {"no_machine",
       with({"--scale-tier", "custom", "--master-machine-type", "n9-mega"}),
       {"n9-mega"}},
  };
  for (const Refused& c : cases) {
    std::vector<std::string> arguments = c.arguments;
    if (!c.config.empty()) {
      WriteFile(Path("config.yaml"), c.config);
      arguments.insert(arguments.begin(), {"--config", Path("config.yaml")});
    }
    const CommandResult result = Lockstep(Training(c.what, arguments));
    EXPECT_NE(result.code, 0) << c.what;
    // One sentence, not a page.
    EXPECT_LT(result.err.size(), 1500u) << c.what << ": " << result.err;
    for (const std::string& part : c.sentence) {
      EXPECT_THAT(result.err, HasSubstr(part)) << c.what;
    }
    std::cout << c.what << ": " << result.err;
  }
  EXPECT_EQ(Jobs(), 1u);
}

TEST_F(FrontDoorTest, AnEntryPointThatIsNotThereIsNamed) {
  const std::string package = Package("print('hello')\n");
  const CommandResult here = Lockstep(
      Training("entry", {"--package-path", package, "--module-name",
                         "trainer.tusk", "--runtime-version", "2.11"}));
  EXPECT_EQ(here.code, 2);
  EXPECT_THAT(here.err, HasSubstr("for a folder trainer with task.py"));
  // Nobody looked into a finished package before it is on a node.
  const CommandResult packed =
      RunCommand({"/usr/bin/tar", "-czf", Path("entry-1.0.tar.gz"), "-C",
                  Path("code"), "trainer"});
  ASSERT_EQ(packed.code, 0) << packed.err;
  Ok(Training("entry", {"--packages", Path("entry-1.0.tar.gz"), "--module-name",
                        "trainer.tusk", "--runtime-version", "2.11"}));
  const v1::Job job = WaitEnd("entry", v1::JOB_STATE_FAILED);
  std::cout << job.cause().message() << "\n";
}

TEST_F(FrontDoorTest, APackageThatWritesElsewhereIsRefusedByName) {
  WriteFile(Path("evil.py"), "print('out')\n");
  const CommandResult packed = RunCommand(
      {"/usr/bin/tar", "-czf", Path("evil-1.0.tar.gz"), "-P", "--transform",
       "s,.*evil.py,../../evil.py,", Path("evil.py")});
  ASSERT_EQ(packed.code, 0) << packed.err;
  const CommandResult submitted = Lockstep(
      Training("evil", {"--packages", Path("evil-1.0.tar.gz"), "--module-name",
                        "evil", "--runtime-version", "2.11"}));
  std::string sentence = submitted.err;
  if (submitted.code == 0) {
    sentence = WaitEnd("evil", v1::JOB_STATE_FAILED).cause().message();
  }
  EXPECT_THAT(sentence, AllOf(HasSubstr("evil.py"), HasSubstr("outside")));
}

TEST_F(FrontDoorTest, AJobDirectoryThatCannotBeWrittenIsNamed) {
  const std::string package = Package("print('hello')\n");
  Ok(Training("unwritable",
              {"--package-path", package, "--module-name", "trainer.task",
               "--runtime-version", "2.11", "--job-dir", "/proc/models"}));
  const v1::Job job = WaitEnd("unwritable", v1::JOB_STATE_FAILED);
  EXPECT_THAT(job.cause().message(), HasSubstr("/proc/models"));
}

// Ctrl-C in the middle of an upload: no job, and no half of a package.
TEST_F(FrontDoorTest, AnUploadThatIsCutLeavesNothing) {
  const std::string package = Package("print('hello')\n");
  std::string bytes(size_t{192} << 20, '\0');
  std::mt19937_64 random(7);
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t word = random();
    std::copy_n(reinterpret_cast<const char*>(&word), 8, &bytes[i]);
  }
  WriteFile(package + "/weights.bin", bytes);
  const std::string stored = options_.dir + "/coordinator/packages";
  const auto files = [&] {
    int found = 0;
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator it(stored, error), end;
         it != end; it.increment(error)) {
      found += it->is_regular_file(error);
    }
    return found;
  };
  std::vector<std::string> argv =
      Training("cut", {"--package-path", package, "--module-name",
                       "trainer.task", "--runtime-version", "2.11"});
  argv.insert(argv.begin(), Binary("lockstep"));
  const Command command = StartCommand(argv, CliEnvironment());
  ASSERT_TRUE(Eventually([&] { return files() > 0; }));
  ASSERT_TRUE(SendSignal(command.process, SIGINT).ok());
  const CommandResult result = WaitCommand(command);
  // Or it was faster than the signal.
  if (result.code == 0) GTEST_SKIP() << "uploaded before the signal came";
  EXPECT_EQ(result.code, 130) << result.err;
  EXPECT_TRUE(Eventually([&] { return files() == 0; }));
  EXPECT_EQ(Jobs(), 0u);
}

TEST_F(FrontDoorTest, ADryRunShowsWhereAndWhatItCosts) {
  const std::string package = Package("print('hello')\n");
  const std::string plan = Ok(Training(
      "dry", {"--scale-tier", "custom", "--master-machine-type",
              "n1-standard-4", "--worker-machine-type", "n1-standard-4",
              "--worker-count", "1", "--package-path", package, "--module-name",
              "trainer.task", "--runtime-version", "2.11", "--dry-run"}));
  EXPECT_THAT(plan, HasSubstr("worker-"));
  EXPECT_THAT(plan, HasSubstr("0.7756"));  // Twice 0.3878 units an hour.
  EXPECT_EQ(Jobs(), 0u);
}

TEST_F(FrontDoorTest, RunIsTorchrunsShortcut) {
  WriteFile(Path("train.py"),
            "import os, sys\n"
            "print('rank', os.environ['RANK'], 'of', "
            "os.environ['WORLD_SIZE'], sys.argv[1:])\n"
            "sys.exit(3 if 'fail' in sys.argv else 0)\n");
  const CommandResult run =
      Lockstep({"run", "--nnodes", "2", "--nproc-per-node", "1",
                Path("train.py"), "--lr", "0.1"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("rank 0 of 2 ['--lr', '0.1']"));
  EXPECT_THAT(run.out, HasSubstr("rank 1 of 2 ['--lr', '0.1']"));
  const CommandResult failed =
      Lockstep({"run", "--nnodes", "1", "--nproc-per-node", "1",
                "--max-restarts", "0", Path("train.py"), "fail"});
  EXPECT_EQ(failed.code, 3) << failed.err;
}

// A worker of a job with parameter servers is started again alone.
TEST_F(FrontDoorTest, AWorkerBesideParameterServersIsStartedAgainAlone) {
  const std::string package = Package(
      "import json, os, sys, time\n"
      "task = json.loads(os.environ['TF_CONFIG'])['task']\n"
      "print('up', task['type'], os.getpid(), flush=True)\n"
      "go = sys.argv[1]\n"
      "while not os.path.exists(go):\n"
      "    time.sleep(0.02)\n"
      "while task['type'] != 'chief':\n"
      "    time.sleep(1)\n");
  Ok(Training("alone", {"--scale-tier",
                        "custom",
                        "--master-machine-type",
                        "n1-standard-4",
                        "--worker-machine-type",
                        "n1-standard-4",
                        "--worker-count",
                        "1",
                        "--parameter-server-machine-type",
                        "n1-standard-4",
                        "--parameter-server-count",
                        "1",
                        "--package-path",
                        package,
                        "--module-name",
                        "trainer.task",
                        "--runtime-version",
                        "2.11",
                        "--",
                        Path("go")}));
  ASSERT_TRUE(Eventually([&] {
    return HasLine("alone", 0, "up") && HasLine("alone", 1, "up") &&
           HasLine("alone", 2, "up");
  }));
  const v1::Job before = WaitFor("alone", v1::JOB_STATE_RUNNING);
  const int64_t chief = PidOf(before, 0);
  const int64_t worker = PidOf(before, 1);
  ASSERT_GT(worker, 0);
  ASSERT_EQ(kill(static_cast<pid_t>(worker), SIGKILL), 0);
  const v1::Job after =
      WaitUntil("alone", "the worker is back", [&](const v1::Job& job) {
        const int64_t now = PidOf(job, 1);
        return now > 0 && now != worker;
      });
  EXPECT_EQ(after.generation(), before.generation());
  EXPECT_EQ(PidOf(after, 0), chief);
  EXPECT_EQ(after.tasks(1).address(), before.tasks(1).address());
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("alone", v1::JOB_STATE_SUCCEEDED);
  std::vector<v1::Reason> reasons;
  for (const v1::Event& event : job.events()) {
    reasons.push_back(event.reason());
  }
  EXPECT_THAT(reasons, Contains(v1::REASON_WORKER_RESTARTED));
}

// Two jobs of two tasks each at once, cancelled at random moments, in every
// third round one of them in containers: the fixture looks for what is left.
// LOCKSTEP_TEST_ROUNDS: how many (10).
TEST_F(FrontDoorTest, RoundsOfTwoJobsWithRandomCancels) {
  const std::string package = Package(
      "import os, socket, sys\n"
      "s = socket.socket()\n"
      "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
      "s.bind((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))"
      " if os.environ['RANK'] == '0' else ('127.0.0.1', 0))\n"
      "s.listen()\n"
      "print('listening', flush=True)\n"
      "if sys.argv[1] == 'stay':\n"
      "    import time; time.sleep(1000)\n");
  const std::string image = "localhost/rounds-" + RandomHex(4) + ":1";
  const std::string engine = Engine();
  if (!engine.empty()) {
    MakeImage(image, "program",
              "echo listening\n"
              "if [ $1 = stay ]; then busybox sleep 1000; fi\n",
              "[\"program\"]");
  }
  const std::vector<std::string> code = {"--package-path",    package,
                                         "--module-name",     "trainer.task",
                                         "--runtime-version", "2.11"};
  const char* const given = getenv("LOCKSTEP_TEST_ROUNDS");
  const int rounds = given != nullptr ? atoi(given) : 10;
  std::mt19937 random(20260);
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::string> names;
    std::vector<bool> stays;
    for (const char* which : {"a", "b"}) {
      names.push_back(fmt::format("{}{}", which, round));
      stays.push_back(random() % 2 == 0);
      std::vector<std::string> arguments = code;
      if (!engine.empty() && *which == 'b' && round % 3 == 2) {
        arguments = {"--master-image-uri", image};
      }
      arguments.insert(
          arguments.end(),
          {"--scale-tier", "custom", "--master-machine-type", "n1-standard-4",
           "--worker-machine-type", "n1-standard-4", "--worker-count", "1",
           "--", stays.back() ? "stay" : "end"});
      Ok(Training(names.back(), arguments));
    }
    for (int i = 0; i < 2; ++i) {
      if (!stays[i]) continue;
      const auto moment = random() % 3;
      if (moment == 1) WaitFor(names[i], v1::JOB_STATE_RUNNING);
      if (moment == 2) {
        ASSERT_TRUE(Eventually([&] {
          return HasLine(names[i], 0, "listening");
        })) << names[i];
      }
      ASSERT_TRUE(client()->CancelJob(names[i]).ok());
    }
    for (int i = 0; i < 2; ++i) {
      WaitEnd(names[i],
              stays[i] ? v1::JOB_STATE_CANCELLED : v1::JOB_STATE_SUCCEEDED);
    }
  }
}

}  // namespace
}  // namespace lockstep
