// LocalCluster with daemons that only pose as such (fake_daemon.cc); with the
// real ones it is used by tests/cluster.
#include "client/local/local_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "client/local/leftovers.h"
#include "common/base/file.h"
#include "common/os/procfs.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LocalClusterTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-test-XXXXXX";
    root_ = mkdtemp(name);
    const std::string fake =
        std::filesystem::canonical("/proc/self/exe").parent_path() /
        "client_local_fake_daemon";
    for (const char* program : {"lockstep-coordinator", "lockstep-worker"}) {
      ASSERT_EQ(symlink(fake.c_str(), (root_ + "/" + program).c_str()), 0);
    }
    options_.dir = root_ + "/c";
    options_.bin_dir = root_;
    options_.insecure_loopback = true;
  }
  void TearDown() override {
    if (auto cluster = LocalCluster::Open(options_); cluster.ok()) {
      DownOptions down;
      down.grace = std::chrono::milliseconds(200);
      EXPECT_TRUE((*cluster)->Down(down).ok());
    }
    EXPECT_TRUE(RealFileSystem()->RemoveAll(root_).ok());
  }

  std::string root_;
  LocalClusterOptions options_;
};

TEST_F(LocalClusterTest, StartsAndGoesDown) {
  auto cluster = LocalCluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto daemons = (*cluster)->Daemons();
  ASSERT_EQ(daemons.size(), 3u);
  for (const DaemonStatus& daemon : daemons) {
    EXPECT_TRUE(daemon.running) << daemon.name;
    EXPECT_THAT(daemon.http, HasSubstr("127.0.0.1:"));
  }
  EXPECT_EQ(daemons[0].grpc, (*cluster)->client_options().address);

  const auto down = (*cluster)->Down({});
  ASSERT_TRUE(down.ok()) << down.status();
  EXPECT_EQ(down->daemons, 3);
  EXPECT_EQ(down->cancelled_jobs, 1);
  for (const DaemonStatus& daemon : (*cluster)->Daemons()) {
    EXPECT_FALSE(daemon.running) << daemon.name;
  }
  EXPECT_FALSE(RealFileSystem()->Exists((*cluster)->record().runtime_dir));
}

TEST_F(LocalClusterTest, UpAgainBringsBackWhatIsGoneAndLeavesTheRest) {
  auto first = LocalCluster::Start(options_);
  ASSERT_TRUE(first.ok()) << first.status();
  const pid_t coordinator = (*first)->Pid("coordinator");
  const std::string address = (*first)->grpc_address();
  ASSERT_TRUE((*first)->Kill("worker-1", SIGKILL).ok());
  EXPECT_EQ((*first)->Pid("worker-1"), 0);

  // As another `lockstep local up` would.
  LocalClusterOptions later = options_;
  later.insecure_loopback.reset();
  auto second = LocalCluster::Open(later);
  ASSERT_TRUE(second.ok()) << second.status();
  const auto started = (*second)->Up();
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_THAT(*started, ElementsAre("worker-1"));
  EXPECT_EQ((*second)->Pid("coordinator"), coordinator);
  EXPECT_EQ((*second)->grpc_address(), address);
  EXPECT_THAT(*(*second)->Up(), IsEmpty());
}

TEST_F(LocalClusterTest, RestartIsAnotherProcessAtTheSamePort) {
  auto cluster = LocalCluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const pid_t before = (*cluster)->Pid("coordinator");
  const std::string address = (*cluster)->grpc_address();
  const Status restarted = (*cluster)->Restart("coordinator");
  ASSERT_TRUE(restarted.ok()) << restarted;
  EXPECT_NE((*cluster)->Pid("coordinator"), before);
  EXPECT_EQ((*cluster)->grpc_address(), address);
}

TEST_F(LocalClusterTest, AMachinesFileThatWasChangedStays) {
  auto cluster = LocalCluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  FileSystem* const files = RealFileSystem();
  const std::string path = (*cluster)->layout().MachinesFile();
  const auto written = files->Read(path, 1 << 20);
  ASSERT_TRUE(written.ok()) << written.status();
  const std::string changed = *written + "runtimes: {tf2: {python: /p}}\n";
  ASSERT_TRUE(files->WriteAtomic(path, changed).ok());
  ASSERT_TRUE((*cluster)->Restart("coordinator").ok());
  EXPECT_EQ(*files->Read(path, 1 << 20), changed);
  ASSERT_TRUE(files->RemoveAll(path).ok());
  ASSERT_TRUE((*cluster)->Restart("coordinator").ok());
  EXPECT_EQ(*files->Read(path, 1 << 20), *written);
}

TEST_F(LocalClusterTest, OtherSettingsWhileItRunsAreRefused) {
  auto cluster = LocalCluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  LocalClusterOptions other = options_;
  other.workers = 3;
  EXPECT_EQ(LocalCluster::Start(other).status().code(),
            StatusCode::kFailedPrecondition);
  ASSERT_TRUE((*cluster)->Down({}).ok());
  auto again = LocalCluster::Start(other);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->Daemons().size(), 4u);
  // Kept: clients know it.
  EXPECT_EQ((*again)->grpc_address(), (*cluster)->grpc_address());
}

TEST_F(LocalClusterTest, NamesTheDaemonThatEndedAndItsLastWords) {
  options_.extra_arguments["worker-1"] = {"--fail", "the disk is full"};
  const auto cluster = LocalCluster::Start(options_);
  EXPECT_EQ(cluster.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(cluster.status()), HasSubstr("worker-1 has exited"));
  EXPECT_THAT(Message(cluster.status()), HasSubstr("the disk is full"));
}

TEST_F(LocalClusterTest, NamesTheDaemonThatIsNotReadyInTime) {
  // The others serve already.
  const auto running = LocalCluster::Start(options_);
  ASSERT_TRUE(running.ok()) << running.status();
  ASSERT_TRUE((*running)->Kill("worker-0", SIGKILL).ok());
  options_.extra_arguments["worker-0"] = {"--silent"};
  options_.ready_timeout = std::chrono::milliseconds(300);
  const auto cluster = LocalCluster::Start(options_);
  EXPECT_EQ(cluster.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(cluster.status()), HasSubstr("worker-0"));
  EXPECT_THAT(Message(cluster.status()), HasSubstr("300 ms"));
}

TEST_F(LocalClusterTest, DeafAndStoppedDaemonsAreKilled) {
  options_.extra_arguments["worker-0"] = {"--deaf"};
  auto cluster = LocalCluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_TRUE((*cluster)->Kill("worker-1", SIGSTOP).ok());
  DownOptions down;
  down.grace = std::chrono::milliseconds(300);
  const auto result = (*cluster)->Down(down);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->daemons, 3);
}

// Whoever started it was killed before it was written down.
TEST_F(LocalClusterTest, ADaemonThatNoRecordHoldsGoesDownToo) {
  auto cluster = LocalCluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_TRUE(RealFileSystem()->RemoveAll(options_.dir + "/state.json").ok());
  const auto result = (*cluster)->Down({});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->daemons, 3);
  const std::string dir = options_.dir + "/worker-0";
  EXPECT_THAT(FindDaemons("lockstep-worker", dir), IsEmpty());
}

TEST_F(LocalClusterTest, CleanLeavesWhatIsNotItsOwn) {
  auto cluster = LocalCluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string mine = options_.dir + "/data.txt";
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(mine, "x").ok());
  DownOptions down;
  down.clean = true;
  ASSERT_TRUE((*cluster)->Down(down).ok());
  EXPECT_THAT(*RealFileSystem()->List(options_.dir), ElementsAre("data.txt"));
}

TEST_F(LocalClusterTest, NothingThereAndNoSuchDaemon) {
  const auto none = LocalCluster::Open(options_);
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(none.status()), HasSubstr("local up"));
  auto cluster = LocalCluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ((*cluster)->Kill("worker-9", SIGKILL).code(),
            StatusCode::kInvalidArgument);
}

// A shim is known by its name and by what it has open.
TEST_F(LocalClusterTest, LeftoversAreFoundAndKilledWithTheirChildren) {
  const std::string shim = root_ + "/lockstep-shim";
  std::filesystem::copy("/bin/sh", shim);
  SpawnOptions spawn;
  spawn.program = shim;
  spawn.argv = {shim, "-c", "trap '' TERM; sleep 1000; exit 3"};
  spawn.cwd = root_;
  const auto process = Spawn(spawn);
  ASSERT_TRUE(process.ok()) << process.status();
  // Until it has become `sleep`, its child is named as the shim too.
  const auto sleeps = [&] {
    const auto all = ReadAllProcesses();
    return std::any_of(all.begin(), all.end(), [&](const ProcessStat& stat) {
      return stat.parent == process->id.pid && stat.command == "sleep";
    });
  };
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(60);
  while (!sleeps() && MonotonicNow() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(*KillLeftovers({root_ + "/other"}, std::chrono::seconds(1)), 0);
  EXPECT_FALSE(HasEnded(*process));
  const auto killed = KillLeftovers({root_}, std::chrono::seconds(10));
  ASSERT_TRUE(killed.ok()) << killed.status();
  EXPECT_EQ(*killed, 1);
  const auto exit =
      WaitExit(*process, MonotonicNow() + std::chrono::seconds(30));
  ASSERT_TRUE(exit.ok());
  // Its child was killed first, so it ended by itself.
  EXPECT_EQ(exit->code, 3);
}

}  // namespace
}  // namespace lockstep::cli
