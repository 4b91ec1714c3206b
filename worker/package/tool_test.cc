#include "worker/package/tool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "common/base/file.h"
#include "common/os/procfs.h"
#include "worker/package/package_test_util.h"

namespace lockstep::worker::package {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

ToolOptions ShellOptions(const std::string& script) {
  ToolOptions options;
  options.argv = {"/bin/sh", "-c", script};
  options.env = {"PATH=/usr/bin:/bin"};
  options.timeout = std::chrono::seconds(20);
  return options;
}

StatusOr<ToolResult> Shell(const std::string& script, Cancellation* cancel,
                           Duration timeout = std::chrono::seconds(20)) {
  ToolOptions options = ShellOptions(script);
  options.timeout = timeout;
  return RunTool(options, cancel);
}

// Dead; init may take its time to bury it.
bool IsGone(pid_t pid) {
  const auto process = ReadProcessStat(pid);
  return !process.ok() || process->state == 'Z' || process->state == 'X';
}

TEST(ToolTest, BothStreamsAndTheExitCodeComeBack) {
  Cancellation cancel;
  const auto result = Shell("echo out; echo err >&2; exit 7", &cancel);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit.code, 7);
  EXPECT_EQ(result->output, "out\nerr\n");
  const auto loud = Shell("yes | head -c 1000000; echo last", &cancel);
  ASSERT_TRUE(loud.ok());
  EXPECT_LE(loud->output.size(), size_t{128} << 10);
  EXPECT_EQ(LastLine(loud->output), "last");
}

TEST(ToolTest, TheLastLineIsFitToBeShown) {
  EXPECT_EQ(LastLine("a\nERROR: no\n \n\n"), "ERROR: no");
  EXPECT_EQ(LastLine(""), "it printed nothing");
  EXPECT_EQ(LastLine("x\x1b[31my"), "x?[31my");
}

TEST(ToolTest, ItDoesNotOutliveItsTimeNorItsChildren) {
  TempDir dir;
  Cancellation cancel;
  const std::string script =
      "sleep 1000 & echo $! > " + dir / "pid" + "; echo still here; wait";
  // Long enough for it to speak, on this machine.
  StatusOr<ToolResult> late = Unavailable("not run yet");
  for (Duration time = 300ms; time < 20s; time *= 3) {
    late = Shell(script, &cancel, time);
    ASSERT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Message(late.status()),
                HasSubstr("did not exit within " + FormatDuration(time)));
    if (Message(late.status()).ends_with(": still here")) break;
  }
  EXPECT_THAT(Message(late.status()), HasSubstr(": still here"));
  const pid_t child =
      std::stoi(RealFileSystem()->Read(dir / "pid").value_or("0"));
  ASSERT_GT(child, 0);
  EXPECT_TRUE(Eventually([&] { return IsGone(child); }));
  // What it leaves behind when it ends by itself goes, too.
  ASSERT_TRUE(
      Shell("sleep 1000 >/dev/null 2>&1 & echo $! > " + dir / "pid", &cancel)
          .ok());
  const pid_t left = std::stoi(RealFileSystem()->Read(dir / "pid").value());
  EXPECT_TRUE(Eventually([&] { return IsGone(left); }));
}

TEST(ToolTest, WhatLeavesItsSessionIsGoneWhenItReturns) {
  TempDir dir;
  Cancellation cancel;
  // Twice away from its parent, as a daemon goes.
  const auto result = Shell("setsid sh -c 'echo $$ > " + dir / "pid" +
                                "; exec sleep 1000' >/dev/null 2>&1 & "
                                "while ! [ -s " +
                                dir / "pid" + " ]; do sleep 0.01; done",
                            &cancel);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->exit.ok());
  const pid_t left = std::stoi(RealFileSystem()->Read(dir / "pid").value());
  EXPECT_TRUE(IsGone(left));
  if (!IsGone(left)) kill(left, SIGKILL);
}

TEST(ToolTest, CancelEndsIt) {
  TempDir dir;
  Cancellation cancel;
  std::thread thread([&] {
    EXPECT_TRUE(
        Eventually([&] { return RealFileSystem()->Exists(dir / "on"); }));
    cancel.Cancel();
  });
  const auto result = Shell("touch " + dir / "on" + "; sleep 1000", &cancel);
  thread.join();
  EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
}

TEST(ToolTest, ItRunsAsTheTasksUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes somebody else";
  Cancellation cancel;
  ToolOptions options;
  options.argv = {"/usr/bin/id"};
  options.user = PackageUser{12345, 12346, {12346, 12347}};
  const auto result = RunTool(options, &cancel);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->output,
              HasSubstr("uid=12345 gid=12346 groups=12346,12347"));
}

TEST(ToolTest, ItIsBoundedAndSoIsWhatItStarts) {
  Cancellation cancel;
  ToolOptions options =
      ShellOptions("ulimit -v; sh -c 'ulimit -t; ulimit -f'; ulimit -c");
  options.limits.address_space_bytes = uint64_t{4} << 30;
  options.limits.cpu_time = std::chrono::seconds(77);
  options.limits.file_bytes = 1 << 20;
  options.limits.processes = 100;
  const auto result = RunTool(options, &cancel);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output, "4194304\n77\n2048\n0\n");
  options =
      ShellOptions("dd if=/dev/zero of=big bs=1M count=4 2>/dev/null; echo $?");
  const TempDir dir;
  options.cwd = dir / "";
  options.limits.file_bytes = 1 << 20;
  const auto big = RunTool(options, &cancel);
  ASSERT_TRUE(big.ok()) << big.status();
  EXPECT_NE(big->output, "0\n");
}

TEST(ToolTest, ItEntersItsGroupBeforeAnythingElse) {
  const TempDir dir;
  Cancellation cancel;
  ToolOptions options = ShellOptions("echo $$");
  // In place of a cgroup: what is written there is who enters.
  options.limits.cgroup = dir / "group";
  ASSERT_TRUE(RealFileSystem()->MakeDirs(options.limits.cgroup).ok());
  const auto result = RunTool(options, &cancel);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(RealFileSystem()->Read(dir / "group/cgroup.procs", 64).value(),
            result->output);
  // Never outside of it.
  options.limits.cgroup = dir / "none";
  const auto outside = RunTool(options, &cancel);
  ASSERT_TRUE(outside.ok()) << outside.status();
  EXPECT_FALSE(outside->exit.ok());
}

TEST(ToolTest, AProgramThatIsNotThereIsNotFound) {
  Cancellation cancel;
  ToolOptions options;
  options.argv = {"/no/such/tool"};
  EXPECT_EQ(RunTool(options, &cancel).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::worker::package
