// Jobs of any program: what ranks are told, what they say, how they end.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/cluster/fixture.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ProgramJobTest : public ClusterTest {
 protected:
  // Whether a command that was started has submitted `name`, within kPatience.
  bool AppearsSoon(const std::string& name) {
    const MonoTime deadline = MonotonicNow() + kPatience;
    while (!client()->GetJob(name).ok()) {
      if (MonotonicNow() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
};

TEST_F(ProgramJobTest, RanksAreToldWhoTheyAre) {
  const v1::Job job =
      RunJob(Shell("env", 2,
                   "echo rank=$RANK world=$WORLD_SIZE local=$LOCAL_RANK "
                   "master=$MASTER_ADDR:$MASTER_PORT; echo $TF_CONFIG; "
                   "echo to-stderr >&2"),
             v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.exit_code(), 0);
  EXPECT_EQ(job.cause().reason(), v1::REASON_COMPLETED);
  ASSERT_EQ(job.attempts_size(), 1);

  std::set<std::string> masters;
  json cluster;
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<std::string> lines = Output("env", rank);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_THAT(Line("env", rank, "rank="),
                HasSubstr("rank=" + std::to_string(rank) +
                          " world=2 local=0 master=127.0.0.1:"));
    masters.insert(Line("env", rank, "rank=").substr(lines[0].find("master=")));
    EXPECT_EQ(Line("env", rank, "to-stderr"), "to-stderr");

    const json config = json::parse(Line("env", rank, "{"), nullptr, false);
    ASSERT_TRUE(config.is_object());
    EXPECT_EQ(config["task"]["type"], rank == 0 ? "chief" : "worker");
    EXPECT_EQ(config["task"]["index"], 0);
    EXPECT_EQ(config["cluster"]["chief"].size(), 1u);
    EXPECT_EQ(config["cluster"]["worker"].size(), 1u);
    if (rank == 0) cluster = config["cluster"];
    EXPECT_EQ(config["cluster"], cluster);
  }
  EXPECT_EQ(masters.size(), 1u);
  EXPECT_NE(cluster["chief"][0], cluster["worker"][0]);

  // One core each, so one task a node; both ended well.
  std::set<std::string> nodes;
  for (const v1::TaskStatus& task : job.attempts(0).tasks()) {
    nodes.insert(task.node());
    EXPECT_EQ(task.ranks(0).exit().code(), 0);
    EXPECT_GT(task.ranks(0).usage().seconds(), 0);
  }
  EXPECT_EQ(nodes.size(), 2u);
}

TEST_F(ProgramJobTest, AllOutputIsThereAtTheEnd) {
  RunJob(Shell("talk", 2,
               "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; "
               "printf without-newline"),
         v1::JOB_STATE_SUCCEEDED);
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<std::string> lines = Output("talk", rank);
    ASSERT_EQ(lines.size(), 2001u);
    for (int i = 0; i < 2000; ++i) {
      ASSERT_EQ(lines[i], "line " + std::to_string(i));
    }
    EXPECT_EQ(lines[2000], "without-newline");
  }
}

// Rank 0 exits at once, and the others when there is a file `go`.
std::string RankZeroFirst(const std::string& go, const std::string& then) {
  return "[ $RANK = 0 ] && exit 0; while [ ! -e " + go +
         " ]; do sleep 0.02; done; " + then;
}

bool RankZeroHasExited(const v1::Job& job) {
  return job.tasks_size() > 0 && job.tasks(0).ranks(0).has_exit();
}

TEST_F(ProgramJobTest, EveryRankMustSucceed) {
  Submit(Shell("late", 2,
               RankZeroFirst(Path("go"), "echo shard > " + Path("shard"))));
  WaitUntil("late", "rank 0 has exited", RankZeroHasExited);
  EXPECT_EQ(Get("late").state(), v1::JOB_STATE_RUNNING);
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("late", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(ReadFile(Path("shard")), "shard\n");
  EXPECT_EQ(job.spec().end_with(), v1::END_WITH_ALL);
}

TEST_F(ProgramJobTest, RankThatFailsAfterRankZeroFailsTheJob) {
  v1::JobSpec spec = Shell("fails", 2, RankZeroFirst(Path("go"), "exit 5"));
  spec.set_restart_budget(0);
  Submit(spec);
  WaitUntil("fails", "rank 0 has exited", RankZeroHasExited);
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("fails", v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.exit_code(), 5);
}

TEST_F(ProgramJobTest, ChiefMayDecideAlone) {
  v1::JobSpec spec = Shell("chief", 2, RankZeroFirst(Path("never"), ""));
  spec.set_end_with(v1::END_WITH_CHIEF);
  spec.mutable_end_grace()->set_nanos(200'000'000);
  const v1::Job job = RunJob(spec, v1::JOB_STATE_SUCCEEDED);
  std::string stopped;
  for (const v1::Event& event : job.events()) {
    if (event.reason() == v1::REASON_RANKS_STOPPED) {
      stopped += event.message() + "\n";
    }
  }
  EXPECT_THAT(stopped, HasSubstr("still running; stopped in 200 ms unless "
                                 "they end: rank 1 (worker 0 on "));
  EXPECT_THAT(stopped, HasSubstr("killed by SIGTERM"));
}

// A time limit of a CI must not leave the job running.
TEST_F(ProgramJobTest, RunCancelsOnSigtermAndSighup) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    const std::string name = signal == SIGTERM ? "term" : "hup";
    const Command run =
        StartCommand({Binary("lockstep"), "run", "--no-python", "--name", name,
                      "--cpus", "0.5", "sleep", "1000"},
                     CliEnvironment());
    ASSERT_TRUE(AppearsSoon(name));
    WaitFor(name, v1::JOB_STATE_RUNNING);
    ASSERT_EQ(kill(run.process.id.pid, signal), 0);
    const CommandResult result = WaitCommand(run);
    EXPECT_EQ(result.code, 128 + signal) << result.err;
    EXPECT_THAT(result.err, HasSubstr("cancelling " + name));
    EXPECT_EQ(Get(name).state(), v1::JOB_STATE_CANCELLED);
  }
}

TEST_F(ProgramJobTest, SubmitDetachesOnSigtermAndSighup) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    const std::string name = signal == SIGTERM ? "term" : "hup";
    const Command submit = StartCommand(
        {Binary("lockstep"), "submit", "--name", name, "--", "sleep", "1000"},
        CliEnvironment());
    ASSERT_TRUE(AppearsSoon(name));
    WaitFor(name, v1::JOB_STATE_RUNNING);
    ASSERT_EQ(kill(submit.process.id.pid, signal), 0);
    const CommandResult result = WaitCommand(submit);
    EXPECT_EQ(result.code, 128 + signal) << result.err;
    EXPECT_THAT(result.err, HasSubstr("detached; the job runs on"));
    EXPECT_EQ(Get(name).state(), v1::JOB_STATE_RUNNING);
    ASSERT_TRUE(client()->CancelJob(name).ok());
    WaitEnd(name, v1::JOB_STATE_CANCELLED);
  }
}

TEST_F(ProgramJobTest, FollowingGoesOnUntilTheEnd) {
  Submit(Shell("follow", 1,
               "echo one; while [ ! -e " + Path("go") +
                   " ]; do sleep 0.02; done; echo two"));
  LogOptions options;
  options.name = "follow";
  options.follow = true;
  std::vector<std::string> lines;
  const Status status = client()->StreamLogs(
      options,
      [&](const v1::LogLine& line) {
        lines.push_back(line.text());
        if (line.text() == "one") WriteFile(Path("go"), "");
        return true;
      },
      nullptr);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(lines, testing::ElementsAre("one", "two"));
  WaitEnd("follow", v1::JOB_STATE_SUCCEEDED);
}

// A worker that ends badly when it is stopped changes nothing.
TEST_F(ProgramJobTest, TheChiefsEndIsTheJobs) {
  v1::JobSpec spec = Shell("chief3", 2,
                           "[ $RANK = 0 ] && exit 0; trap 'exit 3' TERM; "
                           "while :; do sleep 0.05; done");
  spec.set_end_with(v1::END_WITH_CHIEF);
  spec.mutable_end_grace()->set_nanos(200'000'000);
  EXPECT_EQ(RunJob(spec, v1::JOB_STATE_SUCCEEDED).exit_code(), 0);
}

// Its node cannot say so until the chief's end was taken for the job's.
TEST_F(ProgramJobTest, WorkerKilledBeforeTheChiefsEndCountsWhenItIsHeardOf) {
  v1::JobSpec spec = Shell("order", 2,
                           "[ $RANK = 1 ] && sleep 1000; while [ ! -e " +
                               Path("go") + " ]; do sleep 0.02; done");
  spec.set_end_with(v1::END_WITH_CHIEF);
  spec.mutable_end_grace()->set_nanos(200'000'000);
  Submit(spec);
  const v1::Job running = WaitFor("order", v1::JOB_STATE_RUNNING);
  const std::string& node = running.tasks(1).node();
  ASSERT_NE(node, running.tasks(0).node());
  ASSERT_TRUE(cluster()->Kill(node, SIGSTOP).ok());
  const auto pid = static_cast<pid_t>(PidOf(running, 1));
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return kill(pid, 0) != 0; }));
  // Farther apart than what has no order (server/core/ending.cc).
  ASSERT_FALSE(Eventually([] { return false; }, std::chrono::milliseconds(50)));
  WriteFile(Path("go"), "");
  WaitUntil("order", "the chief's end", [](const v1::Job& job) {
    return job.state() == v1::JOB_STATE_FINISHING;
  });
  ASSERT_TRUE(cluster()->Kill(node, SIGCONT).ok());
  const v1::Job job = WaitEnd("order", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.attempts_size(), 2) << job.DebugString();
  EXPECT_THAT(
      job.attempts(0).end_cause().message(),
      HasSubstr("rank 1 (worker 0 on " + node + "): killed by SIGKILL"));
}

TEST_F(ProgramJobTest, OneRankAloneNeedsNoOther) {
  const v1::Job job = RunJob(Shell("alone", 1, "echo w=$WORLD_SIZE; cat; pwd"),
                             v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Line("alone", 0, "w="), "w=1");
  EXPECT_EQ(Output("alone", 0).size(), 2u);  // stdin was empty.
  EXPECT_THAT(job.attempts(0).tasks(0).ranks(0).exit().message(), IsEmpty());
}

// What the program leaves behind goes with it.
TEST_F(ProgramJobTest, ChildrenOfARankDoNotOutliveIt) {
  RunJob(Shell("litter", 1, "sleep 1000 & setsid sleep 1001 & echo $!"),
         v1::JOB_STATE_SUCCEEDED);
  // The fixture finds them by their working directory.
}

TEST_F(ProgramJobTest, EnvironmentAndWorkingDirectoryAreTheJobs) {
  v1::JobSpec spec = Shell("env2", 1, "echo $COLOUR; pwd; env");
  (*spec.mutable_environment())["COLOUR"] = "blue";
  spec.set_working_directory(root());
  RunJob(spec, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Line("env2", 0, "blue"), "blue");
  EXPECT_EQ(Line("env2", 0, root()), root());
  // Nothing of the daemon's own.
  EXPECT_EQ(Line("env2", 0, "LOCKSTEP_BIN="), "");
}

// Many small jobs one after the other, none disturbed by those before it.
// Prints how long it takes from the submission to the first instruction of the
// later rank; speed is not judged here.
TEST_F(ProgramJobTest, FiftyJobsInARow) {
  std::vector<double> seconds;
  for (int i = 0; i < 50; ++i) {
    const std::string name = "job" + std::to_string(i);
    const int64_t before = ToUnixNanos(SystemClock().Now().wall);
    RunJob(Program(name, 2, {"date", "+%s%N"}), v1::JOB_STATE_SUCCEEDED);
    ASSERT_FALSE(HasFailure());
    int64_t last = 0;
    for (int rank = 0; rank < 2; ++rank) {
      const std::vector<std::string> lines = Output(name, rank);
      ASSERT_EQ(lines.size(), 1u);
      last = std::max<int64_t>(last, std::stoll(lines[0]));
    }
    EXPECT_GT(last, before);
    seconds.push_back(static_cast<double>(last - before) * 1e-9);
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf(
      "submit to the first instruction of both ranks: "
      "p50 %.1f ms, p99 %.1f ms\n",
      seconds[24] * 1e3, seconds[49] * 1e3);
}

}  // namespace
}  // namespace lockstep::cli
