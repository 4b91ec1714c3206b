// The main job, small: pack, train on ranks, save; and the arithmetic of
// synchronous training with a real network.
#include <signal.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>

#include "tests/cluster/fixture.h"
#include "tests/support/small_disk.h"
#include "worker/checkpoint/safetensors.h"

namespace lockstep::worker {
namespace {

using ::testing::HasSubstr;

// Packing and LibTorch are slow under load.
constexpr Duration kTrainingTime = std::chrono::seconds(120);

// ||a - b|| / ||a||.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{a[i]} * a[i];
  }
  return std::sqrt(difference / norm);
}

class TrainerTest : public ClusterTest {
 protected:
  void SetUp() override {
    if (!RealFileSystem()->Exists(Binary("lockstep-train"))) {
      manual_start_ = true;
      GTEST_SKIP() << "lockstep-train was not built (no LibTorch)";
    }
    ClusterTest::SetUp();
  }

  std::string Pack(const std::string& name, int count) {
    return PackImages(name, count, 1000);
  }

  v1::JobSpec Train(const std::string& name, int tasks,
                    std::vector<std::string> flags) {
    flags.insert(flags.begin(), "lockstep-train");
    v1::JobSpec spec = Spec(name, v1::JOB_KIND_NATIVE, tasks, std::move(flags));
    spec.set_output_directory(OutputOf(name));
    return spec;
  }
  // SGD without anything that would hide a difference.
  v1::Job TrainEpoch(const std::string& name, int tasks, int batch) {
    return RunJob(Train(name, tasks,
                        {"--train", data_, "--epochs", "1", "--batch-size",
                         std::to_string(batch), "--momentum", "0",
                         "--weight-decay", "0", "--lr-schedule", "constant"}),
                  v1::JOB_STATE_SUCCEEDED, kTrainingTime);
  }
  // By name. Empty, with a failure of the test, where there is no model.
  std::map<std::string, std::vector<float>> Model(const std::string& job) {
    std::map<std::string, std::vector<float>> model;
    const auto file = checkpoint::Safetensors::Load(
        RealFileSystem(), OutputOf(job) + "/model.safetensors");
    EXPECT_TRUE(file.ok()) << file.status();
    if (!file.ok()) return model;
    for (const checkpoint::TensorView& tensor : file->tensors()) {
      std::vector<float>& values = model[tensor.name];
      values.resize(tensor.bytes / sizeof(float));
      std::memcpy(values.data(), tensor.data, tensor.bytes);
    }
    EXPECT_FALSE(model.empty());
    return model;
  }

  std::string data_;
};

TEST_F(TrainerTest, TheMainJobSmall) {
  const std::string train = Pack("train", 1200);
  const std::string eval = Pack("eval", 200);
  const CommandResult checked =
      RunCommand({Binary("lockstep"), "data", "check", train});
  EXPECT_EQ(checked.code, 0) << checked.err;

  v1::JobSpec spec = Train("main", 2,
                           {"--train", train, "--eval", eval, "--epochs", "1",
                            "--batch-size", "20"});
  spec.mutable_checkpoint()->set_interval_steps(10);
  const v1::Job job = RunJob(spec, v1::JOB_STATE_SUCCEEDED, kTrainingTime);
  EXPECT_EQ(job.committed_step(), 30);
  EXPECT_EQ(job.last_checkpoint().step(), 30);
  EXPECT_EQ(job.artifacts().at("model"),
            OutputOf("main") + "/model.safetensors");
  ASSERT_EQ(job.attempts_size(), 1);
  const v1::RankStatus& chief = job.attempts(0).tasks(0).ranks(0);
  EXPECT_GT(chief.progress().values().at("accuracy"), 0.9);
  EXPECT_EQ(chief.progress().samples() +
                job.attempts(0).tasks(1).ranks(0).progress().samples(),
            1200);
  // Its time by phases is its wall time.
  const v1::PhaseSeconds& p = chief.progress().phases();
  const double sum = p.input() + p.compute() + p.allreduce() +
                     p.straggler_wait() + p.optimizer() + p.checkpoint() +
                     p.evaluation() + p.other();
  EXPECT_GT(sum, 0.05 * chief.usage().seconds());
  EXPECT_LE(sum, chief.usage().seconds() + 0.1);
  const auto model = checkpoint::Safetensors::Load(RealFileSystem(),
                                                   job.artifacts().at("model"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_NE(model->Find("conv1.weight"), nullptr);
}

// Only the lost rank starts again; the model is trained to the end.
TEST_F(TrainerTest, ALostRankIsReplacedInPlace) {
  const std::string train = Pack("train", 1200);
  const std::string eval = Pack("eval", 200);
  v1::JobSpec spec = Train("stays", 2,
                           {"--recover", "--train", train, "--eval", eval,
                            "--epochs", "5", "--batch-size", "20"});
  spec.mutable_checkpoint()->set_interval_steps(10);
  Submit(spec);
  const v1::Job before = WaitUntil(
      "stays", "step 20",
      [&](const v1::Job& job) {
        return job.state() == v1::JOB_STATE_RUNNING &&
               CommittedOnPage(job, 0) >= 20;
      },
      kTrainingTime);
  ASSERT_EQ(kill(static_cast<pid_t>(PidOf(before, 1)), SIGKILL), 0);
  const v1::Job after = WaitUntil(
      "stays", "a new rank 1",
      [&](const v1::Job& job) {
        return Ranks(job)[1].recovery() == 1 && Ranks(job)[0].recovery() == 1;
      },
      kTrainingTime);
  EXPECT_EQ(PidOf(after, 0), PidOf(before, 0));
  EXPECT_NE(PidOf(after, 1), PidOf(before, 1));
  const v1::Job job = WaitEnd("stays", v1::JOB_STATE_SUCCEEDED, kTrainingTime);
  EXPECT_EQ(job.generation(), 1u);
  EXPECT_EQ(job.recoveries(), 1);
  EXPECT_EQ(job.committed_step(), 150);
  EXPECT_EQ(job.last_checkpoint().step(), 150);
  ASSERT_EQ(job.attempts_size(), 1);
  EXPECT_GT(
      job.attempts(0).tasks(0).ranks(0).progress().values().at("accuracy"),
      0.9);
}

// The model is written last, maybe where no checkpoint was before.
TEST_F(TrainerTest, AFullDiskForTheModelIsWaitedFor) {
  data_ = Pack("data", 400);
  SmallDisk disk(Path("models"), "64m");
  if (!disk.mounted()) GTEST_SKIP() << "needs root, to mount a small disk";
  disk.Fill();
  Submit(Train("model", 2,
               {"--train", data_, "--epochs", "1", "--batch-size", "20",
                "--output", Path("models"), "--checkpoint-dir",
                OutputOf("model") + "/checkpoints"}));
  v1::Job job = WaitUntil(
      "model", "says that it waits",
      [](const v1::Job& now) {
        return now.cause().reason() == v1::REASON_OUTPUT_FULL;
      },
      kTrainingTime);
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(job.cause().message(), HasSubstr("cannot save the model to"));
  EXPECT_THAT(job.cause().message(), HasSubstr("No space left on device"));
  disk.Free();
  job = WaitEnd("model", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.generation(), 1u) << "nothing was computed again";
  const auto model = checkpoint::Safetensors::Load(RealFileSystem(),
                                                   job.artifacts().at("model"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_NE(model->Find("conv1.weight"), nullptr);
}

// 5,656 samples: 89 steps of 64, the last one short; 45 of 2 x 64.
TEST_F(TrainerTest, TheArithmeticOfSynchronousTraining) {
  data_ = Pack("data", 5656);
  EXPECT_EQ(TrainEpoch("one64", 1, 64).committed_step(), 89);
  EXPECT_EQ(TrainEpoch("two64", 2, 64).committed_step(), 45);
  EXPECT_EQ(TrainEpoch("one128", 1, 128).committed_step(), 45);
  EXPECT_EQ(TrainEpoch("again64", 2, 64).committed_step(), 45);

  const auto two = Model("two64");
  EXPECT_TRUE(two == Model("again64")) << "two runs differ";
  double most = 0;
  double others = 0;
  const auto other = Model("one64");
  for (const auto& [name, values] : Model("one128")) {
    ASSERT_TRUE(two.contains(name) && other.contains(name));
    const double distance = Distance(values, two.at(name));
    EXPECT_LE(distance, 1e-5) << name;
    most = std::max(most, distance);
    others = std::max(others, Distance(values, other.at(name)));
  }
  // It would show: another global batch gives another model.
  EXPECT_GT(others, 1e-3);
  std::printf("2 x 64 against 1 x 128: at most %.2g of a tensor's norm\n",
              most);
}

TEST_F(TrainerTest, AKilledTrainerGoesOnToTheSameModel) {
  data_ = Pack("data", 1280);
  const std::vector<std::string> flags = {
      "--train",      data_, "--epochs",    "2",
      "--batch-size", "32",  "--optimizer", "adam"};
  v1::JobSpec calm = Train("calm", 2, flags);
  calm.mutable_checkpoint()->set_interval_steps(8);
  RunJob(calm, v1::JOB_STATE_SUCCEEDED, kTrainingTime);

  std::vector<std::string> faulty = flags;
  for (const char* flag : {"--allow-faults", "--kill-at-step", "29",
                           "--on-rank", "1", "--step-delay-ms", "20"}) {
    faulty.push_back(flag);
  }
  v1::JobSpec spec = Train("killed", 2, faulty);
  spec.mutable_checkpoint()->set_interval_steps(8);
  const v1::Job job = RunJob(spec, v1::JOB_STATE_SUCCEEDED, kTrainingTime);
  ASSERT_EQ(job.attempts_size(), 2);
  EXPECT_THAT(job.attempts(0).end_cause().message(), HasSubstr("rank 1"));
  EXPECT_GE(job.attempts(1).resumed_step(), 8);
  EXPECT_EQ(job.committed_step(), 40);
  EXPECT_TRUE(Model("calm") == Model("killed"));
}

}  // namespace
}  // namespace lockstep::worker
