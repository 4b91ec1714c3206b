// `lockstep local train` when it is asked to end, and when it is killed: its
// cluster goes with it. The daemons only pose as such, without TLS
// (client/local/fake_daemon.cc): it waits for them all the while.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "client/local/ports.h"
#include "common/base/file.h"
#include "common/os/process.h"
#include "common/os/procfs.h"

namespace lockstep::cli {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// `local down` gives jobs 15 s and daemons 10.
constexpr Duration kPatience = std::chrono::seconds(60);

bool Eventually(const std::function<bool()>& condition) {
  const SystemClock clock;
  const MonoTime deadline = clock.Now().mono + kPatience;
  while (!condition()) {
    if (clock.Now().mono >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

class LocalTrainSignalsTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* const bin = getenv("LOCKSTEP_BIN");
    if (bin == nullptr) GTEST_SKIP() << "LOCKSTEP_BIN is not set";
    program_ = JoinPath(bin, "lockstep");
    char name[] = "/tmp/lockstep-test-XXXXXX";
    dir_ = mkdtemp(name);
    const std::string fake =
        std::filesystem::canonical("/proc/self/exe").parent_path() /
        "client_local_fake_daemon";
    FileSystem* const files = RealFileSystem();
    for (const char* sub : {"tmp", "bin", "trainer"}) {
      ASSERT_TRUE(files->MakeDirs(JoinPath(dir_, sub)).ok());
    }
    for (const char* program : {"lockstep-coordinator", "lockstep-worker"}) {
      const std::string path = JoinPath(dir_, "bin/") + program;
      ASSERT_EQ(symlink(fake.c_str(), path.c_str()), 0);
    }
    ASSERT_TRUE(files->WriteAtomic(dir_ + "/trainer/__init__.py", "").ok());
    ASSERT_TRUE(files->WriteAtomic(dir_ + "/trainer/task.py", "").ok());
  }
  void TearDown() override {
    if (dir_.empty()) return;
    if (child_.pidfd) StopProcess(child_, Duration::zero()).IgnoreError();
    RealFileSystem()->RemoveAll(dir_).IgnoreError();
  }

  // Until its daemons run.
  void Start() {
    const auto ports = ChoosePorts(1);
    ASSERT_TRUE(ports.ok()) << ports.status();
    StartAt(ports->at(0));
  }
  void StartAt(uint16_t port) {
    SpawnOptions options;
    options.program = program_;
    options.argv = {program_,         "local",        "train",
                    "--package-path", "trainer",      "--module-name",
                    "trainer.task",   "--start-port", std::to_string(port)};
    options.env = {"PATH=/usr/bin:/bin", "HOME=" + dir_,
                   "TMPDIR=" + JoinPath(dir_, "tmp"),
                   "LOCKSTEP_BIN=" + JoinPath(dir_, "bin")};
    options.cwd = dir_;
    options.stdout_path = options.stderr_path = JoinPath(dir_, "output");
    auto child = Spawn(options);
    ASSERT_TRUE(child.ok()) << child.status();
    child_ = *std::move(child);
    ASSERT_TRUE(Eventually([this] { return Daemons().size() == 2; }))
        << Output();
  }
  std::string Output() {
    return RealFileSystem()->Read(JoinPath(dir_, "output")).value_or("");
  }
  std::vector<std::string> Clusters() {
    return RealFileSystem()->List(JoinPath(dir_, "tmp")).value();
  }
  // Processes whose program is of this test's own folder.
  std::vector<pid_t> Daemons() {
    std::vector<pid_t> found;
    for (const ProcessStat& process : ReadAllProcesses()) {
      const auto line =
          ReadProcFile("/proc/" + std::to_string(process.pid) + "/cmdline");
      if (line.ok() && line->starts_with(JoinPath(dir_, "bin/"))) {
        found.push_back(process.pid);
      }
    }
    return found;
  }
  void Send(int signal) { ASSERT_EQ(kill(child_.id.pid, signal), 0) << signal; }
  StatusOr<ProcessExit> End() {
    return WaitExit(child_, MonotonicNow() + kPatience);
  }

  std::string program_;
  std::string dir_;
  Process child_;
};

TEST_F(LocalTrainSignalsTest, HoweverOftenItIsToldTheClusterGoes) {
  for (const int first : {SIGINT, SIGTERM, SIGHUP}) {
    SCOPED_TRACE(first);
    Start();
    if (HasFatalFailure()) return;
    for (const int signal : {first, SIGINT, SIGTERM, SIGHUP}) Send(signal);
    const auto exit = End();
    ASSERT_TRUE(exit.ok()) << exit.status();
    // Of the signal that the kernel delivered first.
    EXPECT_THAT(exit->Describe(),
                testing::AnyOf("exited with code 129", "exited with code 130",
                               "exited with code 143"))
        << Output();
    EXPECT_THAT(Daemons(), IsEmpty());
    EXPECT_THAT(Clusters(), IsEmpty());
  }
}

TEST_F(LocalTrainSignalsTest, SaysWhereItsPortsBeginWhenOneIsUsed) {
  const auto ports = ChoosePorts(1);
  ASSERT_TRUE(ports.ok()) << ports.status();
  const uint16_t port = ports->at(0);
  const Fd used(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ASSERT_EQ(
      bind(used.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
      0);
  ASSERT_EQ(listen(used.get(), 1), 0);
  StartAt(port);
  if (HasFatalFailure()) return;
  EXPECT_THAT(Output(),
              ::testing::HasSubstr(fmt::format(
                  "note: --start-port {0}: another program uses port {0}; the "
                  "tasks' ports begin at ",
                  port)));
  Send(SIGINT);
  Send(SIGINT);
  ASSERT_TRUE(End().ok());
}

TEST_F(LocalTrainSignalsTest, ItsClusterGoesWhereItIsKilled) {
  Start();
  if (HasFatalFailure()) return;
  EXPECT_THAT(Clusters(), SizeIs(1));
  Send(SIGKILL);
  ASSERT_TRUE(End().ok());
  EXPECT_TRUE(Eventually([this] {
    return Daemons().empty() && Clusters().empty();
  })) << Output();
}

}  // namespace
}  // namespace lockstep::cli
