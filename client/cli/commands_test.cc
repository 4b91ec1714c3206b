// Nodes, checkpoints, deletion, names, formats and certificates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "client/cli/cli_fixture.h"
#include "client/cli/find.h"
#include "client/cli/output.h"
#include "common/base/file.h"
#include "common/model/reduction_plan.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class CommandsTest : public CliTest {
 protected:
  void ServeNode(const std::string& name, v1::NodeState state,
                 const std::string& job = "") {
    server_->Update([&](FakeAnswers* a) {
      v1::Node& node = a->nodes.emplace_back();
      node.set_name(name);
      node.set_state(state);
      if (!job.empty()) node.add_jobs(job);
    });
  }
  void ServeJobs(const std::vector<std::string>& names, v1::JobState state) {
    server_->Update([&](FakeAnswers* a) {
      for (const std::string& name : names) {
        a->jobs.push_back(Ended(name, state));
      }
    });
  }
};

TEST_F(CommandsTest, DrainAndUndrain) {
  ServeNode("host-a", v1::NODE_STATE_READY);
  EXPECT_EQ(Run({"nodes", "drain", "host-a", "--reason", "new disk", "--grace",
                 "30s", "--wait"}),
            0)
      << err_.str();
  EXPECT_EQ(out_.str(), "host-a DRAINED: new disk\n");
  const auto drains = server_->Answers().drains;
  ASSERT_EQ(drains.size(), 1u);
  EXPECT_EQ(drains[0].reason(), "new disk");
  EXPECT_EQ(drains[0].grace().seconds(), 30);
  EXPECT_EQ(drains[0].request_id().size(), 36u);
  EXPECT_EQ(Run({"nodes", "undrain", "host"}), 0) << err_.str();
  EXPECT_EQ(out_.str(), "host-a READY\n");
  EXPECT_EQ(Run({"nodes", "drain", "host-a", "-o", "json"}), 0);
  EXPECT_FALSE(server_->Answers().drains[1].has_grace());
  EXPECT_EQ(nlohmann::json::parse(out_.str())["state"], "NODE_STATE_DRAINED");
  EXPECT_EQ(Run({"nodes", "drain", "host-a", "--grace", "soon"}), 2);
  EXPECT_EQ(Run({"nodes", "drain", "elsewhere"}), 3);
}

TEST_F(CommandsTest, ApproveSaysWhatMayBeUsed) {
  ServeNode("host-a", v1::NODE_STATE_READY);
  server_->Update([](FakeAnswers* a) {
    a->nodes[0].mutable_capacity()->set_cpus(8);
    a->nodes[0].mutable_offered()->set_cpus(96);
  });
  EXPECT_EQ(Run({"nodes", "list"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("offers 96 cpus, of which 8 cpus may be "
                                    "used: the rest waits for `lockstep nodes "
                                    "approve host-a`"));
  EXPECT_EQ(Run({"nodes", "describe", "host-a"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("offers       96 cpus, of which 8 cpus"));
  EXPECT_EQ(Run({"nodes", "approve", "host"}), 0) << err_.str();
  EXPECT_EQ(out_.str(), "host-a READY\n");
  EXPECT_THAT(err_.str(),
              HasSubstr("host-a: 96 cpus may be used, before 8 cpus"));
  EXPECT_THAT(server_->Answers().approved, ElementsAre("host-a"));
  EXPECT_EQ(Run({"nodes", "approve", "host-a"}), 0);
  EXPECT_THAT(err_.str(), HasSubstr("no approval was pending"));
  EXPECT_EQ(Run({"nodes", "approve", "elsewhere"}), 3);
}

TEST_F(CommandsTest, CheckPrintsEachPartAndFailsWithAGpu) {
  ServeNode("host-a", v1::NODE_STATE_READY);
  server_->Update([](FakeAnswers* a) {
    v1::GpuCheck* check = a->gpu_checks.add_checks();
    check->set_index(0);
    v1::GpuCheckPart* part = check->add_parts();
    part->set_name("memory");
    part->set_value(1875.3);
    part->set_unit("GB/s");
    part = check->add_parts();
    part->set_name("all_reduce");
    part->set_skipped("no second GPU of the node is free");
  });
  EXPECT_EQ(Run({"nodes", "check", "host"}), 0) << err_.str();
  EXPECT_THAT(out_.str(),
              testing::ContainsRegex("0 +memory +passed +1875 GB/s"));
  EXPECT_THAT(out_.str(),
              testing::ContainsRegex("0 +all_reduce +skipped +- +no second"));
  EXPECT_THAT(err_.str(), HasSubstr("host-a: 1 GPU checked, 0 failed"));
  server_->Update([](FakeAnswers* a) {
    v1::GpuCheck* check = a->gpu_checks.add_checks();
    check->set_index(3);
    check->set_failure("its check hung in memory, and was killed after 40 s");
  });
  EXPECT_EQ(Run({"nodes", "check", "host-a", "--gpu", "0", "--gpu", "3"}), 1);
  EXPECT_THAT(out_.str(),
              testing::ContainsRegex("3 +- +failed +- +its check hung in mem"));
  EXPECT_THAT(err_.str(), HasSubstr("2 GPUs checked, 1 failed"));
  EXPECT_THAT(server_->Answers().checked.at(1).gpus(), ElementsAre(0, 3));
  EXPECT_EQ(Run({"nodes", "check", "host-a", "-o", "json"}), 1);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["checks"][1]["index"], 3);
  EXPECT_EQ(Run({"nodes", "check", "elsewhere"}), 3);
}

TEST_F(CommandsTest, DrainWaitsAndGivesUp) {
  ServeNode("host-a", v1::NODE_STATE_READY, "fashion");
  EXPECT_EQ(Run({"nodes", "drain", "host-a", "--wait", "--timeout", "50ms"}),
            124);
  EXPECT_THAT(err_.str(), HasSubstr("1 job still on host-a: fashion"));
  EXPECT_THAT(out_.str(), StartsWith("host-a DRAINING"));
}

TEST_F(CommandsTest, ForgetAsksOrRefuses) {
  ServeNode("host-a", v1::NODE_STATE_UNKNOWN, "fashion");
  ServeNode("host-b", v1::NODE_STATE_READY);
  EXPECT_EQ(Run({"nodes", "forget", "host-a"}), 2);
  EXPECT_THAT(server_->Answers().forgotten, IsEmpty());
  EXPECT_EQ(Run({"nodes", "forget", "host-a", "--yes"}), 0) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("it had ranks of fashion"));
  EXPECT_EQ(Run({"nodes", "forget", "host-b", "-y"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("is connected"));
  // Never by a part of its name.
  EXPECT_EQ(Run({"nodes", "forget", "host", "--yes"}), 3);
}

TEST_F(CommandsTest, DeleteAsksOrRefuses) {
  ServeJobs({"a", "b"}, v1::JOB_STATE_SUCCEEDED);
  ServeJobs({"c"}, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Run({"jobs", "delete", "a"}), 2);
  env_.in_is_tty = env_.err_is_tty = true;
  in_.str("n\n");
  EXPECT_EQ(Run({"jobs", "delete", "a", "b"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("Delete jobs a, b with all logs"));
  EXPECT_THAT(server_->Answers().deleted, IsEmpty());
  in_.clear();
  in_.str("y\n");
  EXPECT_EQ(Run({"jobs", "delete", "a"}), 0) << err_.str();
  EXPECT_EQ(Run({"jobs", "delete", "c", "b", "nobody", "--yes"}), 3);
  EXPECT_THAT(err_.str(), HasSubstr("has not ended"));
  EXPECT_THAT(server_->Answers().deleted, ElementsAre("a", "b"));
}

TEST_F(CommandsTest, AReductionPlanIsShownAndPinned) {
  ReductionPlan plan;
  plan.ranks = plan.hosts = 2;
  plan.bucket_bytes = plan.first_bucket_bytes = plan.last_bucket_bytes = 2
                                                                         << 20;
  plan.layout = "0123456789abcdef";
  plan.communicator = "tcp ranks=2";
  const std::string text = Format(plan).value();
  ServeJobs({"a", "b"}, v1::JOB_STATE_RUNNING);
  server_->Update([&](FakeAnswers* a) {
    a->jobs[0].set_reduction_plan(text);
    a->jobs[1].mutable_spec()->set_reduction_plan(text);
  });
  EXPECT_EQ(Run({"jobs", "describe", "a", "--reduction-plan"}), 0);
  EXPECT_EQ(out_.str(), text);
  EXPECT_EQ(Run({"jobs", "describe", "a"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("by plan " + HashOf(plan) +
                                    ": buckets of 2 MiB, tcp ranks=2\n"));
  // Pinned, and not used yet.
  EXPECT_EQ(Run({"jobs", "describe", "b", "--reduction-plan"}), 0);
  EXPECT_EQ(out_.str(), text);
  EXPECT_EQ(Run({"jobs", "describe", "b"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr(HashOf(plan) + " (pinned): "));
  ServeJobs({"c"}, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Run({"jobs", "describe", "c", "--reduction-plan"}), 3);
  EXPECT_THAT(err_.str(), HasSubstr("job c has no reduction plan"));

  const std::string file = dir_ + "/a.plan";
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(file, text, 0644).ok());
  EXPECT_EQ(Run({"submit", "--detach", "--kind", "native", "--tasks", "2",
                 "--reduction-plan", file, "--", "prog"}),
            0)
      << err_.str();
  EXPECT_EQ(server_->Answers().submits.back().spec().reduction_plan(), text);
  EXPECT_NE(Run({"submit", "--detach", "--reduction-plan", dir_ + "/none", "--",
                 "prog"}),
            0);
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(file, "\xff", 0644).ok());
  EXPECT_EQ(Run({"submit", "--detach", "--reduction-plan", file, "--", "prog"}),
            2);
  EXPECT_EQ(server_->Answers().submits.size(), 1u);
}

TEST_F(CommandsTest, CheckpointWaits) {
  ServeJobs({"a"}, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Run({"jobs", "checkpoint", "a", "--wait"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("checkpoint of a at step 1"));
  server_->Update([](FakeAnswers* a) { a->completes_checkpoints = false; });
  EXPECT_EQ(Run({"jobs", "checkpoint", "a", "--wait", "--timeout", "10ms"}),
            124);
  server_->Update(
      [](FakeAnswers* a) { a->jobs[0].set_state(v1::JOB_STATE_FAILED); });
  EXPECT_EQ(Run({"jobs", "checkpoint", "a", "--wait"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("job a is FAILED"));
}

TEST_F(CommandsTest, CancelSavesFirst) {
  ServeJobs({"a", "b"}, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Run({"jobs", "cancel", "a", "--save"}), 0) << err_.str();
  EXPECT_EQ(server_->Answers().checkpoints, std::vector<std::string>{"a"});
  EXPECT_EQ(server_->Answers().cancelled, std::vector<std::string>{"a"});
  // A job that cannot save goes on.
  server_->Update([](FakeAnswers* a) {
    a->completes_checkpoints = false;
    a->jobs[1].set_state(v1::JOB_STATE_FAILED);
  });
  EXPECT_NE(Run({"jobs", "cancel", "b", "--save"}), 0);
  EXPECT_THAT(err_.str(), HasSubstr("job b is FAILED"));
  EXPECT_EQ(server_->Answers().cancelled.size(), 1u);
}

TEST_F(CommandsTest, BeginningsOfNames) {
  ServeJobs({"fashion-1", "fashion-2", "other"}, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"jobs", "describe", "oth", "-o", "name"}), 0) << err_.str();
  EXPECT_EQ(out_.str(), "other\n");
  EXPECT_EQ(Run({"jobs", "describe", "fash"}), 2);
  EXPECT_THAT(err_.str(),
              HasSubstr("2 jobs begin with fash: fashion-1, fashion-2"));
  EXPECT_EQ(Run({"jobs", "wait", "fashon-1"}), 3);
  EXPECT_THAT(err_.str(), HasSubstr("did you mean fashion-1?"));
  EXPECT_EQ(Run({"jobs", "logs", "fash"}), 2);
  // What ends a job wants its whole name.
  EXPECT_EQ(Run({"jobs", "cancel", "oth"}), 3);
  EXPECT_EQ(err_.str(), "lockstep: no job oth; did you mean other?\n");
  EXPECT_EQ(Run({"jobs", "cancel", "xyz", "other"}), 3);
  EXPECT_EQ(err_.str(), "lockstep: no job xyz\n");
  EXPECT_THAT(server_->Answers().cancelled, ElementsAre("other"));
}

TEST(FindTest, AWholeNameWinsOverOnesItBegins) {
  EXPECT_EQ(*MatchName("job", "a", {"a", "ab"}), "a");
  EXPECT_EQ(*MatchName("job", "ab", {"a", "abc"}), "abc");
  EXPECT_EQ(MatchName("job", "", {"a"}).status().code(), StatusCode::kNotFound);
  std::vector<std::string> many;
  for (int i = 0; i < 30; ++i) many.push_back("x" + std::to_string(i));
  EXPECT_THAT(Message(MatchName("node", "x", many).status()),
              HasSubstr("30 nodes begin with x: x0, x1"));
  EXPECT_THAT(Message(MatchName("node", "x", many).status()),
              HasSubstr("and 20 others"));
}

TEST_F(CommandsTest, ListsInEveryFormat) {
  ServeJobs({"a", "b", "c"}, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"jobs", "list", "--columns", "state,name", "--no-headers"}), 0)
      << err_.str();
  EXPECT_THAT(out_.str(), StartsWith("SUCCEEDED  a\nSUCCEEDED  b\n"));
  EXPECT_EQ(Run({"jobs", "list", "-o", "csv", "--columns", "NAME,OWNER"}), 0);
  EXPECT_EQ(out_.str(), "NAME,OWNER\na,\nb,\nc,\n");
  EXPECT_EQ(Run({"jobs", "list", "--columns", "NAME,SIZE"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("there is no SIZE; there are NAME, STATE"));
  EXPECT_EQ(Run({"jobs", "list", "-o", "jsonl", "--limit", "2"}), 0);
  std::istringstream lines(out_.str());
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    ++count;
    EXPECT_TRUE(nlohmann::json::parse(line).contains("jobId"));
  }
  EXPECT_EQ(count, 2);
  EXPECT_EQ(Run({"jobs", "list", "--json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["jobs"].size(), 3u);
  EXPECT_EQ(Run({"jobs", "list", "--filter", "name=[ab]", "-o", "name"}), 0);
  EXPECT_EQ(out_.str(), "a\nb\n");
  // Lists only.
  EXPECT_EQ(Run({"jobs", "describe", "a", "-o", "csv"}), 2);
}

TEST_F(CommandsTest, WhyIsCutAtTheTerminalsWidthOnly) {
  ServeJobs({"a"}, v1::JOB_STATE_FAILED);
  const std::string why(200, 'x');
  server_->Update(
      [&](FakeAnswers* a) { a->jobs[0].mutable_cause()->set_message(why); });
  EXPECT_EQ(Run({"jobs", "list"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr(why));
  env_.out_is_tty = true;
  env_.columns = 60;
  EXPECT_EQ(Run({"jobs", "list", "--color", "never"}), 0) << err_.str();
  std::istringstream lines(out_.str());
  std::string line;
  std::getline(lines, line);
  EXPECT_THAT(line, HasSubstr("WHY"));
  std::getline(lines, line);
  EXPECT_EQ(line.size(), 60u) << line;
  EXPECT_TRUE(line.ends_with("xxx...")) << line;
  // A longer list is printed when it is asked for.
  EXPECT_EQ(Run({"jobs", "list", "-o", "wide"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr(why));
  EXPECT_EQ(Run({"jobs", "list", "--columns", "why"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr(why));
  // A terminal that is too narrow for the others loses nothing of them.
  env_.columns = 10;
  EXPECT_EQ(Run({"jobs", "list", "--no-headers", "--color", "never"}), 0);
  EXPECT_EQ(out_.str(), "a  FAILED  0  -  -  -  ...\n");
}

TEST_F(CommandsTest, ALogThatEndsOnASilentNodeIsSaid) {
  ServeNode("host-a", v1::NODE_STATE_LOST);
  v1::Job job = Ended("a", v1::JOB_STATE_SUCCEEDED);
  job.mutable_tasks(0)->mutable_ranks(0)->clear_exit();
  job.mutable_tasks(0)->mutable_ranks(0)->set_state(v1::RANK_STATE_JOINED);
  v1::LogLine line;
  line.set_text("the last line");
  server_->Update([&](FakeAnswers* a) {
    a->jobs = {job};
    a->lines = {line};
  });
  EXPECT_EQ(Run({"jobs", "logs", "a"}), 1);
  EXPECT_EQ(out_.str(), "the last line\n");
  EXPECT_THAT(err_.str(),
              HasSubstr("lockstep: the log of rank 0 ends here: node host-a "
                        "has been silent since "));
  server_->Update(
      [](FakeAnswers* a) { a->nodes[0].set_state(v1::NODE_STATE_READY); });
  EXPECT_EQ(Run({"jobs", "logs", "a"}), 0);
  EXPECT_EQ(err_.str(), "");
}

TEST_F(CommandsTest, FollowedLogsShowLinesWithoutAnEnd) {
  v1::LogLine bar;
  bar.set_text("50%");
  bar.set_task_type(v1::TASK_TYPE_CHIEF);
  bar.set_partial(true);
  v1::LogLine line = bar;
  line.set_text("100%");
  line.set_partial(false);
  server_->Update([&](FakeAnswers* a) {
    a->jobs = {Ended("a", v1::JOB_STATE_SUCCEEDED)};
    a->lines = {bar, line};
  });
  EXPECT_EQ(Run({"jobs", "logs", "-f", "a"}), 0) << err_.str();
  EXPECT_EQ(out_.str(), "50%\n100%\n");
  env_.out_is_tty = true;
  EXPECT_EQ(Run({"jobs", "logs", "-f", "a", "--prefix", "--color", "never"}),
            0);
  EXPECT_EQ(out_.str(), "\r\x1b[K[0 chief 0] 50%\r\x1b[K[0 chief 0] 100%\n");
  EXPECT_EQ(Run({"jobs", "logs", "a"}), 0);
  EXPECT_EQ(Run({"jobs", "logs", "-f", "a", "-o", "json"}), 0);
  const FakeAnswers answers = server_->Answers();
  ASSERT_EQ(answers.log_requests.size(), 4u);
  EXPECT_TRUE(answers.log_requests[0].partial_lines());
  EXPECT_FALSE(answers.log_requests[2].partial_lines());
  EXPECT_FALSE(answers.log_requests[3].partial_lines());
}

TEST_F(CommandsTest, NodesByState) {
  ServeNode("host-a", v1::NODE_STATE_READY);
  ServeNode("host-b", v1::NODE_STATE_DRAINED);
  EXPECT_EQ(Run({"nodes", "list", "--state", "drained", "-o", "name"}), 0);
  EXPECT_EQ(out_.str(), "host-b\n");
  EXPECT_EQ(Run({"nodes", "list", "--state", "asleep"}), 2);
}

TEST(OutputFormatsTest, CsvIsQuotedWhereItMustBe) {
  EXPECT_EQ(RenderCsv({{"A", "B"}, {{"x,y", "say \"hi\""}, {"1"}}}, true),
            "A,B\n\"x,y\",\"say \"\"hi\"\"\"\n1,\n");
}

TEST_F(CommandsTest, Events) {
  ServeNode("host-a", v1::NODE_STATE_READY);
  ServeJobs({"a"}, v1::JOB_STATE_SUCCEEDED);
  const int64_t now = ToUnixNanos(clock_.Now().wall) / 1'000'000'000;
  server_->Update([&](FakeAnswers* answers) {
    v1::Event* const job = answers->jobs[0].add_events();
    job->mutable_time()->set_seconds(now - 60);
    job->set_reason(v1::REASON_COMPLETED);
    job->set_message("all ranks ended");
    v1::Event* const node = answers->nodes[0].add_events();
    node->mutable_time()->set_seconds(now - 7200);
    node->set_reason(v1::REASON_NODE_REGISTERED);
    node->set_message("registered");
  });
  EXPECT_EQ(Run({"events"}), 0) << err_.str();
  EXPECT_LT(out_.str().find("node host-a"), out_.str().find("job a"));
  EXPECT_EQ(Run({"events", "--since", "1h", "-o", "jsonl"}), 0);
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["job"], "a");
  EXPECT_EQ(json["message"], "all ranks ended");
}

TEST_F(CommandsTest, TopForScripts) {
  ServeNode("host-a", v1::NODE_STATE_READY);
  ServeJobs({"a"}, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Run({"top", "-n1", "-b"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("host-a  READY"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("\x1b")));
  EXPECT_EQ(Run({"top", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["jobs"][0]["name"], "a");
  EXPECT_EQ(Run({"top"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("top needs a terminal"));
  EXPECT_EQ(Run({"top", "-b", "-d", "1ms"}), 2);
  server_.reset();
  EXPECT_EQ(Run({"top", "-n1", "-b"}), 6);
}

TEST_F(CommandsTest, DryRunOfAJobThatWouldWaitForNothingKnown) {
  v1::Job job = Ended("w", v1::JOB_STATE_QUEUED);
  server_->Update([&](FakeAnswers* a) { a->jobs = {job}; });
  EXPECT_EQ(Run({"submit", "--name", "w", "--dry-run", "--", "prog"}), 0);
  EXPECT_EQ(out_.str(), "w would wait\n");
}

TEST_F(CommandsTest, CertificatesSayWhenTheyEnd) {
  const std::string pki = dir_ + "/pki";
  ASSERT_EQ(Run({"init", "--dir", pki}), 0) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("until 20"));
  ASSERT_EQ(Run({"cert", "issue", "user", "ann", "--dir", pki}), 0);
  EXPECT_THAT(err_.str(), HasSubstr("as submitter"));
  EXPECT_THAT(err_.str(), HasSubstr("until 20"));
  struct stat info {};
  ASSERT_EQ(stat((pki + "/user-ann/tls.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat((pki + "/user-ann").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  // Nobody is there; but first the certificate's end is told where it is near.
  const std::string user = pki + "/user-ann";
  const std::vector<std::string> list = {
      "nodes", "list",           "--address", "127.0.0.1:1",
      "--ca",  user + "/ca.crt", "--cert",    user + "/tls.crt",
      "--key", user + "/tls.key"};
  env_.variables.erase("LOCKSTEP_INSECURE_LOOPBACK");
  Run(list);
  EXPECT_THAT(err_.str(), Not(HasSubstr("expires in")));
  struct Later final : Clock {
    Time Now() const override {
      Time time = SystemClock().Now();
      time.wall += std::chrono::hours(24 * 340);
      return time;
    }
  } later;
  env_.clock = &later;
  Run(list);
  EXPECT_THAT(err_.str(), HasSubstr("tls.crt expires in"));
  env_.clock = &clock_;
}

}  // namespace
}  // namespace lockstep::cli
