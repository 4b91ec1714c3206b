// Jobs whose output directory, or whose checkpoints, are not there: they hold
// instead of beginning from the start.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class HoldTest : public ClusterTest {
 protected:
  std::string Checkpoints(const std::string& job) const {
    return OutputOf(job) + "/checkpoints";
  }
  // "step-000000050.g1", ...
  std::set<std::string> Names(const std::string& job) const {
    std::set<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(Checkpoints(job), error)) {
      names.insert(entry.path().filename());
    }
    return names;
  }
  // Saves every 50 steps, and waits at step 170 until Path("go") is there.
  v1::Job StartAt170(const std::string& name) {
    v1::JobSpec spec = Steps(name, 2,
                             {"--steps", "400", "--step_ms", "2", "--hold_step",
                              "170", "--hold_file", Path("go")});
    spec.mutable_checkpoint()->set_interval_steps(50);
    spec.mutable_checkpoint()->set_keep(3);
    spec.set_restart_budget(1);
    Submit(spec);
    EXPECT_TRUE(HasLine(name, 0, "hold 170"));
    EXPECT_TRUE(HasLine(name, 1, "hold 170"));
    return WaitUntil(
        name, "the checkpoint of step 150",
        [](const v1::Job& job) { return job.last_checkpoint().step() == 150; });
  }
  void KillRank(const v1::Job& job, int rank) {
    ASSERT_EQ(::kill(static_cast<pid_t>(PidOf(job, rank)), SIGKILL), 0);
  }
  // In PLACING, with that reason, after some looks.
  v1::Job WaitHeld(const std::string& name, v1::Reason reason,
                   uint64_t after_generation) {
    return WaitUntil(name, "holds and looks again", [&](const v1::Job& job) {
      return job.state() == v1::JOB_STATE_PLACING &&
             job.cause().reason() == reason &&
             job.generation() >= after_generation;
    });
  }
  static int64_t Events(const v1::Job& job, v1::Reason reason) {
    return std::count_if(
        job.events().begin(), job.events().end(),
        [&](const v1::Event& event) { return event.reason() == reason; });
  }
  void ExpectExact(const std::string& name) {
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(HasLine(name, rank, "done 400"));
      const auto lines = Output(name, rank);
      EXPECT_THAT(lines, Contains("done 400 skipped 0 hash " +
                                  HashWeights(ExpectedWeights(400, 8))));
    }
  }
};

TEST_F(HoldTest, ADirectoryThatIsAwayIsWaitedForAndResumedIn) {
  const v1::Job before = StartAt170("away");
  const std::set<std::string> names = Names("away");
  fs::rename(OutputOf("away"), Path("elsewhere"));
  KillRank(before, 1);
  v1::Job job = WaitHeld("away", v1::REASON_OUTPUT_MISSING, 4);
  EXPECT_THAT(job.cause().message(),
              AllOf(HasSubstr(".lockstep-directory is missing"),
                    HasSubstr("lockstep jobs restore-to away STEP")));
  EXPECT_EQ(job.failures_without_progress(), 1) << "the killed rank alone";
  EXPECT_EQ(job.attempts_size(), 2) << job.DebugString();
  EXPECT_FALSE(fs::exists(OutputOf("away"))) << "it is never made anew";
  const CommandResult list = Lockstep({"jobs", "list"});
  EXPECT_THAT(list.out, AllOf(HasSubstr("PLACING"),
                              HasSubstr(".lockstep-directory is missing")))
      << list.err;
  EXPECT_THAT(Lockstep({"jobs", "describe", "away"}).out,
              HasSubstr("OUTPUT_MISSING"));

  WriteFile(Path("go"), "");
  fs::rename(Path("elsewhere"), OutputOf("away"));
  job = WaitUntil("away", "resumes", [](const v1::Job& now) {
    return now.resumed_step() > 0 && now.state() == v1::JOB_STATE_RUNNING;
  });
  EXPECT_EQ(job.resumed_step(), 150);
  EXPECT_THAT(Names("away"), testing::IsSupersetOf(names));
  job = WaitEnd("away", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.restarts(), 1) << "looks are none";
  ExpectExact("away");
}

TEST_F(HoldTest, AnEmptyDirectoryInItsPlaceIsNotTaken) {
  const v1::Job before = StartAt170("other");
  fs::rename(OutputOf("other"), Path("elsewhere"));
  fs::create_directories(OutputOf("other"));
  KillRank(before, 0);
  WaitHeld("other", v1::REASON_OUTPUT_MISSING, 3);
  EXPECT_TRUE(fs::is_empty(OutputOf("other")));
  // It can be ended while it holds.
  ASSERT_TRUE(client()->CancelJob("other").ok());
  WaitEnd("other", v1::JOB_STATE_CANCELLED);
}

TEST_F(HoldTest, AllCheckpointsDamagedHoldUntilAPersonSaysStart) {
  const v1::Job before = StartAt170("damaged");
  for (const char* name :
       {"step-000000050.g1", "step-000000100.g1", "step-000000150.g1"}) {
    WriteFile(Checkpoints("damaged") + "/" + name + "/MANIFEST", "nonsense");
  }
  KillRank(before, 1);
  v1::Job job = WaitHeld("damaged", v1::REASON_NO_CHECKPOINT, 3);
  EXPECT_THAT(job.cause().message(), HasSubstr("none of the 3 checkpoints"));
  EXPECT_THAT(Names("damaged"),
              testing::IsSupersetOf({"step-000000050.g1", "step-000000100.g1",
                                     "step-000000150.g1"}));
  const Status refused = client()->RestoreJob("damaged", 0).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused;
  WriteFile(Path("go"), "");
  const CommandResult restored =
      Lockstep({"jobs", "restore-to", "damaged", "start"});
  EXPECT_EQ(restored.code, 0) << restored.err;
  EXPECT_THAT(restored.out, HasSubstr("job damaged starts from the beginning"));
  job = WaitEnd("damaged", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Events(job, v1::REASON_RESTORE_ORDERED), 1) << job.DebugString();
  EXPECT_THAT(Names("damaged"), Contains("step-000000150.g1"));
  ExpectExact("damaged");
}

TEST_F(HoldTest, AnOlderStepIsRestoredAndNewerOnesStay) {
  const v1::Job before = StartAt170("older");
  const Status running = client()->RestoreJob("older", 50).status();
  EXPECT_EQ(running.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(running), HasSubstr("and not held"));
  fs::rename(Checkpoints("older") + "/step-000000150.g1", Path("lost"));
  KillRank(before, 1);
  v1::Job job = WaitHeld("older", v1::REASON_NO_CHECKPOINT, 2);
  EXPECT_THAT(job.cause().message(), HasSubstr("step-000000150.g1"));
  WriteFile(Path("go"), "");
  const auto ordered = client()->RestoreJob("older", 50);
  ASSERT_TRUE(ordered.ok()) << ordered.status();
  EXPECT_EQ(ordered->restore().step(), 50);
  job = WaitUntil("older", "resumes", [](const v1::Job& now) {
    return now.resumed_step() > 0 && now.state() == v1::JOB_STATE_RUNNING;
  });
  EXPECT_EQ(job.resumed_step(), 50);
  fs::rename(Path("lost"), Checkpoints("older") + "/step-000000150.g1");
  job = WaitEnd("older", v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(job.has_restore()) << "it was obeyed";
  EXPECT_THAT(Names("older"), testing::IsSupersetOf(
                                  {"step-000000100.g1", "step-000000150.g1"}));
  EXPECT_THAT(Names("older"), Not(Contains("step-000000050.g1")))
      << "of what it descends from, the newest three are kept";
  ExpectExact("older");
}

TEST_F(HoldTest, OneDamagedCheckpointFallsBackByItself) {
  const v1::Job before = StartAt170("one");
  WriteFile(Checkpoints("one") + "/step-000000150.g1/MANIFEST", "nonsense");
  WriteFile(Path("go"), "");
  KillRank(before, 1);
  const v1::Job job = WaitEnd("one", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(Events(job, v1::REASON_CHECKPOINT_DAMAGED), 1) << job.DebugString();
  for (const v1::Event& event : job.events()) {
    if (event.reason() != v1::REASON_CHECKPOINT_DAMAGED) continue;
    EXPECT_THAT(event.message(),
                AllOf(HasSubstr("step-000000150.g1"), HasSubstr("MANIFEST")));
  }
  EXPECT_EQ(Events(job, v1::REASON_NO_CHECKPOINT), 0);
  EXPECT_THAT(Names("one"), Contains(".bad-step-000000150.g1"));
  ExpectExact("one");
}

// Lockstep does not read a program's checkpoints, but knows its directory.
TEST_F(HoldTest, AProgramWaitsForItsDirectoryToo) {
  v1::JobSpec spec =
      Shell("program", 1, "test -e " + Path("go") + " && exit 0; sleep 600");
  spec.set_output_directory(OutputOf("program"));
  Submit(spec);
  const v1::Job before = WaitFor("program", v1::JOB_STATE_RUNNING);
  fs::rename(OutputOf("program"), Path("elsewhere"));
  KillRank(before, 0);
  WaitHeld("program", v1::REASON_OUTPUT_MISSING, 3);
  EXPECT_FALSE(fs::exists(OutputOf("program")));
  EXPECT_EQ(client()->RestoreJob("program", 50).status().code(),
            StatusCode::kFailedPrecondition);
  WriteFile(Path("go"), "");
  ASSERT_TRUE(client()->RestoreJob("program", std::nullopt).ok());
  WaitEnd("program", v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(fs::exists(OutputOf("program") + "/.lockstep-directory"));
}

}  // namespace
}  // namespace lockstep
