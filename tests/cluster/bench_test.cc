// `lockstep bench --hosts` as somebody uses it, and what the cluster tells of
// a job's communication.
#include <signal.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class BenchTest : public ClusterTest {
 protected:
  CommandResult Bench(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    return Lockstep(std::move(arguments));
  }
  json Results(const std::string& name) {
    const json results = json::parse(ReadFile(Path(name)), nullptr, false);
    EXPECT_TRUE(results.is_object());
    return results.is_object() ? results : json::object();
  }
  size_t Jobs() {
    const auto jobs = client()->ListJobs();
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    return jobs.ok() ? jobs->size() : 0;
  }
  // Events of the job that tell the choice of the backend.
  std::vector<std::string> Choices(const std::string& job) {
    std::vector<std::string> choices;
    const v1::Job now = Get(job);
    for (const v1::Event& event : now.events()) {
      if (event.message().find("backend shm: ") != std::string::npos) {
        choices.push_back(event.message());
      }
    }
    return choices;
  }
};

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// The rows of the tables; each word of one.
std::vector<std::vector<std::string>> Rows(const std::string& out) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : Lines(out)) {
    if (!line.empty() && line[0] != '#') rows.push_back(Words(line));
  }
  return rows;
}

TEST_F(BenchTest, EveryCollectiveInNcclTestsColumns) {
  const std::string path = Path("all.json");
  const CommandResult result =
      Bench({"all", "--hosts",      "2",    "-b",        "1K",    "-e",
             "16K", "-f",           "4",    "-n",        "2",     "-w",
             "1",   "-c",           "1",    "-d",        "int32", "-o",
             "max", "--parameters", "100K", "--compute", "1",     "--name",
             "all", "--json",       path});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("all runs on worker-0, worker-1"));
  EXPECT_THAT(result.out, HasSubstr("2 ranks, backend shm, 1 warm-up"));
  EXPECT_THAT(result.out, HasSubstr("#  Rank   1 Pid"));
  EXPECT_THAT(result.out, HasSubstr("# Out of bounds values : 0 OK"));
  EXPECT_THAT(result.out, HasSubstr("# Avg bus bandwidth"));
  EXPECT_THAT(result.out, Not(HasSubstr("JSON ")));
  int headers = 0;
  for (const std::string& line : Lines(result.out)) {
    const auto words = Words(line);
    if (words.size() < 2 || words[1] != "size") continue;
    ++headers;
    EXPECT_EQ(
        line.substr(line.find("size")),
        "size        count     type  redop   root        time    algbw    "
        "busbw  #wrong      time    algbw    busbw  #wrong");
  }
  EXPECT_EQ(headers, 5);
  const auto rows = Rows(result.out);
  ASSERT_EQ(rows.size(), 15u);
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].size(), 13u) << i;
    EXPECT_EQ(rows[i][0],
              std::vector<std::string>({"1024", "4096", "16384"})[i % 3]);
    EXPECT_EQ(rows[i][2], "int32");
    EXPECT_EQ(rows[i][3], i < 6 ? "max" : "none");
    const bool broadcast = i / 3 == 3;
    const bool all_to_all = i / 3 == 4;
    EXPECT_EQ(rows[i][4], broadcast ? "0" : "-1");
    EXPECT_GT(std::stod(rows[i][5]), 0);  // out of place
    EXPECT_EQ(rows[i][8], "0");
    EXPECT_EQ(rows[i][9] == "N/A", all_to_all);  // in place
    EXPECT_EQ(rows[i][12], all_to_all ? "N/A" : "0");
  }

  const json document = Results("all.json");
  EXPECT_EQ(document["backend"], "shm");
  EXPECT_TRUE(document["machine"].contains("cpu"));
  EXPECT_TRUE(document["versions"].contains("lockstep"));
  ASSERT_EQ(document["ranks"].size(), 2u);
  EXPECT_EQ(document["ranks"][1]["rank"], 1);
  ASSERT_EQ(document["results"].size(), 16u);
  const char* const names[] = {"all-reduce", "reduce-scatter", "all-gather",
                               "broadcast", "all-to-all"};
  for (size_t i = 0; i < 15; ++i) {
    const json& row = document["results"][i];
    EXPECT_EQ(row["collective"], names[i / 3]);
    EXPECT_EQ(row["ranks"], 2);
    EXPECT_EQ(row.contains("in_place"), i < 12);
    for (const char* half : {"out_of_place", "in_place"}) {
      if (!row.contains(half)) continue;
      EXPECT_EQ(row[half]["wrong"], 0);
      EXPECT_GT(row[half]["seconds"], 0);
      EXPECT_TRUE(row[half].contains("algbw"));
      EXPECT_TRUE(row[half].contains("busbw"));
    }
  }
  const json& step = document["results"][15];
  EXPECT_EQ(step["collective"], "step");
  EXPECT_EQ(step["wrong"], 0);
  EXPECT_EQ(step["by_rank"].size(), 2u);
  EXPECT_EQ(Get("all").state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(BenchTest, StepsTellWhoHoldsTheOthersUp) {
  const CommandResult result = Bench(
      {"step", "--hosts", "2", "-g", "2", "--parameters", "10K", "--compute",
       "4", "-n", "40", "--slow", "3=150", "--json", Path("step.json")});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  for (const char* part :
       {"4 ranks, 40 steps", "rank 0 alone", "all ranks, with reductions",
        "rank 3 came last to", "values : 0 OK"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  const json step = Results("step.json")["results"][0];
  EXPECT_EQ(step["straggler"]["rank"], 3);
  EXPECT_GT(step["straggler"]["cost"], 0.05);
  EXPECT_GT(step["alone"]["p50"], 0);
  EXPECT_GE(step["step"]["p99"], step["step"]["p50"]);
}

TEST_F(BenchTest, WhatCannotBeIsSaidAtOnce) {
  CommandResult result = Bench({"frobnicate", "--hosts", "2"});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("frobnicate is none of"));
  result = Bench({"--hosts", "2", "-b", "8"});
  EXPECT_EQ(result.code, 2) << result.err;
  result = Bench({"allreduce", "--hosts", "a,b"});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("a,b is not a number"));
  result = Bench({"allreduce", "--hosts", "3"});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("2 hosts of the cluster take work: "
                                    "worker-0, worker-1"));
  result = Bench({"allreduce", "--hosts", "1", "--pool", "none"});
  EXPECT_THAT(result.err, HasSubstr("0 hosts of pool \"none\" take work"));
  EXPECT_EQ(Jobs(), 0u);

  // What only the ranks can know.
  result = Bench({"broadcast", "--hosts", "2", "-r", "5", "-e", "1K"});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("there are 2 ranks"));
  EXPECT_THAT(result.err, HasSubstr("FAILED"));

  // Busy.
  Submit(Shell("other", 1, "sleep 1000"));
  WaitFor("other", v1::JOB_STATE_RUNNING);
  result = Bench({"allreduce", "--hosts", "2", "--max-wait-time", "2s"});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("waits: needs 2 cpus in 2 tasks"));
  EXPECT_THAT(result.err, HasSubstr("waited for longer than maxWaitTime"));
}

TEST_F(BenchTest, CtrlCCancelsTheJob) {
  const Command bench = [&] {
    return StartCommand(
        {Binary("lockstep"), "bench", "allreduce", "--hosts", "2", "--name",
         "long", "-b", "1M", "-e", "1M", "-i", "1M", "-n", "100000", "-w", "0"},
        CliEnvironment());
  }();
  // Its output comes while it runs.
  ASSERT_TRUE(Eventually([&] {
    return RealFileSystem()->Read(bench.out).value_or("").find("Rank   1") !=
           std::string::npos;
  })) << RealFileSystem()->Read(bench.err).value_or("");
  ASSERT_TRUE(SendSignal(bench.process, SIGINT).ok());
  const CommandResult result = WaitCommand(bench);
  EXPECT_EQ(result.code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("cancelling long"));
  EXPECT_EQ(Get("long").state(), v1::JOB_STATE_CANCELLED);
  // No rank is left: the fixture looks.
}

TEST_F(BenchTest, TheChoiceIsAnEventOfEachGeneration) {
  RunJob(Steps("once", 2, {"--steps", "5"}), v1::JOB_STATE_SUCCEEDED);
  const auto once = Choices("once");
  ASSERT_EQ(once.size(), 1u) << testing::PrintToString(once);
  // Backend, why, and how it reduces what.
  EXPECT_THAT(once[0], HasSubstr("backend shm: all 2 ranks are on one host"));
  EXPECT_THAT(once[0], HasSubstr("KiB"));

  RunJob(Steps("twice", 2,
               {"--steps", "20", "--fail_step", "10", "--fail_rank", "1"}),
         v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get("twice").generation(), 2u);
  EXPECT_EQ(Choices("twice").size(), 2u)
      << testing::PrintToString(Choices("twice"));
  const CommandResult describe = Lockstep({"jobs", "describe", "twice"});
  EXPECT_THAT(describe.out, HasSubstr("backend shm"));
  const CommandResult events = Lockstep({"events"});
  EXPECT_THAT(events.out, HasSubstr("backend shm")) << events.err;
}

TEST_F(BenchTest, TheSlowRankIsNamedWithItsCost) {
  Submit(Steps(
      "slow", 2,
      {"--steps", "100000", "--step_ms", "2", "--slow_rank", "1", "--slow_ms",
       "6", "--hold_step", "150", "--hold_file", Path("go")}));
  WaitUntil("slow", "a straggler", [](const v1::Job& job) {
    for (const v1::TaskStatus& task : job.tasks()) {
      for (const v1::RankStatus& rank : task.ranks()) {
        if (rank.rank() == 0 && rank.progress().committed_step() >= 150 &&
            rank.progress().straggler().steps() == 100) {
          return true;
        }
      }
    }
    return false;
  });
  const CommandResult describe = Lockstep({"jobs", "describe", "slow"});
  ASSERT_EQ(describe.code, 0) << describe.err;
  std::string line;
  for (const std::string& each : Lines(describe.out)) {
    if (each.find("came last") != std::string::npos) line = each;
  }
  EXPECT_THAT(line, HasSubstr("rank 1 (worker 0 on "));
  EXPECT_THAT(line, HasSubstr("of the last 100 steps and costs "));
  const size_t costs = line.find("costs ");
  ASSERT_NE(costs, std::string::npos) << describe.out;
  // Three quarters of a step, where the machine does nothing else.
  EXPECT_GT(std::stod(line.substr(costs + 6)), 5);
  EXPECT_LT(std::stod(line.substr(costs + 6)), 95);
  ASSERT_TRUE(client()->CancelJob("slow").ok());
  WaitEnd("slow", v1::JOB_STATE_CANCELLED);
}

}  // namespace
}  // namespace lockstep
