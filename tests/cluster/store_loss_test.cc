// Commits of the coordinator that were answered, and that its disk lost: the
// coordinator says so and does not start, and ranks go on.
#include <signal.h>

#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class StoreLossTest : public ClusterTest {
 protected:
  std::string Dir() { return cluster()->layout().DaemonDir("coordinator"); }
  CommandResult Coordinator(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {Binary("lockstep-coordinator")};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return RunCommand(command);
  }
  CommandResult Start() {
    return Coordinator({"--dir", Dir(), "--insecure_loopback"});
  }
  v1::Job Hold(const std::string& name, int tasks) {
    Submit(Shell(name, tasks,
                 "while [ ! -e " + Path(name + ".go") +
                     " ]; do sleep 0.02; done; echo done > " +
                     Path(name + ".$RANK")));
    return WaitFor(name, v1::JOB_STATE_RUNNING);
  }
  bool Alive(const v1::Job& job, int rank) {
    return ::kill(static_cast<pid_t>(PidOf(job, rank)), 0) == 0;
  }
  v1::Node NodeOf(const std::string& name) {
    const auto node = client()->GetNode(name);
    return node.ok() ? *node : v1::Node();
  }
};

TEST_F(StoreLossTest, AFlippedBitInTheLogStopsNoRankAndIsSaid) {
  const v1::Job job = Hold("precious", 2);
  KillDaemon("coordinator");
  const std::string log = Dir() + "/coordinator.db-wal";
  std::string bytes = ReadFile(log);
  // Within what the submission wrote.
  ASSERT_GT(bytes.size(), 40'000u);
  bytes[bytes.size() / 4] ^= 0x20;
  WriteFile(log, bytes);
  const CommandResult refused = Start();
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("has lost commits that were answered"));
  EXPECT_THAT(refused.err, HasSubstr("lockstep-coordinator accept-loss"));
  EXPECT_EQ(Coordinator({"verify", Dir()}).code, 1);
  EXPECT_TRUE(Alive(job, 0) && Alive(job, 1));

  // The operator goes on without it: the ranks are left alone.
  const CommandResult accepted = Coordinator({"accept-loss", Dir()});
  EXPECT_EQ(accepted.code, 0) << accepted.err;
  EXPECT_EQ(Coordinator({"verify", Dir()}).code, 0);
  StartDaemon("coordinator");
  ASSERT_TRUE(Eventually([&] {
    return NodeOf("worker-0").unknown_gangs_size() == 1 &&
           NodeOf("worker-1").unknown_gangs_size() == 1;
  }));
  EXPECT_THAT(Lockstep({"nodes", "describe", "worker-0"}).out,
              HasSubstr("precious"));
  EXPECT_TRUE(Alive(job, 0) && Alive(job, 1));
  WriteFile(Path("precious.go"), "");
  ASSERT_TRUE(Eventually([&] {
    return NodeOf("worker-0").unknown_gangs_size() == 0 &&
           NodeOf("worker-1").unknown_gangs_size() == 0;
  }));
  EXPECT_EQ(ReadFile(Path("precious.0")), "done\n");
  EXPECT_EQ(ReadFile(Path("precious.1")), "done\n");
  RunJob(Shell("fine", 2, "true"), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(StoreLossTest, ABackupIsRestoredWhileJobsOfLaterRun) {
  RunJob(Shell("first", 2, "true"), v1::JOB_STATE_SUCCEEDED);
  const std::string backup = Path("backup.db");
  ASSERT_EQ(Coordinator({"--dir", Dir(), "--backup_to", backup}).code, 0);
  const v1::Job job = Hold("later", 2);
  KillDaemon("coordinator");
  const CommandResult restored = Coordinator({"restore", backup, Dir()});
  EXPECT_EQ(restored.code, 0) << restored.err;
  StartDaemon("coordinator");
  EXPECT_EQ(Get("first").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(client()->GetJob("later").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(
      Eventually([&] { return NodeOf("worker-0").unknown_gangs_size() == 1; }));
  EXPECT_TRUE(Alive(job, 0) && Alive(job, 1));
  // A drain with a grace ends it.
  for (const char* node : {"worker-0", "worker-1"}) {
    EXPECT_EQ(Lockstep({"nodes", "drain", node, "--grace", "0s"}).code, 0);
  }
  ASSERT_TRUE(Eventually([&] { return !Alive(job, 0) && !Alive(job, 1); }));
  for (const char* node : {"worker-0", "worker-1"}) {
    EXPECT_EQ(Lockstep({"nodes", "undrain", node}).code, 0);
  }
  RunJob(Shell("fine", 2, "true"), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace lockstep
