// Captures real processes: what /proc tells of them, and their stacks.
#include "worker/evidence/capture.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/log_line.h"
#include "common/os/process.h"
#include "common/os/procfs.h"
#include "worker/evidence/flight_recorder.h"

namespace lockstep::worker::evidence {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Duration kPatience = std::chrono::seconds(30);

std::string Program(const std::string& name) {
  const char* const bin = getenv("LOCKSTEP_BIN");
  return JoinPath(bin == nullptr ? "." : bin, name);
}

// A child that sleeps in read(2), in a function of this program.
class Sleeper {
 public:
  Sleeper() {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    end_.Reset(fds[1]);
    const Fd read_end(fds[0]);
    pid_ = fork();
    if (pid_ == 0) {
      close(fds[1]);
      WaitInHere(fds[0]);
      _exit(0);
    }
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  // True once /proc shows that state.
  bool AwaitState(char state) const {
    const MonoTime deadline = MonotonicNow() + kPatience;
    while (MonotonicNow() < deadline) {
      const auto stat = ReadProcessStat(pid_);
      if (stat.ok() && stat->state == state) return true;
    }
    return false;
  }

 private:
  __attribute__((noinline)) static void WaitInHere(int fd) {
    char byte = 0;
    while (read(fd, &byte, 1) < 0) {
    }
    // Keeps the call above from being the last one of this function.
    asm volatile("" ::: "memory");
  }

  Fd end_;
  pid_t pid_ = 0;
};

// The children of this process count as those of a shim.
RankEvidence CaptureOwn(const CaptureOptions& options,
                        const std::string& flight_directory = "") {
  CaptureTarget target;
  target.flight_directory = flight_directory;
  target.known.rank = 3;
  target.known.notes = {"known before"};
  target.shim = getpid();
  std::vector<RankEvidence> found;
  Capture({target}, options,
          [&](RankEvidence evidence) { found.push_back(std::move(evidence)); });
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? RankEvidence() : found[0];
}

const ProcessEvidence* Find(const RankEvidence& evidence, pid_t pid) {
  const auto found =
      std::find_if(evidence.processes.begin(), evidence.processes.end(),
                   [&](const ProcessEvidence& p) { return p.pid == pid; });
  return found == evidence.processes.end() ? nullptr : &*found;
}

CaptureOptions WithStacks() {
  CaptureOptions options;
  options.stacks = true;
  options.deadline = MonotonicNow() + kPatience;
  options.tools.py_spy = "none";
  options.tools.native = Program("lockstep-stacks");
  options.tools.path = "/usr/bin:/bin";
  return options;
}

TEST(CaptureTest, ProcTellsWhatAProcessWaitsFor) {
  const Sleeper sleeper;
  ASSERT_TRUE(sleeper.AwaitState('S'));
  CaptureOptions options;
  options.deadline = MonotonicNow() + kPatience;
  const RankEvidence evidence = CaptureOwn(options);
  EXPECT_EQ(evidence.rank, 3);
  EXPECT_THAT(evidence.notes, ElementsAre("known before"));
  EXPECT_GT(ToUnixNanos(evidence.time), 0);
  const ProcessEvidence* const process = Find(evidence, sleeper.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->parent, getpid());
  EXPECT_EQ(process->state, "S");
  EXPECT_GT(process->resident_bytes, 0);
  EXPECT_EQ(process->stack_source, "");
  // A sanitizer adds a thread of its own.
  ASSERT_FALSE(process->threads.empty());
  EXPECT_TRUE(process->threads[0].main);
  EXPECT_EQ(process->threads[0].system_call, "read");
  EXPECT_TRUE(process->threads[0].frames.empty());
}

TEST(CaptureTest, ANativeStackLeadsToTheFunction) {
  const Sleeper sleeper;
  ASSERT_TRUE(sleeper.AwaitState('S'));
  const RankEvidence evidence = CaptureOwn(WithStacks());
  const ProcessEvidence* const process = Find(evidence, sleeper.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->stack_error, "");
  EXPECT_EQ(process->stack_source, kNativeSource);
  const auto& frames = process->threads.at(0).frames;
  ASSERT_GE(frames.size(), 3u);
  EXPECT_TRUE(frames[0].library) << frames[0].module;
  const auto own =
      std::find_if(frames.begin(), frames.end(),
                   [](const StackFrame& frame) { return !frame.library; });
  ASSERT_NE(own, frames.end());
  EXPECT_THAT(own->function, HasSubstr("WaitInHere"));
  // It sleeps on as if nothing had been.
  EXPECT_TRUE(sleeper.AwaitState('S'));
}

TEST(CaptureTest, AStoppedProcessIsReadAndStaysStopped) {
  const Sleeper sleeper;
  ASSERT_TRUE(sleeper.AwaitState('S'));
  ASSERT_EQ(kill(sleeper.pid(), SIGSTOP), 0);
  ASSERT_TRUE(sleeper.AwaitState('T'));
  const RankEvidence evidence = CaptureOwn(WithStacks());
  const ProcessEvidence* const process = Find(evidence, sleeper.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->state, "T");
  EXPECT_FALSE(process->threads.at(0).frames.empty()) << process->stack_error;
  EXPECT_TRUE(sleeper.AwaitState('T'));
}

// A tool that never ends, and one that stops the time of all.
TEST(CaptureTest, AToolThatHangsIsKilledAndTheRankIsNot) {
  const Sleeper sleeper;
  ASSERT_TRUE(sleeper.AwaitState('S'));
  char name[] = "/tmp/lockstep-capture-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string tool = JoinPath(name, "hangs");
  ASSERT_TRUE(
      RealFileSystem()->WriteAtomic(tool, "#!/bin/sh\nexec sleep 600\n").ok());
  ASSERT_EQ(chmod(tool.c_str(), 0755), 0);
  CaptureOptions options = WithStacks();
  options.tools.native = tool;
  options.deadline = MonotonicNow() + std::chrono::milliseconds(1500);
  const MonoTime start = MonotonicNow();
  const RankEvidence evidence = CaptureOwn(options);
  EXPECT_LT(ToSeconds(MonotonicNow() - start), 10);
  const ProcessEvidence* const process = Find(evidence, sleeper.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->stack_source, "");
  EXPECT_THAT(process->stack_error, HasSubstr("did not finish"));
  EXPECT_EQ(process->threads.at(0).system_call, "read");
  EXPECT_TRUE(sleeper.AwaitState('S'));
  EXPECT_TRUE(RealFileSystem()->RemoveAll(name).ok());
}

TEST(CaptureTest, WhenTheTimeIsOverProcIsThereAllTheSame) {
  const Sleeper sleeper;
  ASSERT_TRUE(sleeper.AwaitState('S'));
  CaptureOptions options = WithStacks();
  options.deadline = MonotonicNow();
  const RankEvidence evidence = CaptureOwn(options);
  const ProcessEvidence* const process = Find(evidence, sleeper.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_THAT(process->stack_error, HasSubstr("time was over"));
  EXPECT_EQ(process->threads.at(0).system_call, "read");
}

// A thread is the watchdog of PyTorch.
TEST(CaptureTest, TheFlightRecorderIsAsked) {
  char name[] = "/tmp/lockstep-capture-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string pipe = FlightPipePrefix(name) + "3.pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0666), 0);
  const Fd end(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const char* const source = getenv("LOCKSTEP_SOURCE");
  const auto trace =
      RealFileSystem()->Read(JoinPath(source == nullptr ? "." : source,
                                      "worker/evidence/testdata/flight.pickle"),
                             1 << 20);
  ASSERT_TRUE(trace.ok()) << trace.status();
  std::thread watchdog([&] {
    pollfd wait{end.get(), POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, 20'000), 1);
    EXPECT_TRUE(RealFileSystem()
                    ->WriteAtomic(FlightDumpPrefix(name) + "3", *trace)
                    .ok());
  });
  const RankEvidence evidence = CaptureOwn(WithStacks(), name);
  watchdog.join();
  ASSERT_EQ(evidence.flight_records.size(), 5u);
  EXPECT_EQ(evidence.flight_records.back().operation, "all_reduce");
  EXPECT_TRUE(RealFileSystem()->RemoveAll(name).ok());
}

TEST(CaptureTest, TheLastLinesOfALog) {
  char name[] = "/tmp/lockstep-capture-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string log = JoinPath(name, "log");
  std::string bytes;
  for (int i = 0; i < 50; ++i) {
    cri::AppendLogLine(
        {i, cri::LogStream::kStdout, true, i == 49 ? "last\x1b[31m" : "line"},
        &bytes);
  }
  cri::AppendLogLine({99, cri::LogStream::kStderr, false, "step 7"}, &bytes);
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(log, bytes).ok());
  const std::vector<std::string> lines = LastLines(log, 3);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "line");
  EXPECT_THAT(lines[1], HasSubstr("last"));
  EXPECT_EQ(lines[1].find('\x1b'), std::string::npos);
  EXPECT_EQ(lines[2], "step 7");
  EXPECT_TRUE(LastLines(log + "-none", 3).empty());
  EXPECT_TRUE(RealFileSystem()->RemoveAll(name).ok());
}

}  // namespace
}  // namespace lockstep::worker::evidence
