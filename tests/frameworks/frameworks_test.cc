// Programs of others, unmodified: TensorFlow, PyTorch and JAX find each other
// by what lockstep puts into their environment.
//
// LOCKSTEP_FRAMEWORKS names the folder that tests/frameworks/setup made; the
// tests are skipped without it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/os/process.h"
#include "common/os/procfs.h"
#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// A framework takes seconds to be imported, on two cores by two ranks.
constexpr Duration kFrameworkTime = std::chrono::seconds(180);

std::string Environment(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

class FrameworksTest : public ClusterTest {
 protected:
  void SetUp() override {
    frameworks_ = Environment("LOCKSTEP_FRAMEWORKS");
    if (frameworks_.empty()) {
      manual_start_ = true;  // No cluster for a test that is skipped.
      ClusterTest::SetUp();
      GTEST_SKIP() << "no frameworks: run tests/frameworks/setup DIR and set "
                      "LOCKSTEP_FRAMEWORKS=DIR";
    }
    ClusterTest::SetUp();
  }

  static std::string Programs() {
    return Environment("LOCKSTEP_SOURCE") + "/tests/frameworks/programs";
  }
  // A program job of chief and workers, run by a framework's own interpreter.
  v1::JobSpec Python(const std::string& name, const std::string& framework,
                     int tasks, std::vector<std::string> args) {
    args.insert(args.begin(), frameworks_ + "/" + framework + "/bin/python");
    v1::JobSpec spec = Program(name, tasks, std::move(args));
    auto& environment = *spec.mutable_environment();
    environment["PYTHONPATH"] = Programs();
    environment["PYTHONDONTWRITEBYTECODE"] = "1";
    if (framework == "tensorflow") {
      environment["TF_CPP_MIN_LOG_LEVEL"] = "2";
      // Keras 3 cannot train under MultiWorkerMirroredStrategy.
      environment["TF_USE_LEGACY_KERAS"] = "1";
      environment["JAX_PLATFORMS"] = "cpu";
    }
    return spec;
  }
  v1::JobSpec Torch(const std::string& name, int tasks) {
    return Python(name, "torch", tasks, {Programs() + "/ddp.py"});
  }
  static v1::RoleSpec* Role(v1::JobSpec* spec, v1::TaskType type) {
    for (v1::RoleSpec& role : *spec->mutable_roles()) {
      if (role.type() == type) return &role;
    }
    v1::RoleSpec* role = spec->add_roles();
    *role = spec->roles(0);
    role->set_type(type);
    role->set_count(1);
    return role;
  }
  std::string Pack(const std::string& name, int count) {
    return PackImages(name, count, 500);
  }
  v1::JobSpec MultiWorker(const std::string& name, int epochs) {
    const std::string dir = OutputOf(name);
    EXPECT_TRUE(RealFileSystem()->MakeDirs(dir).ok());
    return Python(name, "tensorflow", 2,
                  {"-m", "trainer.task", "--data", Pack("data", 1000),
                   "--job-dir", dir, "--epochs", std::to_string(epochs)});
  }

  void KillRank(const v1::Job& job, int rank) {
    const auto pid = static_cast<pid_t>(PidOf(job, rank));
    const auto start = StartTime(pid);
    ASSERT_TRUE(start.ok()) << start.status();
    const auto process = OpenVerified({pid, *start});
    ASSERT_TRUE(process.ok()) << process.status();
    ASSERT_TRUE(SendSignal(*process, SIGKILL).ok());
  }
  // Kills `rank` of a running job of two: the verdict names it, and the other
  // ends soon, however its framework waits.
  void KillAndSeeTheOtherGo(const std::string& name, int rank) {
    const v1::Job running = Get(name);
    const auto other = static_cast<pid_t>(PidOf(running, 1 - rank));
    ASSERT_GT(other, 0);
    const uint64_t generation = running.generation();
    const MonoTime killed = MonotonicNow();
    KillRank(running, rank);
    ASSERT_TRUE(Eventually([&] { return kill(other, 0) != 0; }));
    const double took = ToSeconds(MonotonicNow() - killed);
    std::cout << name << ": the other rank gone after "
              << fmt::format("{:.2f}", took) << " s\n";
    // The tree is killed 1 s after the first report at the latest; ten seconds
    // allow for a loaded machine.
    EXPECT_LT(took, 10);
    const v1::Job again = WaitUntil(
        name, "the next generation runs",
        [&](const v1::Job& job) {
          return job.generation() > generation &&
                 job.state() == v1::JOB_STATE_RUNNING;
        },
        kFrameworkTime);
    ASSERT_THAT(again.attempts(), SizeIs(1));
    EXPECT_EQ(again.attempts(0).end_cause().reason(), v1::REASON_RANK_SIGNAL);
    EXPECT_THAT(again.attempts(0).end_cause().message(),
                HasSubstr(fmt::format("rank {}", rank)));
    EXPECT_THAT(again.attempts(0).end_cause().message(), HasSubstr("SIGKILL"));
    // In place: each task where it was.
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(again.tasks(i).node(), again.attempts(0).tasks(i).node());
    }
  }

  std::string frameworks_;
};

// By the command and the words of AI Platform, from a folder with the code.
TEST_F(FrameworksTest, MultiWorkerMirroredStrategyTrainsOnPackedRecords) {
  UseSite(
      fmt::format("defaults: true\n"
                  "machines:\n"
                  "  n1-standard-8: {{request: {{cpus: 1, memory: "
                  "64MiB}}}}\n"
                  "runtimes:\n"
                  "  tensorflow: {{python: {}/tensorflow/bin/python, "
                  "versions: [\"2.*\"]}}\n",
                  frameworks_));
  const CommandResult trained = Lockstep({"jobs",
                                          "submit",
                                          "training",
                                          "mwms",
                                          "--region",
                                          "us-central1",
                                          "--scale-tier",
                                          "custom",
                                          "--master-machine-type",
                                          "n1-standard-8",
                                          "--worker-machine-type",
                                          "n1-standard-8",
                                          "--worker-count",
                                          "1",
                                          "--package-path",
                                          Programs() + "/trainer",
                                          "--module-name",
                                          "trainer.task",
                                          "--runtime-version",
                                          "2.21",
                                          "--job-dir",
                                          OutputOf("mwms"),
                                          "--env",
                                          "TF_USE_LEGACY_KERAS=1",
                                          "--env",
                                          "TF_CPP_MIN_LOG_LEVEL=2",
                                          "--stream-logs",
                                          "--",
                                          "--data",
                                          Pack("data", 1000)},
                                         kFrameworkTime);
  EXPECT_EQ(trained.code, 0) << trained.err << trained.out;
  const v1::Job job = WaitEnd("mwms", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.restarts(), 0);
  ASSERT_GE(job.outputs_size(), 1);
  EXPECT_EQ(job.outputs(0).kind(), "saved_model");
  const std::string chief = Line("mwms", 0, "trained");
  const std::string worker = Line("mwms", 1, "trained");
  EXPECT_THAT(chief, HasSubstr("trained chief 0 replicas 2 loss"));
  EXPECT_THAT(worker, HasSubstr("trained worker 0 replicas 2 loss"));
  // They trained one model.
  EXPECT_EQ(chief.substr(chief.find("loss")),
            worker.substr(worker.find("loss")));
  EXPECT_TRUE(
      RealFileSystem()->Exists(OutputOf("mwms") + "/model/saved_model.pb"));
  EXPECT_FALSE(RealFileSystem()->Exists(OutputOf("mwms") + "/workertemp_0"));
}

TEST_F(FrameworksTest, AClusterOfWorkersOnly) {
  v1::JobSpec spec = MultiWorker("workers", 1);
  spec.mutable_roles()->Clear();
  v1::RoleSpec* role = spec.add_roles();
  role->set_type(v1::TASK_TYPE_WORKER);
  role->set_count(2);
  role->mutable_resources()->set_cpus(1);
  RunJob(spec, v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  EXPECT_THAT(Line("workers", 0, "trained"), HasSubstr("worker 0 replicas 2"));
  EXPECT_THAT(Line("workers", 1, "trained"), HasSubstr("worker 1 replicas 2"));
}

// Neither ps nor worker ever ends by itself.
TEST_F(FrameworksTest, AParameterServerEndsWithTheChief) {
  v1::JobSpec spec =
      Python("ps", "tensorflow", 2, {Programs() + "/parameter_server.py"});
  Role(&spec, v1::TASK_TYPE_PS);
  for (v1::RoleSpec& role : *spec.mutable_roles()) {
    role.mutable_resources()->set_cpus(0.5);
  }
  const v1::Job job = RunJob(spec, v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  EXPECT_EQ(job.exit_code(), 0);
  EXPECT_EQ(Line("ps", 0, "weight"), "weight 1.001");
  EXPECT_THAT(Line("ps", 2, "serving"), HasSubstr("serving ps 0"));
}

TEST_F(FrameworksTest, MirroredStrategyIsOneTask) {
  RunJob(Python("mirrored", "tensorflow", 1, {Programs() + "/mirrored.py"}),
         v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  EXPECT_EQ(Line("mirrored", 0, "replicas"), "replicas 1 task chief");
}

TEST_F(FrameworksTest, TheForgottenChiefIsExplained) {
  v1::JobSpec spec =
      Python("master", "tensorflow", 1, {Programs() + "/master.py"});
  spec.set_master_in_tf_config(true);
  spec.set_restart_budget(0);
  const v1::Job job = RunJob(spec, v1::JOB_STATE_FAILED, kFrameworkTime);
  EXPECT_THAT(job.cause().message(), HasSubstr("useChiefInTfConfig"));
  EXPECT_THAT(job.cause().message(), HasSubstr("Disallowed task type"));
}

TEST_F(FrameworksTest, DistributedDataParallelOverTwoTasks) {
  RunJob(Torch("ddp", 2), v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  EXPECT_EQ(Line("ddp", 0, "rank"), "rank 0 of 2 local 0 same True");
  EXPECT_EQ(Line("ddp", 1, "rank"), "rank 1 of 2 local 0 same True");
}

TEST_F(FrameworksTest, DistributedDataParallelInOneTask) {
  v1::JobSpec spec = Torch("ddp", 1);
  spec.mutable_roles(0)->set_ranks_per_task(2);
  RunJob(spec, v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  EXPECT_EQ(Line("ddp", 0, "rank"), "rank 0 of 2 local 0 same True");
  EXPECT_EQ(Line("ddp", 1, "rank"), "rank 1 of 2 local 1 same True");
}

// It knows nothing of lockstep: it saves, and resumes with the ranks that it
// has.
TEST_F(FrameworksTest, ARescaledDistributedDataParallelKeepsItsResult) {
  v1::JobSpec spec =
      Python("rescaled", "torch", 2, {Programs() + "/rescaled.py"});
  (*spec.mutable_environment())["CHECKPOINT"] = Path("checkpoint.pt");
  (*spec.mutable_environment())["STOP_FILE"] = Path("stop");
  spec.set_elastic_min_tasks(1);
  spec.set_rescale(true);
  spec.set_restart_budget(0);
  Submit(spec);
  const auto await_steps = [&](uint64_t generation, int tasks) {
    const v1::Job job = WaitUntil(
        "rescaled", fmt::format("{} tasks", tasks),
        [&](const v1::Job& now) {
          return now.generation() == generation &&
                 now.state() == v1::JOB_STATE_RUNNING &&
                 now.tasks_size() == tasks;
        },
        kFrameworkTime);
    EXPECT_TRUE(Eventually(
        [&] {
          const auto lines =
              Output("rescaled", 0, static_cast<int>(generation));
          return std::any_of(
              lines.begin(), lines.end(), [&](const std::string& line) {
                return line.starts_with("step ") &&
                       line.ends_with(fmt::format(" by {}", tasks));
              });
        },
        kFrameworkTime));
  };
  const auto resize = [&](const std::string& tasks) {
    const CommandResult done =
        Lockstep({"jobs", "resize", "rescaled", "--tasks", tasks});
    EXPECT_EQ(done.code, 0) << done.err;
  };
  await_steps(1, 2);
  resize("1");
  await_steps(2, 1);
  resize("2");
  await_steps(3, 2);
  WriteFile(Path("stop"), "");
  WaitEnd("rescaled", v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  EXPECT_EQ(Line("rescaled", 0, "same", 3), "same True");
  for (int attempt = 2; attempt <= 3; ++attempt) {
    const std::string start = Line("rescaled", 0, "starts at ", attempt);
    EXPECT_NE(start, "");
    EXPECT_THAT(start, Not(HasSubstr("starts at 0 ")));
  }
}

// Its own launcher reads PET_NNODES and the others.
TEST_F(FrameworksTest, ATorchrunIsToldByItsOwnVariables) {
  v1::JobSpec spec =
      Python("torchrun", "torch", 2,
             {"-m", "torch.distributed.run", Programs() + "/ddp.py"});
  RunJob(spec, v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  EXPECT_EQ(Line("torchrun", 0, "rank"), "rank 0 of 2 local 0 same True");
  EXPECT_EQ(Line("torchrun", 1, "rank"), "rank 1 of 2 local 0 same True");
}

TEST_F(FrameworksTest, JaxFormsACluster) {
  RunJob(Python("jax", "tensorflow", 2, {Programs() + "/jax_two.py"}),
         v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  EXPECT_EQ(Line("jax", 0, "process"), "process 0 of 2 devices 2");
  EXPECT_EQ(Line("jax", 1, "process"), "process 1 of 2 devices 2");
}

TEST_F(FrameworksTest, JaxFormsAClusterWithoutArguments) {
  v1::JobSpec spec =
      Python("bare", "tensorflow", 2, {Programs() + "/jax_bare.py"});
  // Two ranks of a task are told apart as well.
  spec.mutable_roles(1)->set_ranks_per_task(2);
  RunJob(spec, v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Line("bare", rank, "process"),
              fmt::format("process {} of 3 devices 3", rank));
    EXPECT_EQ(Line("bare", rank, "gathered"), "gathered [0, 1, 2]");
  }
}

TEST_F(FrameworksTest, AKilledRankOfPyTorchTakesTheOtherWithItAndComesBack) {
  v1::JobSpec spec = Torch("killed", 2);
  (*spec.mutable_environment())["STOP_FILE"] = Path("stop");
  Submit(spec);
  ASSERT_TRUE(Eventually(
      [&] {
        return HasLine("killed", 0, "stepping") &&
               HasLine("killed", 1, "stepping");
      },
      kFrameworkTime));
  KillAndSeeTheOtherGo("killed", 1);
  WriteFile(Path("stop"), "");
  WaitEnd("killed", v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
}

TEST_F(FrameworksTest, AKilledRankOfTensorFlowTakesTheOtherWithItAndComesBack) {
  v1::JobSpec spec = MultiWorker("killed", 1000);
  (*spec.mutable_environment())["STOP_FILE"] = Path("stop");
  Submit(spec);
  ASSERT_TRUE(Eventually([&] { return HasLine("killed", 0, "Epoch 2"); },
                         kFrameworkTime));
  WriteFile(Path("stop"), "");
  KillAndSeeTheOtherGo("killed", 1);
  const v1::Job job =
      WaitEnd("killed", v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  EXPECT_EQ(job.restarts(), 1);
  EXPECT_THAT(Line("killed", 0, "trained", 2), HasSubstr("chief 0 replicas 2"));
  EXPECT_TRUE(
      RealFileSystem()->Exists(OutputOf("killed") + "/model/saved_model.pb"));
}

TEST_F(FrameworksTest, AKilledRankOfJaxTakesTheOtherWithItAndComesBack) {
  v1::JobSpec spec =
      Python("killed", "tensorflow", 2, {Programs() + "/jax_two.py"});
  (*spec.mutable_environment())["STOP_FILE"] = Path("stop");
  Submit(spec);
  ASSERT_TRUE(Eventually(
      [&] {
        return HasLine("killed", 0, "process") &&
               HasLine("killed", 1, "process");
      },
      kFrameworkTime));
  KillAndSeeTheOtherGo("killed", 1);
  WriteFile(Path("stop"), "");
  WaitEnd("killed", v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
}

// A worker that is lost is started again alone: chief and parameters stay, and
// TensorFlow's coordinator gives it work again.
TEST_F(FrameworksTest, AKilledWorkerOfAParameterServerJobComesBackAlone) {
  v1::JobSpec spec =
      Python("ps", "tensorflow", 2, {Programs() + "/parameter_server.py"});
  (*spec.mutable_environment())["STOP_FILE"] = Path("stop");
  spec.set_restart_worker_alone(true);
  Role(&spec, v1::TASK_TYPE_PS);
  for (v1::RoleSpec& role : *spec.mutable_roles()) {
    role.mutable_resources()->set_cpus(0.5);
  }
  Submit(spec);
  ASSERT_TRUE(
      Eventually([&] { return HasLine("ps", 0, "halfway"); }, kFrameworkTime));
  const v1::Job before = Get("ps");
  KillRank(before, 1);
  const v1::Job after = WaitUntil(
      "ps", "the worker is back",
      [&](const v1::Job& job) {
        const int64_t pid = PidOf(job, 1);
        return pid > 0 && pid != PidOf(before, 1);
      },
      kFrameworkTime);
  WriteFile(Path("stop"), "");
  const v1::Job job = WaitEnd("ps", v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  EXPECT_EQ(job.generation(), before.generation());
  EXPECT_EQ(PidOf(after, 0), PidOf(before, 0));
  EXPECT_EQ(PidOf(after, 2), PidOf(before, 2));
  EXPECT_EQ(after.tasks(1).address(), before.tasks(1).address());
  // A step may have been done twice.
  EXPECT_THAT(Line("ps", 0, "weight"), HasSubstr("weight 1.00"));
}

// Without its parameters nobody can go on: all start again, and finish.
TEST_F(FrameworksTest, AKilledParameterServerRestartsAll) {
  v1::JobSpec spec =
      Python("ps", "tensorflow", 2, {Programs() + "/parameter_server.py"});
  Role(&spec, v1::TASK_TYPE_PS);
  for (v1::RoleSpec& role : *spec.mutable_roles()) {
    role.mutable_resources()->set_cpus(0.5);
  }
  Submit(spec);
  ASSERT_TRUE(
      Eventually([&] { return HasLine("ps", 2, "serving"); }, kFrameworkTime));
  KillRank(Get("ps"), 2);
  const v1::Job job = WaitEnd("ps", v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  EXPECT_EQ(job.restarts(), 1);
  EXPECT_THAT(job.attempts(0).end_cause().message(), HasSubstr("ps 0"));
  EXPECT_EQ(Line("ps", 0, "weight"), "weight 1.001");
}

// What lockstep-train wrote means the same to PyTorch.
TEST_F(FrameworksTest, PyTorchReadsTheTrainedModel) {
  const std::string eval = Pack("eval", 400);
  v1::JobSpec spec =
      Spec("train", v1::JOB_KIND_NATIVE, 1,
           {"lockstep-train", "--train", Pack("train", 1200), "--eval", eval,
            "--epochs", "1", "--batch-size", "20"});
  spec.set_output_directory(OutputOf("train"));
  const v1::Job job = RunJob(spec, v1::JOB_STATE_SUCCEEDED, kFrameworkTime);
  const double accuracy =
      job.attempts(0).tasks(0).ranks(0).progress().values().at("accuracy");
  const CommandResult read = RunCommand(
      {frameworks_ + "/torch/bin/python", Programs() + "/accuracy.py",
       OutputOf("train") + "/model.safetensors", Path("eval-images"),
       Path("eval-labels")},
      {}, kFrameworkTime);
  ASSERT_EQ(read.code, 0) << read.err;
  EXPECT_NEAR(std::stod(read.out), accuracy, 1e-6) << read.out;
}

}  // namespace
}  // namespace lockstep
