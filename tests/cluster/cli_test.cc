// The command line as somebody uses it, from `local up` to `local down`.
#include <signal.h>

#include <nlohmann/json.hpp>

#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CliTest : public ClusterTest {
 protected:
  void SetUp() override {
    // `local up` starts it.
    manual_start_ = true;
    ClusterTest::SetUp();
    env_ = {"XDG_CONFIG_HOME=" + Path("config"),
            "XDG_DATA_HOME=" + Path("data"), "NO_COLOR=1"};
    options_.dir = Path("c");
  }
  void TearDown() override {
    const CommandResult down = Run({"local", "down", "--dir", Path("c")});
    EXPECT_EQ(down.code, 0) << down.err;
    ClusterTest::TearDown();
  }
  CommandResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), Binary("lockstep"));
    return RunCommand(arguments, env_);
  }
  // stdout of a command that must succeed.
  std::string Ok(const std::vector<std::string>& arguments) {
    const CommandResult result = Run(arguments);
    EXPECT_EQ(result.code, 0) << testing::PrintToString(arguments) << "\n"
                              << result.err;
    return result.out;
  }
  json Json(std::vector<std::string> arguments) {
    arguments.push_back("-o");
    arguments.push_back("json");
    const std::string text = Ok(arguments);
    const json value = json::parse(text, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << text;
    return value;
  }
  void Up() {
    Ok({"local", "up", "--dir", Path("c"), "--workers", "2", "--cpus", "2",
        "--memory", "4GiB", "--gpus", "0"});
  }

  std::vector<std::string> env_;
};

TEST_F(CliTest, UpStatusDown) {
  Up();
  const json status = Json({"local", "status", "--dir", Path("c")});
  ASSERT_EQ(status["daemons"].size(), 3u);
  for (const json& daemon : status["daemons"]) {
    EXPECT_EQ(daemon["running"], true);
    EXPECT_GT(daemon["pid"].get<int>(), 0);
    EXPECT_THAT(daemon["http"].get<std::string>(), HasSubstr("127.0.0.1:"));
  }
  const json nodes = Json({"nodes", "list"});
  EXPECT_EQ(nodes["nodes"].size(), 2u);
  EXPECT_THAT(Ok({"nodes", "describe", "worker-0"}), HasSubstr("worker-0"));
  EXPECT_THAT(Ok({"version"}), HasSubstr("lockstep"));

  // The context knows where it is.
  EXPECT_EQ(Json({"local", "status"}), status);

  // What is gone comes back.
  Ok({"local", "up", "--dir", Path("c")});
  EXPECT_EQ(Json({"local", "status", "--dir", Path("c")}), status);
  Ok({"local", "down"});
  const json down = Json({"local", "status", "--dir", Path("c")});
  EXPECT_EQ(down["daemons"][0]["running"], false);
  const CommandResult nobody = Run({"jobs", "list"});
  EXPECT_EQ(nobody.code, 6) << nobody.err;
  EXPECT_THAT(nobody.out, IsEmpty());
}

TEST_F(CliTest, AJobFromSubmitToLogs) {
  Up();
  const CommandResult submit = Run({"submit", "--name", "hello", "--tasks", "2",
                                    "--", "sh", "-c", "echo hello from $RANK"});
  EXPECT_EQ(submit.code, 0) << submit.err;
  EXPECT_THAT(submit.out, HasSubstr("SUCCEEDED"));
  const std::string logs = Ok({"jobs", "logs", "hello"});
  EXPECT_THAT(logs, HasSubstr("hello from 0\n"));
  EXPECT_THAT(logs, HasSubstr("hello from 1\n"));
  EXPECT_EQ(Ok({"jobs", "logs", "hello", "--rank", "1"}), "hello from 1\n");

  const json job = Json({"jobs", "describe", "hello"});
  EXPECT_EQ(job["jobId"], "hello");
  EXPECT_THAT(job["state"].dump(), HasSubstr("SUCCEEDED"));
  EXPECT_THAT(Ok({"jobs", "describe", "hello"}), HasSubstr("SUCCEEDED"));
  EXPECT_EQ(Json({"jobs", "list"})["jobs"].size(), 1u);
  EXPECT_EQ(Ok({"jobs", "list", "-o", "name"}), "hello\n");
  EXPECT_THAT(Ok({"jobs", "list"}), HasSubstr("hello"));
  EXPECT_EQ(Run({"jobs", "wait", "hello"}).code, 0);
}

// As Keras and tqdm do.
TEST_F(CliTest, ABarThatIsRedrawnIsSeenWhileItRuns) {
  Up();
  Ok({"submit", "--name", "bar", "--detach", "--", "sh", "-c",
      "i=0; while [ ! -e " + Path("go") +
          " ]; do i=$((i+1)); printf '\\r%s of many' $i; sleep 0.05; done; "
          "printf '\\rall of many\\n'"});
  const CommandResult seen = RunCommand(
      {"/bin/bash", "-c", Binary("lockstep") + " jobs logs -f bar | head -n 2"},
      env_);
  EXPECT_THAT(seen.out, ::testing::ContainsRegex("^[0-9]+ of many\n[0-9]+ of"));
  WriteFile(Path("go"), "");
  EXPECT_EQ(Run({"jobs", "wait", "bar"}).code, 0);
  EXPECT_EQ(Ok({"jobs", "logs", "bar"}), "all of many\n");
}

TEST_F(CliTest, ExitCodesSayHowItEnded) {
  Up();
  // Of the job.
  EXPECT_EQ(Run({"submit", "--restart-budget", "0", "--name", "seven", "--",
                 "sh", "-c", "exit 7"})
                .code,
            7);
  EXPECT_EQ(Run({"jobs", "wait", "seven"}).code, 7);
  EXPECT_EQ(
      Run({"submit", "--name", "cancelled", "--detach", "--", "sleep", "1000"})
          .code,
      0);
  EXPECT_EQ(Run({"jobs", "wait", "cancelled", "--timeout", "0.2s"}).code, 124);
  EXPECT_EQ(Run({"jobs", "cancel", "cancelled"}).code, 0);
  EXPECT_EQ(Run({"jobs", "wait", "cancelled"}).code, 1);
  // Of the command line.
  EXPECT_EQ(Run({"jobs", "describe", "sevn"}).code, 3);
  EXPECT_THAT(Run({"jobs", "describe", "sevn"}).err, HasSubstr("seven"));
  EXPECT_EQ(Run({"jbos", "list"}).code, 2);
  EXPECT_THAT(Run({"jbos", "list"}).err, HasSubstr("jobs"));
  EXPECT_EQ(Run({"submit", "--cpus", "64", "--", "true"}).code, 5);
  const CommandResult dry =
      Run({"submit", "--dry-run", "--tasks", "2", "--", "true"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("worker-1"));
}

TEST_F(CliTest, WhoFollowsEndsWithItsReader) {
  Up();
  Ok({"submit", "--name", "quiet", "--detach", "--", "sh", "-c",
      "echo one; exec sleep 1000"});
  const std::string lockstep = Binary("lockstep");
  for (const std::string command :
       {"jobs logs -f quiet", "jobs stream-logs quiet", "events -f"}) {
    const CommandResult result = RunCommand(
        {"/bin/bash", "-c",
         "(" + lockstep + " " + command + "; echo $? >&2) | head -n 1"},
        env_);
    EXPECT_EQ(result.err, "141\n") << command;
    EXPECT_FALSE(result.out.empty()) << command;
  }
  // What ends by itself is cut, and says nothing.
  const CommandResult list = RunCommand(
      {"/bin/bash", "-c",
       "(sleep 0.2; " + lockstep + " jobs list; echo $? >&2) | true"},
      env_);
  EXPECT_EQ(list.err, "141\n");
}

TEST_F(CliTest, CtrlCDetaches) {
  Up();
  const Command submit = StartCommand(
      {Binary("lockstep"), "submit", "--name", "long", "--", "sleep", "1000"},
      env_);
  EXPECT_TRUE(Eventually([&] {
    return Run({"jobs", "list", "--state", "running", "-o", "name"}).out ==
           "long\n";
  }));
  ASSERT_TRUE(SendSignal(submit.process, SIGINT).ok());
  const CommandResult result = WaitCommand(submit);
  EXPECT_EQ(result.code, 130);
  EXPECT_THAT(result.err, HasSubstr("jobs wait long"));
  EXPECT_EQ(Ok({"jobs", "list", "--state", "running", "-o", "name"}), "long\n");
  // `local down` cancels it.
}

TEST_F(CliTest, AJobFile) {
  Up();
  WriteFile(Path("job.yaml"),
            "name: from-file\n"
            "kind: program\n"
            "roles:\n"
            "- {type: chief, count: 1, resources: {cpus: 1}}\n"
            "argv: [sh, -c, 'echo $COLOUR']\n"
            "environment: {COLOUR: green}\n");
  EXPECT_EQ(Run({"submit", "-f", Path("job.yaml")}).code, 0);
  EXPECT_EQ(Ok({"jobs", "logs", "from-file"}), "green\n");
}

TEST_F(CliTest, ANativeJobEndsWithItsSummary) {
  Up();
  const CommandResult submit =
      Run({"submit", "--kind", "native", "--name", "steps", "--tasks", "2",
           "--output", OutputOf("steps"), "--checkpoint-interval-steps", "10",
           "--", TestBinary("step_program"), "--steps", "25"});
  EXPECT_EQ(submit.code, 0) << submit.err;
  for (const char* part : {"SUCCEEDED", "25 steps", "model.safetensors",
                           "checkpoints/step-", "first_weight"}) {
    EXPECT_THAT(submit.err + submit.out, HasSubstr(part));
  }
  const CommandResult late = Run({"jobs", "checkpoint", "steps"});
  EXPECT_EQ(late.code, 1) << late.err;
}

}  // namespace
}  // namespace lockstep
