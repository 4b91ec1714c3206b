#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "client/local/certificates.h"
#include "client/local/daemon.h"
#include "client/local/layout.h"
#include "client/local/lock.h"
#include "client/local/machine.h"
#include "client/local/machines_table.h"
#include "client/local/ports.h"
#include "client/local/records.h"
#include "common/base/file.h"
#include "common/pki/credentials.h"

namespace lockstep::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/lockstep-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempDir() { RealFileSystem()->RemoveAll(path_).IgnoreError(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

ClusterRecord TwoWorkers() {
  ClusterRecord record;
  record.runtime_dir = "/tmp/lockstep-0-abc";
  record.grpc_port = 20001;
  record.http_port = 20002;
  record.workers = {{"worker-0", 20003, {1, 1000, {}}},
                    {"worker-1", 20004, {0.5, 1000, {2, 3}}}};
  return record;
}

TEST(DivideTest, WholeCoresAndGpusToTheFirst) {
  const auto shares = Divide({5, 1000, 3}, 2);
  EXPECT_EQ(shares[0], (Share{3, 500, {0, 1}}));
  EXPECT_EQ(shares[1], (Share{2, 500, {2}}));
}

TEST(DivideTest, FractionsWhereThereAreFewerCoresThanWorkers) {
  const auto shares = Divide({2, 900, 0}, 3);
  EXPECT_EQ(shares[2], (Share{0.66, 300, {}}));
}

TEST(MachineTest, HasCpusAndMemory) {
  const auto machine = ReadMachine();
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_GE(machine->cpus, 1);
  EXPECT_GT(machine->memory_bytes, 1 << 20);
}

TEST(RecordsTest, RoundTrip) {
  const auto cluster = DecodeCluster(EncodeCluster(TwoWorkers()));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(*cluster, TwoWorkers());
  // Of a cluster that is older than the setting: as open as it was.
  std::string text = EncodeCluster(TwoWorkers());
  const std::string setting = "  \"httpToken\": false,\n";
  const size_t at = text.find(setting);
  ASSERT_NE(at, std::string::npos) << text;
  text.erase(at, setting.size());
  const auto older = DecodeCluster(text);
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_FALSE(older->http_token);
  const StateRecord state = {{"worker-0", {{12, 345}, "boot"}}};
  const auto decoded = DecodeState(EncodeState(state));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, state);
}

TEST(RecordsTest, DamageIsAnErrorAndNotACrash) {
  for (const char* text : {"", "[]", "{\"format\": 2}", "{\"format\": \"x\"}",
                           "{\"format\": 1, \"daemons\": 3}"}) {
    EXPECT_FALSE(DecodeCluster(text).ok()) << text;
    EXPECT_FALSE(DecodeState(text).ok()) << text;
  }
}

TEST(DaemonTest, Arguments) {
  const LocalLayout layout{"/c"};
  EXPECT_THAT(
      *DaemonArguments(layout, TwoWorkers(), "coordinator"),
      ElementsAre("--dir", "/c/coordinator", "--listen", "127.0.0.1:20001",
                  "--http-listen", "127.0.0.1:20002", "--cluster", "local",
                  "--machines-file", "/c/machines.yaml", "--ca",
                  "/c/coordinator/tls/ca.crt", "--cert",
                  "/c/coordinator/tls/tls.crt", "--key",
                  "/c/coordinator/tls/tls.key", "--log-level", "info"));
  ClusterRecord insecure = TwoWorkers();
  insecure.insecure_loopback = true;
  EXPECT_THAT(*DaemonArguments(layout, insecure, "worker-1"),
              ElementsAre("--dir", "/c/worker-1", "--runtime-dir",
                          "/tmp/lockstep-0-abc/worker-1", "--coordinator",
                          "127.0.0.1:20001", "--node", "worker-1", "--address",
                          "127.0.0.1", "--http-address", "127.0.0.1:20004",
                          "--cpus", "0.5", "--memory", "1000", "--gpus", "2",
                          "--container-root", "--inherit", "*",
                          "--insecure-loopback", "--log-level", "info"));
  EXPECT_FALSE(DaemonArguments(layout, insecure, "worker-2").ok());
  ClusterRecord asking = TwoWorkers();
  asking.http_token = true;
  for (const char* daemon : {"coordinator", "worker-0"}) {
    EXPECT_THAT(*DaemonArguments(layout, asking, daemon),
                testing::IsSupersetOf({"--http-token-file", "/c/http-token"}));
  }
}

TEST(MachinesTableTest, EveryMachineFitsSeveralTimes) {
  const std::string text = LocalMachinesFile(1.5, 1000);
  EXPECT_THAT(text, HasSubstr("defaults: true\n"));
  EXPECT_THAT(text, HasSubstr("\nvisibility: cluster\n"));
  EXPECT_THAT(text, HasSubstr("  n1-standard-8: {request: {cpus: 0.37, memory: "
                              "250}}\n"));
  // Nobody gets more than the name says.
  EXPECT_THAT(LocalMachinesFile(1000, int64_t{1} << 50),
              HasSubstr("  n1-standard-4: {request: {cpus: 4, memory: "
                        "16106127360}}\n"));
}

TEST(MachinesTableTest, KnowsWhatSomebodyChanged) {
  const std::string text = LocalMachinesFile(1.5, 1000);
  EXPECT_THAT(text, testing::StartsWith("# Written by `lockstep local up` ("));
  EXPECT_TRUE(IsOwnMachinesFile(text));
  EXPECT_FALSE(IsOwnMachinesFile(text + "runtimes: {tf2: {python: /p}}\n"));
  EXPECT_FALSE(IsOwnMachinesFile(text.substr(text.find('\n') + 1)));
  EXPECT_FALSE(IsOwnMachinesFile(""));
}

TEST(DaemonTest, EnvironmentHasTheProgramsAndItsOwnGpus) {
  const std::vector<std::string> env = {"A=1", "PATH=/bin"};
  const ClusterRecord record = TwoWorkers();
  EXPECT_THAT(
      DaemonEnvironment(env, "/opt/bin", record, "worker-1"),
      ElementsAre("A=1", "PATH=/opt/bin:/bin", "CUDA_VISIBLE_DEVICES=2,3"));
  EXPECT_THAT(DaemonEnvironment(env, "/opt/bin", record, "worker-0"),
              ElementsAre("A=1", "PATH=/opt/bin:/bin"));
}

TEST(DaemonTest, LastLogLine) {
  TempDir dir;
  const LocalLayout layout{dir.path()};
  EXPECT_EQ(LastLogLine(layout, "worker-0"), "");
  ASSERT_TRUE(RealFileSystem()->MakeDirs(layout.DaemonDir("worker-0")).ok());
  const auto write = [&](const std::string& text) {
    ASSERT_TRUE(
        RealFileSystem()->WriteAtomic(layout.Log("worker-0"), text).ok());
  };
  write("");
  EXPECT_EQ(LastLogLine(layout, "worker-0"), "");
  write("one\ntwo\n\n");
  EXPECT_EQ(LastLogLine(layout, "worker-0"), "two");
}

TEST(LayoutTest, RuntimeDirIsShortAndFoundAgain) {
  const std::string dir = RuntimeDir("/home/a/very/long/path", 1000);
  EXPECT_LE(dir.size(), 40u);
  EXPECT_EQ(dir, RuntimeDir("/home/a/very/long/path", 1000));
  EXPECT_NE(dir, RuntimeDir("/home/b", 1000));
}

TEST(LayoutTest, PrivateDirRefusesWhatOthersCanRead) {
  TempDir dir;
  const std::string path = dir.path() + "/run";
  EXPECT_TRUE(MakePrivateDir(path).ok());
  EXPECT_TRUE(MakePrivateDir(path).ok());
  chmod(path.c_str(), 0755);
  EXPECT_EQ(MakePrivateDir(path).code(), StatusCode::kPermissionDenied);
  const std::string link = dir.path() + "/link";
  ASSERT_EQ(symlink("/tmp", link.c_str()), 0);
  EXPECT_EQ(MakePrivateDir(link).code(), StatusCode::kPermissionDenied);
}

TEST(PortsTest, AreDifferentAndFree) {
  const auto ports = ChoosePorts(20);
  ASSERT_TRUE(ports.ok()) << ports.status();
  EXPECT_EQ(std::set<uint16_t>(ports->begin(), ports->end()).size(), 20u);
  for (const uint16_t port : *ports) {
    EXPECT_GE(port, 20000);
    EXPECT_LT(port, 32000);
  }
}

TEST(LockTest, SecondHolderIsTold) {
  TempDir dir;
  const std::string path = dir.path() + "/lock";
  auto first = LockFile(path, std::chrono::seconds(1));
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = LockFile(path, std::chrono::milliseconds(30));
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  first->Reset();
  EXPECT_TRUE(LockFile(path, std::chrono::seconds(1)).ok());
}

TEST(CertificatesTest, MadeOnceAndRenewedBeforeTheirEnd) {
  TempDir dir;
  const LocalLayout layout{dir.path()};
  const WallTime now = SystemClock().Now().wall;
  const ClusterRecord record = TwoWorkers();
  const Status made = MakeCertificates(layout, record, "ann", now);
  ASSERT_TRUE(made.ok()) << made;
  const auto load = [&](const std::string& where, WallTime when) {
    return LoadCredentials(RealFileSystem(), pki::CredentialPathsIn(where),
                           when);
  };
  const auto user = load(layout.UserDir(), now);
  ASSERT_TRUE(user.ok()) << user.status();
  EXPECT_EQ(Describe(user->identity), "user ann (admin)");
  const auto worker = load(layout.TlsDir("worker-1"), now);
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(worker->identity, pki::WorkerIdentity("local", "worker-1"));

  ASSERT_TRUE(MakeCertificates(layout, record, "ann", now).ok());
  EXPECT_EQ(load(layout.UserDir(), now)->certificate, user->certificate);
  const WallTime late = now + std::chrono::hours(24 * 350);
  ASSERT_TRUE(MakeCertificates(layout, record, "ann", late).ok());
  EXPECT_NE(load(layout.UserDir(), late)->certificate, user->certificate);
}

}  // namespace
}  // namespace lockstep::cli
