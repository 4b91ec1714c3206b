// The daemons as the service manager sees them: a real socket, the real
// programs, and a loop that is stuck while all other threads run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/poll.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/os/process.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

std::string Bin(const std::string& name) {
  const char* bin = getenv("LOCKSTEP_BIN");
  return std::string(bin == nullptr ? "." : bin) + "/" + name;
}

// $NOTIFY_SOCKET and what is said to it.
class Manager {
 public:
  explicit Manager(const std::string& path) : path_(path) {
    socket_.Reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path.c_str(), path.size() + 1);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address),
                   sizeof(address)),
              0);
  }
  const std::string& path() const { return path_; }

  // Waits until `wanted` (a whole message, or the beginning of one) is said;
  // empty: it was not.
  std::string Await(const std::string& wanted, Duration timeout) {
    const MonoTime deadline = MonotonicNow() + timeout;
    while (MonotonicNow() < deadline) {
      const std::string said = Next(deadline - MonotonicNow());
      if (!said.empty() && said.starts_with(wanted)) return said;
    }
    return "";
  }
  // Forgets what was said until now.
  void Drain() {
    while (!Next(Duration{}).empty()) {
    }
  }

 private:
  std::string Next(Duration timeout) {
    pollfd waiting{socket_.get(), POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(timeout / 1ms)) <= 0) return "";
    char buffer[4096];
    const ssize_t n = recv(socket_.get(), buffer, sizeof(buffer), 0);
    return n <= 0 ? "" : std::string(buffer, static_cast<size_t>(n));
  }
  const std::string path_;
  Fd socket_;
};

class DaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/daemon-test-XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
  }
  void TearDown() override {
    for (auto& process : processes_) {
      (void)SendSignal(process, SIGCONT);
      (void)StopProcess(process, 30s);
    }
    std::filesystem::remove_all(dir_);
  }

  // Starts `program`, watched by `manager` every `watchdog`.
  Process* Start(const std::string& program, std::vector<std::string> args,
                 const Manager& manager, Duration watchdog) {
    SpawnOptions options;
    options.program = Bin(program);
    options.argv = std::move(args);
    options.argv.insert(options.argv.begin(), program);
    options.env = CurrentEnvironment();
    options.env.push_back("NOTIFY_SOCKET=" + manager.path());
    options.env.push_back(
        "WATCHDOG_USEC=" +
        std::to_string(watchdog / std::chrono::microseconds(1)));
    options.stdout_path = options.stderr_path = dir_ + "/log";
    auto process = Spawn(options);
    EXPECT_TRUE(process.ok()) << process.status();
    if (!process.ok()) return nullptr;
    processes_.push_back(*std::move(process));
    return &processes_.back();
  }
  std::string Log() {
    std::ifstream file(dir_ + "/log");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  nlohmann::json Endpoint(const std::string& daemon) {
    std::ifstream file(dir_ + "/" + daemon + "/endpoint.json");
    return nlohmann::json::parse(file, nullptr, false);
  }

  // Pings come; they stop while the main thread alone stands still, though
  // the process lives; they come again.
  void StuckLoop(const Process& process, Manager* manager) {
    ASSERT_NE(manager->Await("WATCHDOG=1", 30s), "");
    const pid_t main = process.id.pid;
    ASSERT_EQ(ptrace(PTRACE_SEIZE, main, nullptr, nullptr), 0);
    ASSERT_EQ(ptrace(PTRACE_INTERRUPT, main, nullptr, nullptr), 0);
    ASSERT_EQ(waitpid(main, nullptr, __WALL), main);
    manager->Drain();
    EXPECT_EQ(manager->Await("WATCHDOG=1", 1500ms), "")
        << "another thread pings for the one that is stuck";
    EXPECT_FALSE(HasEnded(process));
    ASSERT_EQ(ptrace(PTRACE_DETACH, main, nullptr, nullptr), 0);
    EXPECT_NE(manager->Await("WATCHDOG=1", 30s), "");
  }

  std::string dir_;
  std::deque<Process> processes_;
};

TEST_F(DaemonTest, TheCoordinatorTellsHowItIs) {
  Manager manager(dir_ + "/notify");
  const Process* process =
      Start("lockstep-coordinator",
            {"--dir", dir_ + "/coordinator", "--listen", "127.0.0.1:0",
             "--http-listen", "127.0.0.1:0", "--insecure-loopback"},
            manager, 600ms);
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(manager.Await("STATUS=", 20s),
            "STATUS=0 jobs active, 0 queued; 0 of 0 nodes ready")
      << Log();
  ASSERT_EQ(manager.Await("READY=1", 20s), "READY=1") << Log();
  // It listens by then.
  EXPECT_EQ(Endpoint("coordinator")["pid"], process->id.pid);
  StuckLoop(*process, &manager);
  ASSERT_TRUE(SendSignal(*process, SIGTERM).ok());
  EXPECT_EQ(manager.Await("STOPPING=1", 30s), "STOPPING=1");
  const auto exit = WaitExit(*process, MonotonicNow() + 30s);
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_TRUE(exit->ok()) << exit->Describe() << Log();
}

TEST_F(DaemonTest, TheWorkerTellsHowItIs) {
  Manager none(dir_ + "/none");
  const Process* coordinator =
      Start("lockstep-coordinator",
            {"--dir", dir_ + "/coordinator", "--listen", "127.0.0.1:0",
             "--http-listen", "127.0.0.1:0", "--insecure-loopback"},
            none, 600ms);
  ASSERT_NE(coordinator, nullptr);
  ASSERT_EQ(none.Await("READY=1", 20s), "READY=1") << Log();
  Manager manager(dir_ + "/notify");
  const Process* worker =
      Start("lockstep-worker",
            {"--dir", dir_ + "/worker", "--coordinator",
             Endpoint("coordinator")["grpc"].get<std::string>(), "--node", "n",
             "--http-address", "127.0.0.1:0", "--insecure-loopback"},
            manager, 600ms);
  ASSERT_NE(worker, nullptr);
  ASSERT_EQ(manager.Await("READY=1", 20s), "READY=1") << Log();
  EXPECT_EQ(Endpoint("worker")["pid"], worker->id.pid);
  EXPECT_EQ(manager.Await("STATUS=connected", 20s),
            "STATUS=connected to the coordinator; running 0 ranks of 0 jobs");
  EXPECT_NE(none.Await("STATUS=0 jobs active, 0 queued; 1 of 1", 20s), "");
  StuckLoop(*worker, &manager);
  // It serves on, and says so, while the coordinator is away.
  (void)StopProcess(*coordinator, 30s);
  EXPECT_THAT(manager.Await("STATUS=the coordinator", 20s),
              HasSubstr("has not admitted this worker"));
  ASSERT_TRUE(SendSignal(*worker, SIGTERM).ok());
  EXPECT_EQ(manager.Await("STOPPING=1", 30s), "STOPPING=1");
  const auto exit = WaitExit(*worker, MonotonicNow() + 30s);
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_TRUE(exit->ok()) << exit->Describe() << Log();
}

}  // namespace
}  // namespace lockstep
