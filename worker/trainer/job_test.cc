// Whole jobs of lockstep-train processes: the arithmetic of synchronous
// training, evaluation, and how a job ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/file.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/trainer/testing.h"

namespace lockstep::worker::trainer {
namespace {

using rank_link::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The distance between two models, as part of the first one's size. Of the
// whole model: sums of other batches round otherwise, and a tensor that is
// small itself, a bias, shows it more.
double Distance(const std::string& first, const std::string& second) {
  const auto one = checkpoint::Safetensors::Load(RealFileSystem(),
                                                 first + "/model.safetensors");
  const auto two = checkpoint::Safetensors::Load(RealFileSystem(),
                                                 second + "/model.safetensors");
  EXPECT_TRUE(one.ok()) << one.status();
  EXPECT_TRUE(two.ok()) << two.status();
  if (!one.ok() || !two.ok()) return 1;
  EXPECT_EQ(one->tensors().size(), 10u);
  double difference = 0;
  double size = 0;
  for (const checkpoint::TensorView& tensor : one->tensors()) {
    const checkpoint::TensorView* other = two->Find(tensor.name);
    if (other == nullptr || other->bytes != tensor.bytes) {
      ADD_FAILURE() << tensor.name;
      return 1;
    }
    const auto* a = static_cast<const float*>(tensor.data);
    const auto* b = static_cast<const float*>(other->data);
    for (uint64_t k = 0; k < tensor.bytes / sizeof(float); ++k) {
      difference += std::pow(double{a[k]} - double{b[k]}, 2);
      size += std::pow(double{a[k]}, 2);
    }
  }
  return std::sqrt(difference / size);
}

class JobTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    data_ = new TempDir;
    // The sizes of the flowers in the tutorials this follows.
    WriteQuarters(data_->path() + "/train", 5656, 1);
    WriteQuarters(data_->path() + "/eval", 503, 2);
  }
  static void TearDownTestSuite() { delete data_; }

  // SGD without anything that would hide a difference.
  static JobOptions Job(int ranks, int batch, std::string output) {
    JobOptions job;
    job.ranks = ranks;
    job.output = std::move(output);
    job.flags = {"--train",        data_->path() + "/train",
                 "--batch-size",   std::to_string(batch),
                 "--epochs",       "1",
                 "--classes",      "4",
                 "--momentum",     "0",
                 "--weight-decay", "0",
                 "--lr-schedule",  "constant",
                 "--param-hash"};
    return job;
  }
  static void Add(JobOptions* job, std::initializer_list<std::string> flags) {
    job->flags.insert(job->flags.end(), flags);
  }
  std::string Output(const std::string& name) const {
    return output_.path() + "/" + name;
  }
  static void ExpectAllOk(const std::vector<RankResult>& results) {
    for (const RankResult& result : results) {
      EXPECT_EQ(result.code, 0) << result.output;
    }
  }

  static TempDir* data_;
  TempDir output_;
};
TempDir* JobTest::data_ = nullptr;

TEST_F(JobTest, StepsOfAnEpoch) {
  auto one = RunJob(Job(1, 64, Output("one")));
  ExpectAllOk(one);
  EXPECT_THAT(one[0].output, AllOf(HasSubstr("1 epoch of 89 steps"),
                                   HasSubstr("done after step 89 of 89")));
  auto two = RunJob(Job(2, 64, Output("two")));
  ExpectAllOk(two);
  EXPECT_THAT(two[0].output, AllOf(HasSubstr("1 epoch of 45 steps"),
                                   HasSubstr("done after step 45 of 45")));
  EXPECT_EQ(ParamHash(two[0]).substr(0, 3), "45 ");
}

TEST_F(JobTest, TwoReplicasEqualOneWithTwiceTheBatch) {
  ExpectAllOk(RunJob(Job(1, 128, Output("one"))));
  ExpectAllOk(RunJob(Job(2, 64, Output("two"))));
  EXPECT_LE(Distance(Output("one"), Output("two")), 1e-5);
}

TEST_F(JobTest, AccumulatedPassesEqualOneLargeBatch) {
  ExpectAllOk(RunJob(Job(1, 128, Output("one"))));
  JobOptions job = Job(2, 16, Output("four"));
  Add(&job, {"--accumulate", "4"});
  TestJob running(job);
  const auto four = running.Wait();
  ExpectAllOk(four);
  // A step is all passes of all replicas.
  EXPECT_THAT(four[0].output, AllOf(HasSubstr("1 epoch of 45 steps"),
                                    HasSubstr("128 samples per step")));
  EXPECT_EQ(ParamHash(four[0]), ParamHash(four[1]));
  uint64_t samples = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const task::RankCounters counters = running.page(rank).counters;
    samples += counters.samples;
    EXPECT_EQ(counters.steps_committed, 45u);
    EXPECT_EQ(counters.global_batch, 128u);
    // Reductions are a step's, not a pass's: one bucket, as large as it is, and
    // before the first those by which the size of buckets is measured.
    EXPECT_LT(counters.collectives, 2 * 45u);
  }
  EXPECT_EQ(samples, 5656u);
  EXPECT_LE(Distance(Output("one"), Output("four")), 1e-5);
}

TEST_F(JobTest, ClippingHoldsTheGradientDown) {
  JobOptions job = Job(2, 64, Output("clipped"));
  Add(&job, {"--clip-norm", "1e-6", "--max-steps", "20"});
  const auto clipped = RunJob(job);
  ExpectAllOk(clipped);
  EXPECT_EQ(ParamHash(clipped[0]), ParamHash(clipped[1]));
  JobOptions still = Job(2, 64, Output("still"));
  Add(&still, {"--learning-rate", "1e-30", "--max-steps", "20"});
  ExpectAllOk(RunJob(still));
  // 20 steps of at most 0.05 * 1e-6.
  const double moved = Distance(Output("still"), Output("clipped"));
  EXPECT_GT(moved, 0);
  EXPECT_LT(moved, 1e-6);
  // One that is never reached changes no bit.
  JobOptions free = Job(2, 64, Output("free"));
  Add(&free, {"--max-steps", "20"});
  JobOptions wide = free;
  wide.output = Output("wide");
  Add(&wide, {"--clip-norm", "1e9"});
  EXPECT_EQ(ParamHash(RunJob(free)[0]), ParamHash(RunJob(wide)[0]));
}

TEST_F(JobTest, TwoRunsAreBitEqual) {
  for (const char* optimizer : {"sgd", "adam"}) {
    JobOptions job = Job(2, 64, Output(std::string("a") + optimizer));
    Add(&job, {"--optimizer", optimizer, "--momentum", "0.9"});
    auto first = RunJob(job);
    job.output = Output(std::string("b") + optimizer);
    auto second = RunJob(job);
    ExpectAllOk(first);
    ExpectAllOk(second);
    EXPECT_EQ(ParamHash(first[0]), ParamHash(first[1]));
    EXPECT_EQ(ParamHash(first[0]), ParamHash(second[0]));
  }
}

TEST_F(JobTest, LearnsAndEvaluatesEachSampleOnce) {
  JobOptions job = Job(2, 32, Output("o"));
  Add(&job, {"--eval", data_->path() + "/eval", "--epochs", "2"});
  TestJob running(job);
  const auto results = running.Wait();
  ExpectAllOk(results);
  // An odd number of samples on two ranks: evaluation fails if one is lost.
  EXPECT_THAT(results[0].output, HasSubstr("on 503 held-out samples"));
  EXPECT_THAT(results[0].output, HasSubstr("accuracy 0.9"));
  std::string model;
  std::string saved;
  for (const v1::RankReport& report : running.reports(0)) {
    if (report.artifact_name() == "model") model = report.artifact_path();
    if (!report.checkpoint_path().empty()) saved = report.checkpoint_path();
  }
  EXPECT_EQ(model, Output("o") + "/model.safetensors");
  EXPECT_EQ(saved, Output("o") + "/checkpoints/step-000000178.g1");
}

TEST_F(JobTest, StopsEarlyWhereTheAccuracyRisesNoMore) {
  JobOptions job = Job(1, 64, Output("o"));
  Add(&job, {"--eval", data_->path() + "/eval", "--epochs", "9",
             "--learning-rate", "1e-30", "--early-stopping-patience", "2"});
  const auto results = RunJob(job);
  ExpectAllOk(results);
  EXPECT_THAT(results[0].output, HasSubstr("stopped early"));
  EXPECT_THAT(results[0].output, HasSubstr("after step 267 of 801"));
}

TEST_F(JobTest, AllSkipAStepWhoseGradientIsNoNumber) {
  JobOptions job = Job(2, 64, Output("o"));
  Add(&job, {"--allow-faults", "--nan-at-step", "7", "--on-rank", "1"});
  TestJob running(job);
  const auto results = running.Wait();
  ExpectAllOk(results);
  EXPECT_THAT(results[0].output, HasSubstr("skipped step 7:"));
  EXPECT_EQ(ParamHash(results[0]), ParamHash(results[1]));
  EXPECT_EQ(ParamHash(results[0]).substr(0, 3), "45 ");
}

TEST_F(JobTest, RanksThatDisagreeSayInWhat) {
  JobOptions job = Job(2, 64, Output("o"));
  job.only_rank = 1;
  job.only = {"--learning-rate", "0.2"};
  for (const RankResult& result : RunJob(job)) {
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.output, HasSubstr("learning-rate"));
  }
}

TEST_F(JobTest, AnOwnFailureIsToldApartFromItsVictims) {
  JobOptions job = Job(2, 64, Output("o"));
  Add(&job, {"--allow-faults", "--fail-at-step", "5", "--on-rank", "1"});
  TestJob running(job);
  const auto results = running.Wait();
  EXPECT_EQ(results[0].code, 75) << results[0].output;
  EXPECT_EQ(results[1].code, 1) << results[1].output;
  const auto said = running.reports(1);
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said.back().failure(), HasSubstr("step 5 fails"));
  EXPECT_FALSE(said.back().victim());
}

TEST_F(JobTest, WhatNoRestartCanMendEndsWithTwoAndASentence) {
  JobOptions missing = Job(1, 64, Output("o"));
  Add(&missing, {"--train", Output("nowhere")});
  JobOptions wrong = Job(1, 64, Output("o"));
  Add(&wrong, {"--epochs", "many"});
  const std::pair<JobOptions, std::string> cases[] = {{missing, "nowhere"},
                                                      {wrong, "--epochs"}};
  for (const auto& [job, word] : cases) {
    TestJob running(job);
    const auto results = running.Wait();
    EXPECT_EQ(results[0].code, 2) << results[0].output;
    const auto said = running.reports(0);
    ASSERT_FALSE(said.empty()) << word;
    EXPECT_THAT(said.back().failure(), HasSubstr(word));
  }
  // What trained before may find its data again elsewhere.
  missing.generation = 2;
  missing.starts = {0, 0};
  EXPECT_EQ(RunJob(missing)[0].code, 1);
}

TEST_F(JobTest, EachCheckpointIsReportedWithItsOwnPath) {
  JobOptions job = Job(2, 64, Output("o"));
  job.checkpoint_interval = 1;
  Add(&job, {"--max-steps", "20"});
  TestJob running(job);
  ExpectAllOk(running.Wait());
  int checkpoints = 0;
  for (const v1::RankReport& report : running.reports(0)) {
    if (report.checkpoint_path().empty()) continue;
    ++checkpoints;
    const std::string step = std::to_string(report.checkpoint_step());
    EXPECT_THAT(
        report.checkpoint_path(),
        HasSubstr("step-" + std::string(9 - step.size(), '0') + step + "."));
  }
  EXPECT_GT(checkpoints, 1);
}

TEST_F(JobTest, ThePagesTellWhatTimeAndInputWentInto) {
  JobOptions job = Job(2, 64, Output("o"));
  job.checkpoint_interval = 10;
  TestJob running(job);
  ExpectAllOk(running.Wait());
  for (int rank = 0; rank < 2; ++rank) {
    const task::RankPage page = running.page(rank);
    ASSERT_TRUE(page.has_counters);
    const task::RankCounters& c = page.counters;
    const double wall =
        static_cast<double>(page.progress.mono_nanos - c.start_mono_nanos) *
        1e-9;
    double sum = 0;
    for (const double seconds : c.phase_seconds) sum += seconds;
    EXPECT_NEAR(sum, wall, 0.01 * wall);
    const double exposed =
        c.phase_seconds[static_cast<size_t>(task::RankPhase::kAllReduce)];
    // But for what reading the clock takes, in steps of microseconds.
    EXPECT_GT(c.allreduce_busy_seconds + 1e-4, 0.99 * exposed);
    EXPECT_LT(c.allreduce_busy_seconds, wall);
    EXPECT_LT(std::abs(c.straggler_lag_seconds), wall);
    EXPECT_GE(c.input.bytes, 64 * c.samples);  // 8x8 pixels each.
    EXPECT_EQ(c.input.corrupt_records, 0u);
    EXPECT_GT(c.input.read_seconds, 0);
    EXPECT_GT(c.input.decode_seconds, 0);
    EXPECT_EQ(c.input.queue_depth, 0u);  // All were used.
    EXPECT_GT(c.input.queue_capacity, 0u);
    EXPECT_EQ(c.checkpoint_failures, 0u);
    EXPECT_GT(c.checkpoint_bytes, 0u);
    for (size_t i = 0; i < task::kCheckpointPhases; ++i) {
      const auto phase = static_cast<task::CheckpointPhase>(i);
      const bool none = phase == task::CheckpointPhase::kRestore ||
                        (rank != 0 && phase == task::CheckpointPhase::kCommit);
      EXPECT_EQ(c.checkpoint_seconds[i] > 0, !none) << i;
    }
  }
  // The next generation finds the last one.
  ++job.generation;
  job.starts.push_back(running.page(0).progress.last_committed);
  TestJob again(job);
  ExpectAllOk(again.Wait());
  EXPECT_GT(again.page(0).counters.checkpoint_seconds[static_cast<size_t>(
                task::CheckpointPhase::kRestore)],
            0);
}

TEST_F(JobTest, ADamagedRecordIsCounted) {
  const TempDir damaged;
  WriteQuarters(damaged.path(), 100, 1);
  const auto names = RealFileSystem()->List(damaged.path());
  ASSERT_TRUE(names.ok() && !names->empty());
  const std::string path = JoinPath(damaged.path(), names->front());
  std::string bytes = *RealFileSystem()->Read(path);
  // In the middle of a record: its length is read when the file is opened.
  const size_t record = bytes.size() / 100;
  bytes[50 * record + record / 2] ^= 1;
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path, bytes).ok());
  JobOptions job = Job(1, 10, Output("o"));
  job.flags[1] = damaged.path();
  TestJob running(job);
  const RankResult result = running.Wait()[0];
  EXPECT_NE(result.code, 0);
  EXPECT_GE(running.page(0).counters.input.corrupt_records, 1u)
      << result.output;
}

TEST_F(JobTest, RunsAloneWithoutAJob) {
  const RankResult result =
      RunAlone({"--train", data_->path() + "/train", "--max-steps", "20",
                "--log-every", "10", "--model", "resnet", "--output",
                Output("o"), "--checkpoint-dir", Output("elsewhere")});
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("step 20/20"));
  // The classes were counted.
  EXPECT_THAT(result.output, HasSubstr("4 classes"));
  EXPECT_TRUE(RealFileSystem()->Exists(Output("o") + "/model.safetensors"));
  EXPECT_TRUE(
      RealFileSystem()->Exists(Output("elsewhere") + "/step-000000020.g1"));
}

TEST_F(JobTest, WrongUseAndMissingData) {
  RankResult result = RunAlone({"--train", "x", "--epochs", "many"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.output, HasSubstr("--epochs"));
  result = RunAlone({"--train", Output("nowhere")});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.output, HasSubstr("nowhere"));
  result = RunAlone({"--version"});
  EXPECT_THAT(result.output, ::testing::StartsWith("lockstep-train "));
  result = RunAlone({"--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.output, HasSubstr("--learning-rate"));
  // A file where the output directory should be.
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(Output("file"), "").ok());
  result = RunAlone({"--train", data_->path() + "/train", "--output",
                     Output("file"), "--max-steps", "2"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.output, HasSubstr("file"));
  EXPECT_THAT(result.output, Not(HasSubstr("terminate called")));
}

}  // namespace
}  // namespace lockstep::worker::trainer
