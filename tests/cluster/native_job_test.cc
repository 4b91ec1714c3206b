// Native jobs: forming, stepping, saving, reporting.
#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"
#include "worker/checkpoint/safetensors.h"

namespace lockstep::worker {
namespace {

using ::testing::HasSubstr;

class NativeJobTest : public ClusterTest {
 protected:
  std::string Hash(int64_t steps, int64_t batch,
                   const std::set<int64_t>& skipped = {}) {
    return " hash " + HashWeights(ExpectedWeights(steps, batch, skipped));
  }
};

TEST_F(NativeJobTest, FormsStepsSavesAndReports) {
  v1::JobSpec spec = Steps("exact", 2, {"--steps", "55", "--batch", "7"});
  spec.mutable_checkpoint()->set_interval_steps(20);
  const v1::Job job = RunJob(spec, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.attempt(), 1);
  EXPECT_EQ(job.committed_step(), 55);
  // The second one may have waited for the first.
  EXPECT_GE(job.last_checkpoint().step(), 40);
  EXPECT_TRUE(
      RealFileSystem()->Exists(job.last_checkpoint().path() + "/MANIFEST"));
  EXPECT_GT(job.last_checkpoint().bytes(), 0);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Line("exact", rank, "rank "),
              "rank " + std::to_string(rank) + " of 2 attempt 1 generation 1");
    EXPECT_EQ(Line("exact", rank, "done "), "done 55 skipped 0" + Hash(55, 7));
  }

  // What the job said of itself.
  const std::string model = OutputOf("exact") + "/model.safetensors";
  ASSERT_EQ(job.artifacts().count("model"), 1u);
  EXPECT_EQ(job.artifacts().at("model"), model);
  const auto weights = checkpoint::Safetensors::Load(RealFileSystem(), model);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_NE(weights->Find("dense.weight"), nullptr);
  const float first = ExpectedWeights(55, 7)[0];
  ASSERT_EQ(job.attempts_size(), 1);
  for (const v1::TaskStatus& task : job.attempts(0).tasks()) {
    const v1::RankProgress& progress = task.ranks(0).progress();
    EXPECT_EQ(progress.committed_step(), 55);
    EXPECT_EQ(progress.total_steps(), 55);
    EXPECT_EQ(progress.values().at("first_weight"), first);
    EXPECT_EQ(progress.checkpoints(), 2);
    // 7 samples a step over two ranks: 4 and 3.
    EXPECT_EQ(progress.samples(), 55 * (task.ranks(0).rank() == 0 ? 4 : 3));
  }
  // Shown in the order in which they were gone through.
  std::vector<std::string> phases;
  for (const v1::PhaseDuration& phase : job.phases()) {
    phases.push_back(phase.phase());
  }
  EXPECT_THAT(phases, testing::IsSupersetOf({"queued", "preparing", "forming",
                                             "running", "finishing"}));
}

TEST_F(NativeJobTest, OneRankAndFourRanksComputeTheSame) {
  v1::JobSpec four = Steps("four", 2, {"--steps", "30", "--batch", "8"});
  for (v1::RoleSpec& role : *four.mutable_roles()) role.set_ranks_per_task(2);
  RunJob(four, v1::JOB_STATE_SUCCEEDED);
  RunJob(Steps("one", 1, {"--steps", "30", "--batch", "8"}),
         v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Line("four", 3, "rank "), "rank 3 of 4 attempt 1 generation 1");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(Line("four", rank, "done "), "done 30 skipped 0" + Hash(30, 8));
  }
  EXPECT_EQ(Line("one", 0, "done "), "done 30 skipped 0" + Hash(30, 8));
}

TEST_F(NativeJobTest, ACheckpointOnRequest) {
  Submit(Steps("asked", 2,
               {"--steps", "100000", "--step_ms", "2", "--hold_step", "30",
                "--hold_file", Path("go")}));
  WaitUntil("asked", "step 30", [](const v1::Job& job) {
    return job.progress().chief().committed_step() >= 30;
  });
  EXPECT_FALSE(Get("asked").has_last_checkpoint());
  const auto directive = client()->RequestCheckpoint("asked");
  ASSERT_TRUE(directive.ok()) << directive.status();
  WriteFile(Path("go"), "");
  const v1::Job job =
      WaitUntil("asked", "a checkpoint",
                [](const v1::Job& job) { return job.has_last_checkpoint(); });
  EXPECT_GT(job.last_checkpoint().step(), 30);
  EXPECT_TRUE(
      RealFileSystem()->Exists(job.last_checkpoint().path() + "/MANIFEST"));
  // And again.
  ASSERT_TRUE(client()->RequestCheckpoint("asked").ok());
  WaitUntil("asked", "the next checkpoint", [&](const v1::Job& now) {
    return now.last_checkpoint().step() > job.last_checkpoint().step();
  });
  ASSERT_TRUE(client()->CancelJob("asked").ok());
  WaitEnd("asked", v1::JOB_STATE_CANCELLED);
}

TEST_F(NativeJobTest, CheckpointsOfWhatCannotSaveAreRefused) {
  Submit(Shell("program", 1, "sleep 1000"));
  WaitFor("program", v1::JOB_STATE_RUNNING);
  EXPECT_EQ(client()->RequestCheckpoint("program").status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(client()->RequestCheckpoint("nobody").status().code(),
            StatusCode::kNotFound);
}

TEST_F(NativeJobTest, NanOnOneRankSkipsTheStepOnAll) {
  RunJob(Steps("nan", 2,
               {"--steps", "20", "--batch", "4", "--fail_step", "11",
                "--fail_rank", "1", "--fail_how", "nan"}),
         v1::JOB_STATE_SUCCEEDED);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Line("nan", rank, "done "),
              "done 20 skipped 1" + Hash(20, 4, {11}));
  }
}

TEST_F(NativeJobTest, RanksThatDifferAreNamedAtOnce) {
  v1::JobSpec spec = Steps("odd", 2, {"--odd_rank", "1"});
  const v1::Job job = RunJob(spec, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.cause().reason(), v1::REASON_CONFIG_MISMATCH);
  EXPECT_THAT(job.cause().message(), HasSubstr("batch"));
  EXPECT_THAT(job.cause().message(), HasSubstr("8"));
  EXPECT_THAT(job.cause().message(), HasSubstr("9"));
  EXPECT_EQ(job.attempts_size(), 1);  // It would be so again.
}

// Only the newest checkpoints stay.
TEST_F(NativeJobTest, OldCheckpointsGo) {
  v1::JobSpec spec = Steps("keep", 2, {"--steps", "100", "--step_ms", "2"});
  spec.mutable_checkpoint()->set_interval_steps(10);
  spec.mutable_checkpoint()->set_keep(2);
  const v1::Job job = RunJob(spec, v1::JOB_STATE_SUCCEEDED);
  const auto names = RealFileSystem()->List(OutputOf("keep") + "/checkpoints");
  ASSERT_TRUE(names.ok());
  int complete = 0;
  for (const std::string& name : *names) {
    if (name.rfind("step-", 0) == 0) ++complete;
    EXPECT_NE(name.rfind(".tmp", 0), 0u) << name;
  }
  EXPECT_EQ(complete, 2);
  EXPECT_EQ(job.last_checkpoint().step(), 100);
}

}  // namespace
}  // namespace lockstep::worker
