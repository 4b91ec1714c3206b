// A shim whose rank is a container, with scripts as its engine's commands.
#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "common/base/file.h"
#include "worker/shim/shim_fixture.h"

namespace lockstep::worker::shim {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using task::ExitKind;
using task::ExitRecord;
using task::ShimReply;
using task::ShimSpec;
using testing::HasSubstr;

class ContainerTest : public ShimTest {
 protected:
  // The "client" runs `client`; commands of the engine are noted in $DIR/calls.
  ShimSpec ContainerOf(const std::string& client,
                       const std::string& inspect = "echo exited 0 false") {
    ShimSpec spec = Spec(client);
    spec.container.name = "lockstep-job-g1-r0";
    const std::string note = "echo $0 $1 >> $DIR/calls; ";
    spec.container.signal = {"/bin/sh", "-c", note + "kill -$1 $(cat $DIR/pid)",
                             "signal", "%"};
    spec.container.inspect = {"/bin/sh", "-c", note + inspect, "inspect"};
    spec.container.remove = {"/bin/sh", "-c", note + "rm -f $DIR/thing",
                             "remove"};
    return spec;
  }
  // Its first process is the shim itself, as in a container.
  ShimSpec Reporting(const std::vector<std::string>& program) {
    ShimSpec spec = ContainerOf("");
    spec.argv = {program_, "--"};
    spec.argv.insert(spec.argv.end(), program.begin(), program.end());
    spec.container.reports = true;
    return spec;
  }
  std::string Calls() {
    return RealFileSystem()->Read(Path("calls"), 1 << 20).value_or("");
  }
};

TEST_F(ContainerTest, IsInspectedAndRemovedBeforeTheEndIsWritten) {
  std::ofstream(Path("thing")) << "x";
  const ExitRecord r = RunToEnd(ContainerOf("exit 3", "echo exited 3 false"));
  EXPECT_EQ(ExitCode(r), 3);
  EXPECT_EQ(Calls(), "inspect\nremove\n");
  EXPECT_FALSE(RealFileSystem()->Exists(Path("thing")));
  EXPECT_EQ(r.tree_left, 0u);
  const auto record = ReadTaskRecord(Path("task"));
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->container, "lockstep-job-g1-r0");
  EXPECT_EQ(record->engine, "/bin/sh");
}

TEST_F(ContainerTest, TheEnginesOwnFailureIsAStartThatFailed) {
  const ExitRecord r = RunToEnd(
      ContainerOf("echo noise >&2; echo 'Error: no such image' >&2; exit 125"));
  EXPECT_EQ(r.kind, ExitKind::kNotStarted);
  EXPECT_EQ(r.message, "the container engine says: no such image");
  EXPECT_EQ(ExitCode(r), 126);
}

TEST_F(ContainerTest, AProgramThatIsNotInTheImageIsAStartThatFailed) {
  const ExitRecord r =
      RunToEnd(ContainerOf("echo 'Error: exec: \"x\": not found' >&2; exit 127",
                           "echo created 127 false"));
  EXPECT_EQ(r.kind, ExitKind::kNotStarted);
  EXPECT_EQ(ExitCode(r), 127);
  EXPECT_THAT(r.message, HasSubstr("not found"));
}

TEST_F(ContainerTest, AProgramsOwn127IsItsOwn) {
  const ExitRecord r =
      RunToEnd(ContainerOf("exit 127", "echo exited 127 false"));
  EXPECT_EQ(r.kind, ExitKind::kExited);
  EXPECT_EQ(ExitCode(r), 127);
}

TEST_F(ContainerTest, OutOfMemoryAndSignalsAreToldByTheEngine) {
  const ExitRecord r =
      RunToEnd(ContainerOf("exit 137", "echo exited 137 true"));
  EXPECT_EQ(r.kind, ExitKind::kSignaled);
  EXPECT_EQ(ExitCode(r), 137);
  EXPECT_EQ(r.oom_kills, 1u);
}

TEST_F(ContainerTest, SignalsGoThroughTheEngine) {
  Start(
      ContainerOf("trap 'exit 5' TERM; echo $$ > $DIR/pid; "
                  "while :; do sleep 0.01; done"));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(ProcessIn("pid").ok());
  ASSERT_TRUE(client->KillTree(10s, In(5s)).ok());
  const auto end =
      WaitForPhase(client.get(), ShimReply::Phase::kExited, In(60s));
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(ExitCode(end->exit_record), 5);
  EXPECT_THAT(Calls(), HasSubstr("signal 15\n"));
}

TEST_F(ContainerTest, ASignalIsTriedAgainUntilTheContainerIsThere) {
  Start(
      ContainerOf("trap 'exit 5' TERM; "
                  "until [ -e $DIR/made ]; do sleep 0.01; done; "
                  "echo $$ > $DIR/pid; while :; do sleep 0.01; done"));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->KillTree(10s, In(5s)).ok());
  EXPECT_TRUE(Eventually(
      [&] { return Calls().starts_with("signal 15\nsignal 15\n"); }));
  std::ofstream(Path("made")) << "x";
  const auto end =
      WaitForPhase(client.get(), ShimReply::Phase::kExited, In(60s));
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(ExitCode(end->exit_record), 5);
}

TEST_F(ContainerTest, AnEngineThatHangsDoesNotKeepTheKill) {
  ShimSpec spec = ContainerOf("echo $$ > $DIR/pid; sleep 100");
  spec.container.signal = {"/bin/sh", "-c", "sleep 100", "%"};
  Start(spec);
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(ProcessIn("pid").ok());
  ASSERT_TRUE(client->KillTree(50ms, In(5s)).ok());
  const auto end =
      WaitForPhase(client.get(), ShimReply::Phase::kExited, In(60s));
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(ExitCode(end->exit_record), 137);
  EXPECT_THAT(Calls(), HasSubstr("remove"));
}

TEST_F(ContainerTest, ARemovalThatFailsIsTriedAgainAndThenSaid) {
  ShimSpec spec = ContainerOf("exit 0");
  spec.container.remove = {"/bin/sh", "-c", "echo remove >> $DIR/calls; false"};
  const ExitRecord r = RunToEnd(spec);
  EXPECT_EQ(ExitCode(r), 0);
  EXPECT_EQ(r.tree_left, 1u);
  EXPECT_THAT(Calls(), HasSubstr("remove\nremove\nremove\n"));
}

TEST_F(ContainerTest, RunsWhenTheFirstProcessSaysSo) {
  Start(Reporting({"/bin/sh", "-c", "echo $$ > $DIR/pid; sleep 100"}));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(
      WaitForPhase(client.get(), ShimReply::Phase::kRunning, In(10s)).ok());
  ASSERT_TRUE(ProcessIn("pid").ok());
  ASSERT_TRUE(client->Signal(SIGUSR1, false, In(5s)).ok());
  const auto end =
      WaitForPhase(client.get(), ShimReply::Phase::kExited, In(60s));
  ASSERT_TRUE(end.ok()) << end.status();
  // Not the code of a client, but how the program itself ended.
  EXPECT_EQ(end->exit_record.kind, ExitKind::kSignaled);
  EXPECT_EQ(ExitCode(end->exit_record), 128 + SIGUSR1);
}

TEST_F(ContainerTest, TheFirstProcessGivesTheProgramsCode) {
  const ExitRecord r = RunToEnd(Reporting({"sh", "-c", "echo hello; exit 9"}));
  EXPECT_EQ(ExitCode(r), 9);
  EXPECT_THAT(Texts(), testing::Contains("hello"));
  EXPECT_EQ(Calls(), "remove\n");
}

TEST_F(ContainerTest, TheFirstProcessNamesAProgramThatIsNotThere) {
  const ExitRecord r = RunToEnd(Reporting({"no-such-program"}));
  EXPECT_EQ(r.kind, ExitKind::kNotStarted);
  EXPECT_EQ(ExitCode(r), 127);
  EXPECT_EQ(r.message, "program no-such-program is not in the image");
}

TEST_F(ContainerTest, TheFirstProcessRunsNothingOverAMountThatIsAnother) {
  struct stat info {};
  ASSERT_EQ(stat(dir_.c_str(), &info), 0);
  const auto is = [&](uint64_t inode) {
    return "LOCKSTEP_MOUNT_0=" + std::to_string(info.st_dev) + ":" +
           std::to_string(inode) + ":" + dir_;
  };
  ShimSpec spec =
      Reporting({"sh", "-c", "echo \"ran with <$LOCKSTEP_MOUNT_0>\""});
  spec.env.push_back(is(info.st_ino));
  EXPECT_EQ(ExitCode(RunToEnd(spec)), 0);
  EXPECT_THAT(Texts(), testing::Contains("ran with <>"));
  for (const std::string& other :
       {is(info.st_ino + 1), std::string("LOCKSTEP_MOUNT_0=1:2:/no/such"),
        std::string("LOCKSTEP_MOUNT_0=")}) {
    spec = Reporting({"sh", "-c", "echo ran > $DIR/ran"});
    spec.env.push_back(other);
    const ExitRecord r = RunToEnd(spec);
    EXPECT_EQ(r.kind, ExitKind::kNotStarted) << other;
    EXPECT_EQ(r.start_errno, ESTALE) << other;
    EXPECT_THAT(r.message, HasSubstr("was replaced"));
  }
  EXPECT_FALSE(RealFileSystem()->Exists(Path("ran")));
}

TEST_F(ContainerTest, TheFirstProcessReapsOrphans) {
  const ExitRecord r = RunToEnd(
      Reporting({"sh", "-c", "(sleep 0.05 &) ; (sleep 0.01 &); sleep 0.1"}));
  EXPECT_EQ(ExitCode(r), 0);
}

}  // namespace
}  // namespace lockstep::worker::shim
