// Ranks that die, and jobs that cannot work.
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "common/os/process.h"
#include "common/os/procfs.h"
#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

double Seconds(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
}

class FailureTest : public ClusterTest {
 protected:
  Status Signal(const v1::Job& job, int rank, int signo) {
    const auto pid = static_cast<pid_t>(PidOf(job, rank));
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t start, StartTime(pid));
    LOCKSTEP_ASSIGN_OR_RETURN(const Process process,
                              OpenVerified({pid, start}));
    return SendSignal(process, signo);
  }
  void KillRank(const v1::Job& job, int rank) {
    const Status killed = Signal(job, rank, SIGKILL);
    ASSERT_TRUE(killed.ok()) << killed;
  }
  // Two ranks that make `steps` steps, the last of them once `go` is there: on
  // a busy machine they do not end before something has happened to them.
  v1::JobSpec NotOverBefore(const std::string& go, const std::string& name,
                            int steps) {
    return Steps(name, 2,
                 {"--steps", std::to_string(steps), "--step_ms", "5",
                  "--hold_step", std::to_string(steps - 1), "--hold_file", go});
  }
  // A budget of `budget`, and retries at once.
  v1::JobSpec WithBudget(v1::JobSpec spec, int budget) {
    spec.set_restart_budget(budget);
    return spec;
  }
};

TEST_F(FailureTest, AKilledRankCostsOneGenerationAndNoStep) {
  v1::JobSpec spec = NotOverBefore(Path("go"), "killed", 200);
  spec.mutable_checkpoint()->set_interval_steps(20);
  Submit(spec);
  const v1::Job running = WaitUntil(
      "killed", "two checkpoints",
      [](const v1::Job& job) { return job.last_checkpoint().step() >= 40; });
  KillRank(running, 1);
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("killed", v1::JOB_STATE_SUCCEEDED);

  EXPECT_EQ(job.generation(), 2u);
  EXPECT_EQ(job.restarts(), 1);
  ASSERT_EQ(job.attempts_size(), 2);
  const v1::Attempt& first = job.attempts(0);
  EXPECT_EQ(first.end_cause().reason(), v1::REASON_RANK_SIGNAL);
  EXPECT_THAT(first.end_cause().message(), HasSubstr("rank 1"));
  EXPECT_THAT(first.end_cause().message(), HasSubstr("SIGKILL"));
  // Stopped as a victim; ten seconds allow for a loaded machine.
  const v1::ExitStatus& killed = first.tasks(1).ranks(0).exit();
  const v1::ExitStatus& victim = first.tasks(0).ranks(0).exit();
  EXPECT_EQ(killed.signal(), SIGKILL);
  EXPECT_FALSE(killed.victim());
  EXPECT_TRUE(victim.victim()) << victim.DebugString();
  EXPECT_LT(Seconds(victim.end_time()) - Seconds(killed.end_time()), 10.0);

  const v1::Attempt& second = job.attempts(1);
  EXPECT_GE(second.resumed_step(), 40);
  EXPECT_EQ(second.resumed_step() % 20, 0);
  // By the plan of the first.
  const CommandResult plan =
      Lockstep({"jobs", "describe", "killed", "--reduction-plan"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_EQ(plan.out, running.reduction_plan());
  EXPECT_THAT(plan.out, HasSubstr("\nranks 2\n"));
  EXPECT_TRUE(std::any_of(
      job.events().begin(), job.events().end(), [](const v1::Event& event) {
        return event.generation() == 2 &&
               event.message().find("by the job's reduction plan") !=
                   std::string::npos;
      }));
  // As if nothing had happened.
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Line("killed", rank, "start ", 2),
              "start " + std::to_string(second.resumed_step()));
    EXPECT_EQ(
        Line("killed", rank, "done ", 2),
        "done 200 skipped 0 hash " + HashWeights(ExpectedWeights(200, 8)));
  }
}

TEST_F(FailureTest, APinnedPlanIsUsedOrEndsTheJob) {
  RunJob(Steps("first", 2, {"--steps", "5"}), v1::JOB_STATE_SUCCEEDED);
  const std::string plan = Get("first").reduction_plan();
  v1::JobSpec spec = Steps("pinned", 2, {"--steps", "5"});
  spec.set_reduction_plan(plan);
  EXPECT_EQ(RunJob(spec, v1::JOB_STATE_SUCCEEDED).reduction_plan(), plan);

  // Seen by the ranks only: their gradients lie otherwise.
  std::string other = plan.substr(0, plan.find("hash "));
  const size_t layout = other.find("layout ") + 7;
  other.replace(layout, 16, "0123456789abcdef");
  spec.set_name("other");
  spec.set_reduction_plan(other);
  const v1::Job failed = RunJob(spec, v1::JOB_STATE_FAILED);
  EXPECT_EQ(failed.attempts_size(), 1);
  EXPECT_THAT(failed.cause().message(),
              HasSubstr("the job's pinned reduction plan does not fit"));
}

TEST_F(FailureTest, WithoutACheckpointItBeginsAgain) {
  v1::JobSpec spec = Steps("again", 2,
                           {"--steps", "40", "--fail_step", "25", "--fail_rank",
                            "0", "--fail_how", "segv"});
  const v1::Job job = RunJob(spec, v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.attempts_size(), 2);
  EXPECT_THAT(job.attempts(0).end_cause().message(), HasSubstr("rank 0"));
  EXPECT_THAT(job.attempts(0).end_cause().message(), HasSubstr("SIGSEGV"));
  EXPECT_EQ(Line("again", 1, "start ", 2), "start 0");
  EXPECT_EQ(Line("again", 1, "done ", 2),
            "done 40 skipped 0 hash " + HashWeights(ExpectedWeights(40, 8)));
}

TEST_F(FailureTest, TheErrorOfARankIsTheCause) {
  v1::JobSpec spec =
      WithBudget(Steps("error", 2,
                       {"--steps", "40", "--fail_step", "3", "--fail_rank", "1",
                        "--fail_how", "error", "--fail_attempts", "9"}),
                 0);
  const v1::Job job = RunJob(spec, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.exit_code(), 1);
  EXPECT_EQ(job.attempts_size(), 1);
  EXPECT_THAT(job.cause().message(), HasSubstr("rank 1"));
  EXPECT_THAT(job.cause().message(), HasSubstr("asked to fail"));
}

TEST_F(FailureTest, TheBudgetCountsFailuresWithoutProgress) {
  // Resumes at 20 each time, and dies at 30: no new step after the first.
  v1::JobSpec spec =
      WithBudget(Steps("budget", 2,
                       {"--steps", "40", "--fail_step", "30", "--fail_rank",
                        "1", "--fail_attempts", "99", "--step_ms", "5",
                        "--hold_step", "25", "--hold_file", Path("go")}),
                 2);
  spec.mutable_checkpoint()->set_interval_steps(20);
  Submit(spec);
  // That of step 20 is written beside the steps.
  WaitUntil("budget", "a checkpoint",
            [](const v1::Job& job) { return job.has_last_checkpoint(); });
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("budget", v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.cause().reason(), v1::REASON_RESTART_BUDGET);
  EXPECT_THAT(job.cause().message(), HasSubstr("rank 1"));
  EXPECT_EQ(job.exit_code(), 128 + SIGKILL);
  // The first one made 29 steps, the next two none: three in a row.
  EXPECT_EQ(job.attempts_size(), 3);
  EXPECT_EQ(job.failures_without_progress(), 3);
}

TEST_F(FailureTest, AProgramThatCrashesAtOnceFailsTheJob) {
  const v1::Job job =
      RunJob(WithBudget(Shell("crash", 2, "echo starting; exit 7"), 1),
             v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.exit_code(), 7);
  EXPECT_EQ(job.attempts_size(), 2);
  EXPECT_EQ(job.cause().reason(), v1::REASON_RESTART_BUDGET);
  EXPECT_THAT(job.cause().message(), HasSubstr("exit code 7"));
  EXPECT_EQ(job.attempts(0).end_cause().reason(), v1::REASON_RANK_EXIT);
  // The other one may have been stopped before it said anything.
  EXPECT_GE(Output("crash", 0, 1).size() + Output("crash", 1, 1).size(), 1u);
}

TEST_F(FailureTest, CodesThatAreFinalEndItAtOnce) {
  for (const int code : {2, 126, 127}) {
    const std::string name = "code" + std::to_string(code);
    const v1::Job job = RunJob(Shell(name, 1, "exit " + std::to_string(code)),
                               v1::JOB_STATE_FAILED);
    EXPECT_EQ(job.exit_code(), code);
    EXPECT_EQ(job.attempts_size(), 1);
  }
}

TEST_F(FailureTest, Code42AsksForARestart) {
  const std::string marker = Path("once");
  const v1::Job job = RunJob(
      WithBudget(
          Shell("restart", 1,
                "[ -e " + marker + " ] && exit 0; : > " + marker + "; exit 42"),
          0),
      v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.attempts_size(), 2);
  EXPECT_EQ(job.attempts(0).end_cause().reason(), v1::REASON_RESTART_REQUESTED);
  EXPECT_EQ(job.failures_without_progress(), 0);
}

TEST_F(FailureTest, AProgramThatIsNotThereIsNamedWithItsNode) {
  const v1::Job job =
      RunJob(Program("missing", 2, {"no-such-program"}), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.cause().reason(), v1::REASON_PREPARE_REFUSED);
  EXPECT_THAT(job.cause().message(), HasSubstr("no-such-program"));
  EXPECT_THAT(job.cause().message(), HasSubstr("worker-"));
  EXPECT_LE(job.attempts_size(), 1);
  EXPECT_NE(job.exit_code(), 0);
}

TEST_F(FailureTest, AnOutputDirectoryThatCannotBeIsRefused) {
  // Root may write everywhere: a file in the way stops it too.
  WriteFile(Path("file"), "x");
  v1::JobSpec spec = Steps("nowhere", 2, {});
  spec.set_output_directory(Path("file") + "/out");
  const v1::Job job = RunJob(spec, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.cause().reason(), v1::REASON_PREPARE_REFUSED);
  EXPECT_THAT(job.cause().message(), HasSubstr(Path("file") + "/out"));
  EXPECT_THAT(job.cause().message(), HasSubstr("worker-"));

  spec = Steps("proc", 1, {});
  spec.set_output_directory("/proc/lockstep");
  const v1::Job unwritable = RunJob(spec, v1::JOB_STATE_FAILED);
  EXPECT_EQ(unwritable.cause().reason(), v1::REASON_PREPARE_REFUSED);
  EXPECT_THAT(unwritable.cause().message(), HasSubstr("/proc/lockstep"));
}

// A checkpoint that is damaged on the disk is set aside, and the job goes on
// from the one before.
TEST_F(FailureTest, ADamagedCheckpointIsPassedOver) {
  v1::JobSpec spec =
      Steps("damaged", 2,
            {"--steps", "100", "--hold_step", "90", "--hold_file", Path("go")});
  spec.mutable_checkpoint()->set_interval_steps(20);
  Submit(spec);
  ASSERT_TRUE(HasLine("damaged", 0, "hold 90"));
  // The two newest; nothing is being saved any more.
  const std::string checkpoints = OutputOf("damaged") + "/checkpoints";
  auto names = RealFileSystem()->List(checkpoints);
  ASSERT_TRUE(names.ok()) << names.status();
  std::erase_if(*names, [](const std::string& name) {
    return name.rfind("step-", 0) != 0;
  });
  std::sort(names->begin(), names->end());
  ASSERT_GE(names->size(), 2u);
  const std::string newest = names->back();
  const std::string before = names->at(names->size() - 2);
  const std::string shard =
      checkpoints + "/" + newest + "/shard-00000-of-00002";
  std::string bytes = ReadFile(shard);
  ASSERT_GT(bytes.size(), 1000u);
  bytes[bytes.size() / 2] ^= 1;
  WriteFile(shard, bytes);
  KillRank(Get("damaged"), 0);
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("damaged", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.attempts_size(), 2);
  // "step-000000060.g1"
  EXPECT_EQ(job.attempts(1).resumed_step(), std::stoll(before.substr(5, 9)));
  EXPECT_EQ(Line("damaged", 1, "done ", 2),
            "done 100 skipped 0 hash " + HashWeights(ExpectedWeights(100, 8)));
  std::string events;
  for (const v1::Event& event : job.events()) events += event.message() + "\n";
  EXPECT_THAT(events, HasSubstr(newest + " is damaged"));
  EXPECT_FALSE(
      RealFileSystem()->Exists(checkpoints + "/" + newest + "/MANIFEST"));
}

// It holds its peers up, and handles SIGTERM once it is continued.
TEST_F(FailureTest, AFrozenRankEndsWhenAnotherDies) {
  v1::JobSpec spec = NotOverBefore(Path("go"), "frozen", 300);
  spec.mutable_checkpoint()->set_interval_steps(20);
  Submit(spec);
  const v1::Job running =
      WaitUntil("frozen", "a checkpoint",
                [](const v1::Job& job) { return job.has_last_checkpoint(); });
  ASSERT_TRUE(Signal(running, 0, SIGSTOP).ok());
  KillRank(running, 1);
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("frozen", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.attempts_size(), 2);
  EXPECT_EQ(job.attempts(0).tasks(0).ranks(0).exit().signal(), SIGTERM);
  EXPECT_THAT(job.attempts(0).end_cause().message(), HasSubstr("rank 1"));
  EXPECT_EQ(Line("frozen", 0, "done ", 2),
            "done 300 skipped 0 hash " + HashWeights(ExpectedWeights(300, 8)));
}

// Nobody can say any more how the rank ended, but it ends and so does what it
// started.
TEST_F(FailureTest, AKilledShimTakesItsRankAlong) {
  v1::JobSpec spec = NotOverBefore(Path("go"), "shim", 300);
  spec.mutable_checkpoint()->set_interval_steps(20);
  Submit(spec);
  const v1::Job running =
      WaitUntil("shim", "a checkpoint",
                [](const v1::Job& job) { return job.has_last_checkpoint(); });
  const auto rank = ReadProcessStat(static_cast<pid_t>(PidOf(running, 1)));
  ASSERT_TRUE(rank.ok()) << rank.status();
  const auto shim = ReadProcessStat(rank->parent);
  ASSERT_TRUE(shim.ok()) << shim.status();
  ASSERT_EQ(shim->command, "lockstep-shim");
  const auto process = OpenVerified({shim->pid, shim->start_time});
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(SendSignal(*process, SIGKILL).ok());
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("shim", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.attempts_size(), 2);
  EXPECT_FALSE(job.attempts(0).end_cause().message().empty());
}

// A program that catches SIGTERM and never leaves.
TEST_F(FailureTest, DeafRanksAreKilledWhenAnotherFails) {
  const v1::Job job = RunJob(
      WithBudget(Shell("deaf", 2,
                       // Not before the other one is deaf.
                       "if [ $RANK = 1 ]; then while [ ! -e " + Path("deaf") +
                           " ]; do sleep 0.02; done; exit 5; fi; "
                           "trap '' TERM; : > " +
                           Path("deaf") + "; while :; do sleep 0.05; done"),
                 0),
      v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.exit_code(), 5);
  const v1::Attempt& attempt = job.attempts(0);
  const v1::ExitStatus& deaf = attempt.tasks(0).ranks(0).exit();
  EXPECT_EQ(deaf.signal(), SIGKILL);
  EXPECT_LT(Seconds(deaf.end_time()) -
                Seconds(attempt.tasks(1).ranks(0).exit().end_time()),
            10);
}

}  // namespace
}  // namespace lockstep
