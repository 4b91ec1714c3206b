// Users in ranks: commands, terminals and ports, with real processes.
#include <signal.h>

#include "common/os/process.h"
#include "tests/cluster/fixture.h"
#include "tests/support/http_client.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Serves its directory at the port that is leased for it.
constexpr char kServer[] =
    "echo from the rank >page; exec python3 -c '"
    "from http.server import *; import os; "
    "SimpleHTTPRequestHandler.protocol_version = \"HTTP/1.1\"; "
    "address = (\"127.0.0.1\", int(os.environ[\"MASTER_PORT\"])); "
    "ThreadingHTTPServer(address, SimpleHTTPRequestHandler).serve_forever()'";

class SessionTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (HasFatalFailure()) return;
    Submit(Shell("j", 1, kServer));
    WaitFor("j", v1::JOB_STATE_RUNNING);
  }
  // `lockstep ARGUMENTS`, with a shell around it that has $LOCKSTEP.
  CommandResult InShell(const std::string& script) {
    std::vector<std::string> env = CliEnvironment();
    env.push_back("LOCKSTEP=" + Binary("lockstep"));
    return RunCommand({"/bin/sh", "-c", script}, env);
  }
  Command StartLockstep(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), Binary("lockstep"));
    return StartCommand(arguments, CliEnvironment());
  }
  // Once the command has written a line that holds `text`; that line.
  std::string LineOf(const Command& command, const std::string& text) {
    std::string line;
    EXPECT_TRUE(Eventually([&] {
      const std::string all = ReadFile(command.out);
      const size_t at = all.find(text);
      if (at == all.npos) return false;
      const size_t begin = all.rfind('\n', at) + 1;
      const size_t end = all.find('\n', at);
      if (end == all.npos) return false;
      line = all.substr(begin, end - begin);
      return true;
    })) << text;
    return line;
  }
};

TEST_F(SessionTest, ACommandHasTheRanksPlaceItsInputAndItsCode) {
  const CommandResult piped = InShell(
      "printf 'hello\\n' | $LOCKSTEP exec j -- sh -c "
      "'read x; echo \"$x $LOCKSTEP_JOB $(cat page)\"; echo bad >&2; exit 7'");
  EXPECT_EQ(piped.code, 7);
  EXPECT_EQ(piped.out, "hello j from the rank\n");
  EXPECT_EQ(piped.err, "bad\n");
  // More than any buffer on the way, both ways.
  const CommandResult large =
      InShell("head -c 20000000 /dev/zero | $LOCKSTEP exec j -- cat | wc -c");
  EXPECT_EQ(large.out, "20000000\n");

  // A reader that leaves ends it.
  EXPECT_EQ(InShell("$LOCKSTEP exec j -n -- yes | head -1").out, "y\n");

  const CommandResult terminal = InShell(
      "TERM=vt100 script -qec \"stty rows 33 cols 111; $LOCKSTEP exec j --tty "
      "-- "
      "sh -c 'stty size; echo \\$TERM; exit 5'\" /dev/null </dev/null");
  EXPECT_EQ(terminal.code, 5);
  EXPECT_THAT(terminal.out, AllOf(HasSubstr("33 111"), HasSubstr("vt100")));

  const CommandResult missing = Lockstep({"exec", "j", "-n", "--", "no-such"});
  EXPECT_EQ(missing.code, 127);
  EXPECT_THAT(missing.err, HasSubstr("program no-such is not in PATH"));
  const CommandResult killed =
      Lockstep({"exec", "j", "-n", "--", "sh", "-c", "kill -9 $$"});
  EXPECT_EQ(killed.code, 128 + SIGKILL);
  const CommandResult no_rank =
      Lockstep({"exec", "j", "-n", "--rank", "4", "--", "true"});
  EXPECT_EQ(no_rank.code, 3);
  EXPECT_THAT(no_rank.err, HasSubstr("job j has no rank 4"));
  const CommandResult not_python =
      Lockstep({"jobs", "profile", "j", "--rank", "4"});
  EXPECT_EQ(not_python.code, 3);

  // The job went on, and its history says what was done.
  const v1::Job job = Get("j");
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  int events = 0;
  for (const v1::Event& event : job.events()) {
    events += event.reason() == v1::REASON_SESSION ? 1 : 0;
  }
  EXPECT_EQ(events, 6);
  const std::string audit =
      ReadFile(cluster()->layout().DaemonDir("coordinator") + "/audit.log");
  EXPECT_THAT(audit, AllOf(HasSubstr("OpenSession"),
                           HasSubstr("\"target\":\"j rank 0: cat\"")));

  // The rank's own profiler needs a program that has joined.
  const CommandResult apart =
      Lockstep({"jobs", "profile", "j", "--with", "torch"});
  EXPECT_EQ(apart.code, 1);
  EXPECT_THAT(apart.err, HasSubstr("no program of this rank has joined"));
  const CommandResult both =
      Lockstep({"jobs", "profile", "j", "--with", "jax", "--native"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("are for --with py-spy"));
}

TEST_F(SessionTest, APortIsForwarded) {
  const CommandResult port =
      Lockstep({"exec", "j", "-n", "--", "sh", "-c", "echo $MASTER_PORT"});
  const Command forward = StartLockstep(
      {"forward", "j", ":" + port.out.substr(0, port.out.size() - 1)});
  const std::string line = LineOf(forward, " -> port ");
  ASSERT_THAT(line, StartsWith("127.0.0.1:"));
  const std::string address = line.substr(0, line.find(' '));
  ASSERT_TRUE(Eventually([&] {
    const auto page = HttpGet(address, "/page");
    return page.ok() && page->status == 200 && page->body == "from the rank\n";
  }));
  ASSERT_TRUE(SendSignal(forward.process, SIGINT).ok());
  EXPECT_EQ(WaitCommand(forward).code, 128 + SIGINT);
}

TEST_F(SessionTest, EndsWithItsRankAndWithTheDaemon) {
  const std::vector<std::string> waits = {
      "exec", "j", "-n", "--", "sh", "-c", "echo $$ ready; exec sleep 600"};
  const Command first = StartLockstep(waits);
  const int pid = std::stoi(LineOf(first, " ready"));
  // Without its daemon a session has no other end; the rank does not notice.
  const std::string daemon = Get("j").tasks(0).node();
  KillDaemon(daemon);
  EXPECT_EQ(WaitCommand(first).code, 6);
  EXPECT_TRUE(Eventually([&] { return kill(pid, 0) != 0; }));
  EXPECT_EQ(kill(static_cast<pid_t>(PidOf(Get("j"), 0)), 0), 0);
  StartDaemon(daemon);
  WaitFor("j", v1::JOB_STATE_RUNNING);

  // The next daemon found the rank, and its shim.
  ASSERT_TRUE(Eventually([&] {
    return Lockstep({"exec", "j", "-n", "--", "true"}).code == 0;
  }));
  const Command second = StartLockstep(waits);
  (void)LineOf(second, " ready");
  ASSERT_EQ(kill(static_cast<pid_t>(PidOf(Get("j"), 0)), SIGKILL), 0);
  const CommandResult ended = WaitCommand(second);
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_THAT(ended.err, HasSubstr("the rank has ended"));
}

TEST_F(SessionTest, AnInteractiveJobEndsWithItsProgram) {
  const CommandResult job = InShell(
      "script -qec \"$LOCKSTEP submit --tty --name i -- sh -c 'tty; exit 4'\" "
      "/dev/null </dev/null");
  EXPECT_EQ(job.code, 4);
  EXPECT_THAT(job.out, HasSubstr("/dev/pts/"));
  const v1::Job ended = WaitEnd("i", v1::JOB_STATE_FAILED);
  EXPECT_EQ(ended.spec().idle_stop().seconds(), 30 * 60);
  EXPECT_THAT(ended.cause().message(), HasSubstr("exit code 4"));

  // One sentence says what to install. A shell has no TensorBoard.
  const CommandResult board = Lockstep({"jobs", "tensorboard", "j", "--logdir",
                                        "/tmp", "--python", "/bin/false"});
  EXPECT_EQ(board.code, 1);
  EXPECT_THAT(board.err, HasSubstr("pip install tensorboard"));
}

}  // namespace
}  // namespace lockstep
