// Jobs of any program: what ranks are told, what they say, how they end.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ProgramJobTest : public ClusterTest {};

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

// The chief decides; others get 10 s, and what they say then counts for
// nothing.
TEST_F(ProgramJobTest, TheChiefsEndIsTheJobs) {
  const v1::Job job =
      RunJob(Shell("chief", 2,
                   "[ $RANK = 0 ] && exit 0; trap 'exit 3' TERM; "
                   "while :; do sleep 0.05; done"),
             v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.exit_code(), 0);
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
}  // namespace lockstep
