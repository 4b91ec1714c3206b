// The worker daemon's program leaves when it is told to, whatever hangs, and a
// second one in its directory is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <functional>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/os/process.h"
#include "common/os/procfs.h"
#include "worker/devices/fake_nvml_control.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;

class LeaveTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* bin = getenv("LOCKSTEP_BIN");
    ASSERT_NE(bin, nullptr) << "set LOCKSTEP_BIN to the folder of the binaries";
    program_ = JoinPath(bin, "lockstep-worker");
    char name[] = "/tmp/lockstep-leave-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    // A coordinator that takes connections and never says a word.
    silent_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(bind(silent_.get(), at, size), 0);
    ASSERT_EQ(listen(silent_.get(), 16), 0);
    ASSERT_EQ(getsockname(silent_.get(), at, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  void TearDown() override {
    for (const Process& process : processes_) {
      if (!HasEnded(process)) (void)SendSignal(process, SIGKILL);
      (void)WaitExit(process, In(10s));
    }
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  static MonoTime In(Duration d) { return MonotonicNow() + d; }
  const Process& StartWorker(const std::string& nvml) {
    SpawnOptions options;
    options.program = program_;
    options.argv = {program_,
                    "--dir",
                    dir_ + "/worker",
                    "--coordinator",
                    "127.0.0.1:" + std::to_string(port_),
                    "--insecure-loopback",
                    "--http-address",
                    "127.0.0.1:0",
                    "--node",
                    "n",
                    "--nvml-library",
                    nvml};
    options.env = CurrentEnvironment();  // Of the fake driver.
    options.stderr_path = dir_ + "/err";
    auto process = Spawn(options);
    EXPECT_TRUE(process.ok()) << process.status();
    processes_.push_back(*std::move(process));
    return processes_.back();
  }
  std::string Errors() {
    return RealFileSystem()->Read(dir_ + "/err").value_or("");
  }
  bool Within(Duration time, const std::function<bool()>& holds) {
    for (const MonoTime end = In(time); !holds();) {
      if (MonotonicNow() >= end) return false;
      usleep(2000);
    }
    return true;
  }
  // How long it took; fails unless it left by itself.
  void Leaves(const Process& worker) {
    const MonoTime start = In({});
    ASSERT_TRUE(SendSignal(worker, SIGTERM).ok());
    const auto ended = WaitExit(worker, In(10s));
    ASSERT_TRUE(ended.ok()) << ended.status();
    EXPECT_EQ(ended->Describe(), "exited with code 0") << Errors();
    RecordProperty("seconds", std::to_string(ToSeconds(In({}) - start)));
    printf("left within %.2f s\n", ToSeconds(In({}) - start));
  }

  std::string program_;
  std::string dir_;
  Fd silent_;
  int port_ = 0;
  std::deque<Process> processes_;
};

TEST_F(LeaveTest, ASilentCoordinatorDoesNotHoldIt) {
  const Process& worker = StartWorker("none");
  ASSERT_TRUE(Within(20s, [&] {
    return RealFileSystem()->Exists(dir_ + "/worker/endpoint.json");
  })) << Errors();
  Leaves(worker);
}

TEST_F(LeaveTest, ADriverThatDoesNotAnswerAtTheStartDoesNotHoldIt) {
  devices::FakeNvmlControl fake(1, "T4");
  fake.Write("hang all\n");
  const Process& worker = StartWorker(LOCKSTEP_FAKE_NVML);
  // It is in there now.
  ASSERT_TRUE(Within(20s, [&] {
    return ReadProcFile(fmt::format("/proc/{}/maps", worker.id.pid))
               .value_or("")
               .find("fake_nvml") != std::string::npos;
  })) << Errors();
  Leaves(worker);
}

TEST_F(LeaveTest, ADriverThatStopsToAnswerDoesNotHoldIt) {
  devices::FakeNvmlControl fake(1, "T4");
  const Process& worker = StartWorker(LOCKSTEP_FAKE_NVML);
  ASSERT_TRUE(Within(20s, [&] {
    return RealFileSystem()->Exists(dir_ + "/worker/endpoint.json");
  })) << Errors();
  fake.Write("hang all\n");
  Leaves(worker);
}

TEST_F(LeaveTest, OneDirectoryHasOneDaemon) {
  StartWorker("none");
  ASSERT_TRUE(Within(20s, [&] {
    return RealFileSystem()->Exists(dir_ + "/worker/endpoint.json");
  })) << Errors();
  const auto second = WaitExit(StartWorker("none"), In(20s));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->Describe(), "exited with code 1") << Errors();
  EXPECT_THAT(Errors(), HasSubstr("another lockstep-worker uses " + dir_));
}

}  // namespace
}  // namespace lockstep::worker::agent
