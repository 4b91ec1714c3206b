#include "common/os/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "common/base/file.h"
#include "common/os/procfs.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;

MonoTime In(Duration d) { return MonotonicNow() + d; }

std::string ReadAll(int fd) {
  std::string all;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    all.append(buffer, static_cast<size_t>(n));
  }
  return all;
}

SpawnOptions Shell(const std::string& script) {
  SpawnOptions options;
  options.program = "/bin/sh";
  options.argv = {"sh", "-c", script};
  options.env = {"PATH=/usr/bin:/bin"};
  return options;
}

// Runs `options` with its standard output in a pipe; what it wrote.
std::string OutputOf(SpawnOptions options) {
  StatusOr<Pipe> pipe = MakePipe();
  EXPECT_TRUE(pipe.ok());
  options.stdout_fd = pipe->write.get();
  StatusOr<Process> process = Spawn(options);
  EXPECT_TRUE(process.ok()) << process.status();
  pipe->write.Reset();
  if (!process.ok()) return std::string();
  std::string output = ReadAll(pipe->read.get());
  EXPECT_TRUE(WaitExit(*process, In(60s)).ok());
  return output;
}

TEST(SpawnTest, ExitCodeAndSignalAreTold) {
  StatusOr<Process> process = Spawn(Shell("exit 7"));
  ASSERT_TRUE(process.ok()) << process.status();
  StatusOr<ProcessExit> status = WaitExit(*process, In(60s));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->code, 7);
  EXPECT_EQ(status->Describe(), "exited with code 7");
  EXPECT_FALSE(status->ok());

  process = Spawn(Shell("kill -9 $$"));
  ASSERT_TRUE(process.ok()) << process.status();
  status = WaitExit(*process, In(60s));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->signal, 9);
  EXPECT_EQ(status->Describe(), "killed by signal 9 (Killed)");
  // It was reaped: a second look knows no more than that it ended.
  status = WaitExit(*process, In(60s));
  ASSERT_TRUE(status.ok());
  EXPECT_FALSE(status->known);
}

TEST(SpawnTest, AMissingProgramIsNamed) {
  SpawnOptions options;
  options.program = "/no/such/program";
  const StatusOr<Process> process = Spawn(options);
  EXPECT_EQ(process.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(process.status()), HasSubstr("/no/such/program"));
  options.program = "/etc/passwd";
  EXPECT_EQ(Spawn(options).status().code(), StatusCode::kPermissionDenied);
}

TEST(SpawnTest, EnvironmentAndDirectoryAreTheGivenOnes) {
  SpawnOptions options = Shell("echo $A; pwd; echo ${HOME-none}");
  options.env = {"A=b c"};
  options.cwd = "/usr";
  EXPECT_EQ(OutputOf(options), "b c\n/usr\nnone\n");
}

TEST(SpawnTest, OnlyListedDescriptorsAreInherited) {
  // Open, not close-on-exec: must still not reach the child.
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd stray(fcntl(null.get(), F_DUPFD, 77));
  ASSERT_GE(stray.get(), 77);
  StatusOr<Fd> memfd = MakeMemfd("test", "secret");
  ASSERT_TRUE(memfd.ok()) << memfd.status();
  SpawnOptions options = Shell(
      "cat <&3; i=0; while [ $i -lt 600 ]; do "
      "[ -e /proc/$$/fd/$i ] && printf ' %s' $i; i=$((i+1)); done");
  options.fds = {memfd->get()};
  EXPECT_EQ(OutputOf(options), "secret 0 1 2 3");
}

TEST(SpawnTest, DescriptorsMayBeGivenInAnyOrder) {
  StatusOr<Fd> a = MakeMemfd("a", "first");
  StatusOr<Fd> b = MakeMemfd("b", "second");
  ASSERT_TRUE(a.ok() && b.ok());
  SpawnOptions options = Shell("cat <&3; cat <&4");
  options.fds = {std::max(a->get(), b->get()), std::min(a->get(), b->get())};
  const bool a_first = options.fds[0] == a->get();
  EXPECT_EQ(OutputOf(options), a_first ? "firstsecond" : "secondfirst");
}

TEST(SpawnTest, SignalsAreDefaultAndUnblocked) {
  sigset_t block;
  sigset_t old;
  sigemptyset(&block);
  sigaddset(&block, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &block, &old);
  const auto handler = signal(SIGUSR2, SIG_IGN);
  const std::string status = OutputOf(Shell("exec cat /proc/self/status"));
  signal(SIGUSR2, handler);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  EXPECT_THAT(status, HasSubstr("SigBlk:\t0000000000000000"));
  const size_t at = status.find("SigIgn:\t");
  ASSERT_NE(at, std::string::npos);
  const uint64_t ignored = std::stoull(status.substr(at + 8, 16), nullptr, 16);
  EXPECT_EQ(ignored & (uint64_t{1} << (SIGUSR2 - 1)), 0u);
}

TEST(SpawnTest, OutputGoesToFilesAndIsAppended) {
  char name[] = "/tmp/lockstep-os-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string path = JoinPath(name, "out");
  for (const char* text : {"one", "two"}) {
    SpawnOptions options = Shell(std::string("echo ") + text + "; echo e >&2");
    options.stdout_path = path;
    options.stderr_path = path;
    StatusOr<Process> process = Spawn(options);
    ASSERT_TRUE(process.ok()) << process.status();
    ASSERT_TRUE(WaitExit(*process, In(60s)).ok());
  }
  EXPECT_EQ(*RealFileSystem()->Read(path), "one\ne\ntwo\ne\n");
  SpawnOptions options = Shell("exit 0");
  options.stdout_path = "/no/such/dir/out";
  EXPECT_THAT(Message(Spawn(options).status()), HasSubstr("/no/such/dir/out"));
  EXPECT_TRUE(RealFileSystem()->RemoveAll(name).ok());
}

TEST(SpawnTest, ANewSessionIsItsOwnGroup) {
  SpawnOptions options = Shell("read x");
  StatusOr<Pipe> pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  options.stdin_fd = pipe->read.get();
  options.new_session = true;
  StatusOr<Process> process = Spawn(options);
  ASSERT_TRUE(process.ok()) << process.status();
  const StatusOr<ProcessStat> stat = ReadProcessStat(process->id.pid);
  ASSERT_TRUE(stat.ok());
  EXPECT_EQ(stat->session, process->id.pid);
  EXPECT_EQ(stat->group, process->id.pid);
  EXPECT_EQ(stat->parent, getpid());
  pipe->write.Reset();
  EXPECT_TRUE(WaitExit(*process, In(60s)).ok());
}

TEST(ProcessTest, AnotherStartTimeIsAnotherProcess) {
  StatusOr<Process> process = Spawn(Shell("exec sleep 1000"));
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_GT(process->id.start_time, 0u);
  StatusOr<Process> same = OpenVerified(process->id);
  ASSERT_TRUE(same.ok()) << same.status();
  ProcessId other = process->id;
  ++other.start_time;
  EXPECT_EQ(OpenVerified(other).status().code(), StatusCode::kNotFound);

  EXPECT_FALSE(HasEnded(*same));
  EXPECT_EQ(WaitExit(*process, In(0s)).status().code(),
            StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(SendSignal(*same, SIGKILL).ok());
  const StatusOr<ProcessExit> status = WaitExit(*process, In(60s));
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->signal, SIGKILL);
  EXPECT_TRUE(HasEnded(*same));
  EXPECT_EQ(OpenVerified(process->id).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(SendSignal(*same, SIGTERM).code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenVerified({}).status().code(), StatusCode::kNotFound);
}

TEST(ProcessTest, OneThatHasEndedUnreapedIsNotFound) {
  StatusOr<Process> process = Spawn(Shell("exit 0"));
  ASSERT_TRUE(process.ok()) << process.status();
  const MonoTime deadline = In(60s);
  while (!HasEnded(*process) && MonotonicNow() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(OpenVerified(process->id).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(WaitExit(*process, In(60s))->ok());
}

TEST(ProcessTest, StopTriesGentlyFirst) {
  StatusOr<Pipe> pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  const auto start = [&](const std::string& script) {
    SpawnOptions options = Shell(script);
    options.stdout_fd = pipe->write.get();
    StatusOr<Process> process = Spawn(options);
    char ready = 0;
    EXPECT_EQ(read(pipe->read.get(), &ready, 1), 1);
    return process;
  };
  StatusOr<Process> polite =
      start("trap 'exit 5' TERM; echo -n x; while :; do sleep 0.01; done");
  ASSERT_TRUE(polite.ok());
  StatusOr<ProcessExit> status = StopProcess(*polite, 60s);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->code, 5);

  StatusOr<Process> deaf =
      start("trap '' TERM; echo -n x; while :; do sleep 0.01; done");
  ASSERT_TRUE(deaf.ok());
  status = StopProcess(*deaf, std::chrono::milliseconds(20));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->signal, SIGKILL);
}

TEST(ProcessTest, AMemoryFileCannotBeChanged) {
  StatusOr<Fd> fd = MakeMemfd("test", std::string(100'000, 'x'));
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(ReadAll(fd->get()), std::string(100'000, 'x'));
  EXPECT_EQ(write(fd->get(), "y", 1), -1);
  EXPECT_EQ(ftruncate(fd->get(), 1), -1);
}

TEST(ProcessTest, BootIdAndStartTimeAreKnown) {
  const StatusOr<std::string> boot = BootId();
  ASSERT_TRUE(boot.ok()) << boot.status();
  EXPECT_EQ(boot->size(), 36u);
  const StatusOr<uint64_t> start = StartTime(getpid());
  ASSERT_TRUE(start.ok());
  EXPECT_TRUE(OpenVerified({getpid(), *start}).ok());
  EXPECT_EQ(StartTime(-5).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep
