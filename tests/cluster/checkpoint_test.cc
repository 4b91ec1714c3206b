// Checkpoints when everything dies at once, and when their disk is full.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/os/procfs.h"
#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"
#include "tests/support/small_disk.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class CheckpointTest : public ClusterTest {
 protected:
  static int64_t LastCheckpoint(const v1::Job& job) {
    return job.last_checkpoint().step();
  }
  v1::Job WaitForCheckpoint(const std::string& name, int64_t step) {
    return WaitUntil(
        name, "a checkpoint of step " + std::to_string(step),
        [step](const v1::Job& job) { return LastCheckpoint(job) >= step; });
  }
};

// Power off, as far as processes can: daemons, shims and ranks at once.
TEST_F(CheckpointTest, AllDeadRestoresExactly) {
  v1::JobSpec spec = Steps("dead", 2,
                           {"--steps", "200", "--step_ms", "2", "--hold_step",
                            "130", "--hold_file", Path("go")});
  spec.mutable_checkpoint()->set_interval_steps(50);
  Submit(spec);
  ASSERT_TRUE(HasLine("dead", 0, "hold 130"));
  WaitForCheckpoint("dead", 100);
  for (const char* daemon : {"coordinator", "worker-0", "worker-1"}) {
    KillDaemon(daemon);
  }
  EXPECT_TRUE(Eventually([&] {
    const std::vector<std::string> left = ProcessesUnder({root()});
    for (const std::string& process : left) {
      ::kill(std::stoi(process), SIGKILL);
    }
    return left.empty();
  }));
  WriteFile(Path("go"), "");
  StartAll();
  const v1::Job job = WaitEnd("dead", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.attempts_size(), 2) << job.DebugString();
  EXPECT_EQ(job.attempts(1).resumed_step(), 100);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(
        Line("dead", rank, "done ", 2),
        "done 200 skipped 0 hash " + HashWeights(ExpectedWeights(200, 8)));
  }
}

// What the job was to leave is not there: that is not a success.
TEST_F(CheckpointTest, AJobWhoseLastCheckpointIsNotSavedFails) {
  v1::JobSpec spec =
      Steps("unsaved", 2,
            {"--steps", "100", "--hold_step", "60", "--hold_file", Path("go")});
  spec.mutable_checkpoint()->set_interval_steps(50);
  spec.set_restart_budget(0);
  Submit(spec);
  ASSERT_TRUE(HasLine("unsaved", 0, "hold 60"));
  WaitForCheckpoint("unsaved", 50);
  // A file in the place of the folder: also root writes nothing there.
  std::filesystem::rename(OutputOf("unsaved") + "/checkpoints",
                          OutputOf("unsaved") + "/moved");
  WriteFile(OutputOf("unsaved") + "/checkpoints", "x");
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("unsaved", v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.cause().reason(), v1::REASON_CHECKPOINT_FAILED)
      << job.cause().message();
  EXPECT_THAT(job.cause().message(),
              HasSubstr("checkpoint, of step 100, was not saved"));
  EXPECT_NE(job.exit_code(), 0);
}

// The host of rank 0 goes silent, saves on, and dies: the coordinator heard of
// none of the checkpoints that are still there.
TEST_F(CheckpointTest, TheNewestOnTheDiskCountsAlsoWhenNobodyHeardOfIt) {
  v1::JobSpec spec =
      Steps("unheard", 2, {"--steps", "100000", "--step_ms", "1"});
  spec.mutable_checkpoint()->set_interval_steps(25);
  spec.mutable_checkpoint()->set_keep(2);
  Submit(spec);
  const v1::Job job = WaitForCheckpoint("unheard", 25);
  const std::string host = job.tasks(0).node();
  KillDaemon(host);
  const int64_t heard = LastCheckpoint(Get("unheard"));
  const auto on_disk = [&] {
    std::vector<int64_t> steps;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(
             OutputOf("unheard") + "/checkpoints", error)) {
      const std::string name = entry.path().filename();
      if (name.rfind("step-", 0) == 0)
        steps.push_back(std::stoll(name.substr(5)));
    }
    std::sort(steps.begin(), steps.end());
    return steps;
  };
  std::vector<int64_t> steps;
  ASSERT_TRUE(Eventually([&] {
    steps = on_disk();
    return !steps.empty() && steps.front() > heard + 25;
  }));
  const pid_t rank = static_cast<pid_t>(PidOf(job, 0));
  const auto stat = ReadProcessStat(rank);
  ASSERT_TRUE(stat.ok()) << stat.status();
  ASSERT_EQ(::kill(stat->parent, SIGKILL), 0);
  ::kill(rank, SIGKILL);
  StartDaemon(host);
  const std::string start = [&] {
    EXPECT_TRUE(HasLine("unheard", 0, "start "));
    EXPECT_TRUE(Eventually([&] { return Get("unheard").attempt() >= 2; }));
    EXPECT_TRUE(
        Eventually([&] { return !Line("unheard", 0, "start ", 2).empty(); }));
    return Line("unheard", 0, "start ", 2);
  }();
  ASSERT_EQ(start.rfind("start ", 0), 0u) << start;
  EXPECT_GE(std::stoll(start.substr(6)), steps.back());
}

TEST_F(CheckpointTest, AFullDiskStopsCheckpointsAndNothingElse) {
  SmallDisk disk(OutputOf("full"), "1m");
  if (!disk.mounted()) GTEST_SKIP() << "needs root, to mount a small disk";
  v1::JobSpec spec = Steps("full", 2,
                           {"--steps", "20000", "--step_ms", "5", "--hold_step",
                            "19000", "--hold_file", Path("go")});
  spec.mutable_checkpoint()->set_interval_steps(20);
  Submit(spec);
  v1::Job job = WaitForCheckpoint("full", 40);

  const auto told = [](const v1::Job& now) {
    return std::any_of(
        now.events().begin(), now.events().end(), [](const v1::Event& event) {
          return event.message().find("No space left") != std::string::npos;
        });
  };
  EXPECT_TRUE(Eventually([&] {
    disk.Fill();
    job = Get("full");
    return told(job);
  })) << job.DebugString();
  // Three more are due in this time.
  const int64_t before = CommittedOnPage(job, 0);
  EXPECT_TRUE(
      Eventually([&] { return CommittedOnPage(job, 0) >= before + 80; }));
  job = Get("full");
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job.generation(), 1u);
  const int64_t last = LastCheckpoint(job);
  EXPECT_TRUE(
      RealFileSystem()->Exists(job.last_checkpoint().path() + "/MANIFEST"));

  disk.Free();
  job = WaitForCheckpoint("full", last + 20);
  EXPECT_EQ(job.generation(), 1u);
  EXPECT_GT(CommittedOnPage(job, 0), before);
  ASSERT_TRUE(client()->CancelJob("full").ok());
  WaitEnd("full", v1::JOB_STATE_CANCELLED);
}

// The training is done, and its state is in memory only.
TEST_F(CheckpointTest, AFullDiskAtTheEndIsWaitedFor) {
  SmallDisk disk(OutputOf("last"), "1m");
  if (!disk.mounted()) GTEST_SKIP() << "needs root, to mount a small disk";
  v1::JobSpec spec =
      Steps("last", 2,
            {"--steps", "100", "--hold_step", "60", "--hold_file", Path("go")});
  spec.mutable_checkpoint()->set_interval_steps(50);
  Submit(spec);
  ASSERT_TRUE(HasLine("last", 0, "hold 60"));
  WaitForCheckpoint("last", 50);
  disk.Fill();
  WriteFile(Path("go"), "");
  v1::Job job = WaitUntil("last", "says that it waits", [](const v1::Job& now) {
    return now.cause().reason() == v1::REASON_OUTPUT_FULL;
  });
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(job.cause().message(), HasSubstr("No space left on device"));
  EXPECT_TRUE(std::any_of(job.events().begin(), job.events().end(),
                          [](const v1::Event& event) {
                            return event.reason() == v1::REASON_OUTPUT_FULL;
                          }));
  EXPECT_EQ(CommittedOnPage(job, 0), 100);
  disk.Free();
  job = WaitEnd("last", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.generation(), 1u) << "nothing was computed again";
  EXPECT_EQ(job.last_checkpoint().step(), 100);
  EXPECT_TRUE(
      RealFileSystem()->Exists(job.last_checkpoint().path() + "/MANIFEST"));
}

TEST_F(CheckpointTest, AJobThatWaitsForSpaceCanBeCancelled) {
  SmallDisk disk(OutputOf("given-up"), "1m");
  if (!disk.mounted()) GTEST_SKIP() << "needs root, to mount a small disk";
  v1::JobSpec spec =
      Steps("given-up", 2,
            {"--steps", "100", "--hold_step", "60", "--hold_file", Path("go")});
  spec.mutable_checkpoint()->set_interval_steps(50);
  Submit(spec);
  ASSERT_TRUE(HasLine("given-up", 0, "hold 60"));
  WaitForCheckpoint("given-up", 50);
  disk.Fill();
  WriteFile(Path("go"), "");
  WaitUntil("given-up", "says that it waits", [](const v1::Job& now) {
    return now.cause().reason() == v1::REASON_OUTPUT_FULL;
  });
  ASSERT_TRUE(client()->CancelJob("given-up").ok());
  WaitEnd("given-up", v1::JOB_STATE_CANCELLED, std::chrono::seconds(20));
}

}  // namespace
}  // namespace lockstep
