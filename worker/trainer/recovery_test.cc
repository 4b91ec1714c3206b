// Jobs of lockstep-train processes that are killed, stopped or told something,
// and go on as the next generation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "worker/checkpoint/reader.h"
#include "worker/trainer/testing.h"

namespace lockstep::worker::trainer {
namespace {

using ::testing::HasSubstr;

class RecoveryTest : public DisturbedJobTest {
 protected:
  // 3 epochs of 16 steps. What a checkpoint must hold matters: momentum,
  // schedule, position, early stopping.
  static JobOptions Job(std::string output) {
    return JobOf(2, 32, std::move(output));
  }
  // The last checkpoint that rank 0 told of.
  static int64_t LastCheckpoint(TestJob* job) {
    const std::vector<int64_t> steps = job->checkpoints(0);
    return steps.empty() ? 0 : steps.back();
  }
  static bool WaitForCheckpoint(TestJob* job) {
    return job->daemon().WaitFor([job] {
      for (const auto& [key, report] : job->daemon().reports) {
        if (!report.checkpoint_path().empty()) return true;
      }
      return false;
    });
  }
  // The newest checkpoint has the plan that rank 0 told last.
  static void ExpectPlanInManifest(TestJob* job) {
    std::string plan;
    std::string path;
    for (const v1::RankReport& report : job->reports(0)) {
      if (!report.reduction_plan().empty()) plan = report.reduction_plan();
      if (!report.checkpoint_path().empty()) path = report.checkpoint_path();
    }
    EXPECT_THAT(plan, HasSubstr("\norder "));
    const auto saved = checkpoint::Checkpoint::Open(RealFileSystem(), path);
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(saved->manifest().metadata.at("reduction plan"), plan);
  }
};

TEST_F(RecoveryTest, AKilledJobGoesOnBitEqual) {
  for (const char* optimizer : {"sgd", "adam"}) {
    const std::string name = optimizer;
    JobOptions undisturbed = Job(Output(name));
    Add(&undisturbed, {"--optimizer", optimizer});
    const auto expected = RunJob(undisturbed);
    ASSERT_EQ(expected[0].code, 0) << expected[0].output;

    JobOptions job = undisturbed;
    job.output = Output(name + "-killed");
    // Steps are slow, so that a checkpoint is published by then.
    Add(&job, {"--allow-faults", "--kill-at-step", "38", "--on-rank", "1",
               "--step-delay-ms", "50"});
    int64_t start = 0;
    {
      TestJob first(job);
      const auto results = first.Wait();
      EXPECT_EQ(results[0].code, 75) << results[0].output;
      EXPECT_EQ(results[1].code, 128 + SIGKILL) << results[1].output;
      start = LastCheckpoint(&first);
      ASSERT_GE(start, 10) << results[0].output;
      ExpectPlanInManifest(&first);
    }
    TestJob second(Next(job, start));
    const auto results = second.Wait();
    ASSERT_EQ(results[0].code, 0) << results[0].output;
    EXPECT_THAT(results[0].output, HasSubstr("resuming after step"));
    EXPECT_EQ(ParamHash(results[0]), ParamHash(expected[0]));
    EXPECT_EQ(ParamHash(results[1]), ParamHash(expected[1]));
    bool resumed = false;
    for (const v1::RankReport& report : second.reports(0)) {
      if (!report.has_resumed_step()) continue;
      resumed = true;
      EXPECT_EQ(report.resumed_step(), start);
    }
    EXPECT_TRUE(resumed);
  }
}

// The second checkpoint is cut off between the disk and those who must hear of
// it, on the chief or on another rank.
TEST_F(RecoveryTest, ACrashAroundVoteOrReportCostsAtMostThatCheckpoint) {
  const auto expected = RunJob(Job(Output("undisturbed")));
  ASSERT_EQ(expected[0].code, 0) << expected[0].output;
  const struct {
    int rank;
    std::string point;
  } cases[] = {{1, "checkpoint.vote.before"},
               {0, "checkpoint.vote.after"},
               {0, "checkpoint.report.before"},
               {0, "checkpoint.report.after"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.point);
    JobOptions job = Job(Output(c.point));
    Add(&job, {"--allow-faults", "--step-delay-ms", "10"});
    job.only_rank = c.rank;
    job.only = {"--faults", c.point + "=crash@2"};
    int64_t start = 0;
    {
      TestJob first(job);
      const auto results = first.Wait();
      EXPECT_EQ(results[c.rank].code, 85) << results[c.rank].output;
      EXPECT_EQ(results[1 - c.rank].code, 75) << results[1 - c.rank].output;
      start = LastCheckpoint(&first);
      EXPECT_GE(start, 10);
    }
    job.only_rank = -1;
    TestJob second(Next(job, start));
    const auto results = second.Wait();
    ASSERT_EQ(results[0].code, 0) << results[0].output;
    EXPECT_EQ(ParamHash(results[0]), ParamHash(expected[0]));
    EXPECT_EQ(ParamHash(results[1]), ParamHash(expected[1]));
    EXPECT_EQ(LastCheckpoint(&second), 48);
    const auto names = RealFileSystem()->List(job.output + "/checkpoints");
    ASSERT_TRUE(names.ok());
    for (const std::string& name : *names) {
      EXPECT_NE(name.substr(0, 5), ".tmp-");
    }
  }
}

TEST_F(RecoveryTest, ADamagedCheckpointIsSetAsideAndToldOf) {
  const auto expected = RunJob(Job(Output("whole")));
  JobOptions job = Job(Output("o"));
  Add(&job,
      {"--allow-faults", "--fail-at-step", "38", "--step-delay-ms", "100"});
  int64_t newest = 0;
  {
    TestJob first(job);
    first.Wait();
    newest = LastCheckpoint(&first);
  }
  ASSERT_GE(newest, 20);
  const std::string name = fmt::format("step-{:09}.g1", newest);
  const std::string shard =
      Output("o") + "/checkpoints/" + name + "/shard-00000-of-00002";
  StatusOr<std::string> bytes = RealFileSystem()->Read(shard);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  (*bytes)[bytes->size() / 2] ^= 1;
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(shard, *bytes).ok());

  TestJob second(Next(job, newest));
  const auto results = second.Wait();
  ASSERT_EQ(results[0].code, 0) << results[0].output;
  EXPECT_EQ(ParamHash(results[0]), ParamHash(expected[0]));
  std::string events;
  int64_t resumed = -1;
  for (const v1::RankReport& report : second.reports(0)) {
    events += report.event();
    if (report.has_resumed_step()) resumed = report.resumed_step();
  }
  EXPECT_THAT(events, HasSubstr(name + " is damaged"));
  EXPECT_EQ(resumed, newest - 10);
}

TEST_F(RecoveryTest, CheckpointAndStopByOrder) {
  JobOptions job = Job(Output("o"));
  job.checkpoint_interval = 0;
  Add(&job, {"--epochs", "1000", "--allow-faults", "--step-delay-ms", "2"});
  TestJob running(job);
  running.daemon().With([&](rank_link::RankLinkServer* server) {
    server->SendDirective(running.key(0), 1, v1::RankDirective::CHECKPOINT);
  });
  ASSERT_TRUE(WaitForCheckpoint(&running));
  running.daemon().With([&](rank_link::RankLinkServer* server) {
    server->SendDirective(running.key(0), 2, v1::RankDirective::STOP);
  });
  const auto results = running.Wait();
  EXPECT_EQ(results[0].code, 0) << results[0].output;
  EXPECT_EQ(results[1].code, 0) << results[1].output;
  EXPECT_THAT(results[0].output, HasSubstr("stopped on request after step"));
  EXPECT_EQ(ParamHash(results[0]), ParamHash(results[1]));
  bool done = false;
  for (const v1::RankReport& report : running.reports(0)) {
    done = done || report.directive_done() == 1;
  }
  EXPECT_TRUE(done);
  // Not trained to the end: no model.
  EXPECT_FALSE(RealFileSystem()->Exists(Output("o") + "/model.safetensors"));
}

TEST_F(RecoveryTest, ASignalToOneStopsAllAtAStepWithACheckpoint) {
  const auto expected = RunJob(Job(Output("whole")));
  JobOptions job = Job(Output("o"));
  Add(&job, {"--allow-faults", "--step-delay-ms", "100"});
  int64_t start = 0;
  {
    TestJob first(job);
    ASSERT_TRUE(WaitForCheckpoint(&first));
    ::kill(first.pid(1), SIGTERM);
    const auto results = first.Wait();
    EXPECT_EQ(results[0].code, 128 + SIGTERM) << results[0].output;
    EXPECT_EQ(results[1].code, 128 + SIGTERM) << results[1].output;
    start = LastCheckpoint(&first);
    EXPECT_THAT(results[0].output,
                HasSubstr(fmt::format("after step {}", start)));
  }
  const auto results = RunJob(Next(Job(Output("o")), start));
  ASSERT_EQ(results[0].code, 0) << results[0].output;
  EXPECT_EQ(ParamHash(results[0]), ParamHash(expected[0]));
}

// Lost after its last checkpoint, before anybody heard that it was done.
TEST_F(RecoveryTest, AWholeTrainingIsOnlyEndedAgain) {
  const auto first = RunJob(Job(Output("o")));
  ASSERT_EQ(first[0].code, 0) << first[0].output;
  const std::string model = Output("o") + "/model.safetensors";
  ASSERT_TRUE(RealFileSystem()->Remove(model).ok());
  const auto second = RunJob(Next(Job(Output("o")), 48));
  EXPECT_EQ(second[0].code, 0) << second[0].output;
  EXPECT_EQ(second[1].code, 0) << second[1].output;
  EXPECT_EQ(ParamHash(second[0]), ParamHash(first[0]));
  EXPECT_TRUE(RealFileSystem()->Exists(model));
}

TEST_F(RecoveryTest, AFailedCheckpointDoesNotEndTraining) {
  JobOptions job = Job(Output("o"));
  Add(&job, {"--allow-faults"});
  job.only_rank = 1;
  job.only = {"--faults", "checkpoint.rank.written=error@1"};
  TestJob running(job);
  const auto results = running.Wait();
  EXPECT_EQ(results[0].code, 0) << results[0].output;
  EXPECT_EQ(results[1].code, 0) << results[1].output;
  EXPECT_EQ(LastCheckpoint(&running), 48);
  // Rank 1 could not, and rank 0 gave up for it.
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(running.page(rank).counters.checkpoint_failures, 1u) << rank;
  }
}

}  // namespace
}  // namespace lockstep::worker::trainer
