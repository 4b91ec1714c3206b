// Commits of the coordinator that were answered, and that its disk lost: the
// coordinator says so and does not start, and ranks go on. And a disk that is
// full, on which it starts.
#include <signal.h>

#include "tests/cluster/fixture.h"
#include "tests/support/small_disk.h"

namespace lockstep::cli {
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
    return Coordinator({"--dir", Dir(), "--insecure-loopback"});
  }
  v1::Job Hold(const std::string& name, int tasks) {
    Submit(Shell(name, tasks,
                 "while [ ! -e " + Path(name + ".go") +
                     " ]; do sleep 0.02; done; echo done > " +
                     Path(name + ".$RANK")));
    return WaitFor(name, v1::JOB_STATE_RUNNING);
  }
  // Runs one on `dir` until it is stopped; its address in `*address`.
  Command StartOn(const std::string& dir, std::string* address) {
    const std::string endpoint = dir + "/endpoint.json";
    (void)RealFileSystem()->RemoveAll(endpoint);
    Command command = StartCommand(
        {Binary("lockstep-coordinator"), "--dir", dir, "--insecure-loopback",
         "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"});
    EXPECT_TRUE(Eventually([&] { return RealFileSystem()->Exists(endpoint); }))
        << ReadFile(command.err);
    const std::string text = ReadFile(endpoint);
    const size_t at = text.find("\"grpc\":\"") + 8;
    *address = text.substr(at, text.find('"', at) - at);
    return command;
  }
  StatusOr<std::unique_ptr<Client>> ConnectTo(const std::string& address) {
    ClientOptions options;
    options.address = address;
    options.insecure_loopback = true;
    options.timeout = std::chrono::seconds(10);
    return Client::Connect(options);
  }
  StatusOr<v1::SubmitJobResponse> SubmitTo(const std::string& address,
                                           const std::string& name) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto other, ConnectTo(address));
    return other->SubmitJob(Shell(name, 1, "true"));
  }
  bool Alive(const v1::Job& job, int rank) {
    return ::kill(static_cast<pid_t>(PidOf(job, rank)), 0) == 0;
  }
  v1::Node NodeOf(const std::string& name) {
    const auto node = client()->GetNode(name);
    return node.ok() ? *node : v1::Node();
  }
};

// What it holds for this is given up at the start.
TEST_F(StoreLossTest, ACoordinatorStartsOnAFullDisk) {
  const std::string dir = Path("small");
  SmallDisk disk(dir, "48m");
  if (!disk.mounted()) GTEST_SKIP() << "needs root, to mount a small disk";
  std::string address;
  {
    Command first = StartOn(dir, &address);
    for (const char* name : {"one", "two"}) {
      const auto taken = SubmitTo(address, name);
      EXPECT_TRUE(taken.ok()) << taken.status();
    }
    EXPECT_TRUE(RealFileSystem()->Exists(dir + "/ballast"));
    ASSERT_TRUE(SendSignal(first.process, SIGTERM).ok());
    EXPECT_EQ(WaitCommand(first).code, 0);
  }
  disk.Fill();
  Command second = StartOn(dir, &address);
  const Status refused = SubmitTo(address, "three").status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused;
  EXPECT_EQ(ReasonOf(refused), "DISK_FULL");
  EXPECT_THAT(Message(refused), HasSubstr("the disk of " + dir + " is full"));
  const auto other = ConnectTo(address);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->GetJob("two")->state(), v1::JOB_STATE_QUEUED);
  const auto cancelled = (*other)->CancelJob("one");
  EXPECT_TRUE(cancelled.ok()) << cancelled.status();
  const Status deleted = (*other)->DeleteJob("one");
  EXPECT_TRUE(deleted.ok()) << deleted;
  // With room it is as before, and holds the space again.
  disk.Free();
  Status last;
  EXPECT_TRUE(Eventually([&] {
    last = SubmitTo(address, "three").status();
    return last.ok();
  })) << last;
  EXPECT_TRUE(RealFileSystem()->Exists(dir + "/ballast"));
  ASSERT_TRUE(SendSignal(second.process, SIGTERM).ok());
  EXPECT_EQ(WaitCommand(second).code, 0);
}

// Not with what it holds, as that is gone.
TEST_F(StoreLossTest, AStartOnAFullDiskWithoutBallastSaysWhatToFree) {
  const std::string dir = Path("small");
  SmallDisk disk(dir, "48m");
  if (!disk.mounted()) GTEST_SKIP() << "needs root, to mount a small disk";
  std::string address;
  {
    Command first = StartOn(dir, &address);
    const auto taken = SubmitTo(address, "one");
    EXPECT_TRUE(taken.ok()) << taken.status();
    ASSERT_TRUE(SendSignal(first.process, SIGTERM).ok());
    EXPECT_EQ(WaitCommand(first).code, 0);
  }
  ASSERT_TRUE(RealFileSystem()->Remove(dir + "/ballast").ok());
  disk.Fill();
  const CommandResult refused = RunCommand(
      {Binary("lockstep-coordinator"), "--dir", dir, "--insecure-loopback",
       "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("the disk of " + dir + " is full"));
  EXPECT_THAT(refused.err, HasSubstr("a start writes up to 1048576 bytes"));
  EXPECT_THAT(refused.err, HasSubstr("start again"));
  disk.Free();
  Command second = StartOn(dir, &address);
  const auto other = ConnectTo(address);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->GetJob("one")->state(), v1::JOB_STATE_QUEUED);
  ASSERT_TRUE(SendSignal(second.process, SIGTERM).ok());
  EXPECT_EQ(WaitCommand(second).code, 0);
}

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
  ASSERT_EQ(Coordinator({"--dir", Dir(), "--backup-to", backup}).code, 0);
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

// A lock file that somebody removes admits a second coordinator: the first one
// commits nothing any more, and ends.
TEST_F(StoreLossTest, OfTwoCoordinatorsTheFirstEnds) {
  const std::string dir = Path("two");
  std::string first_address, second_address;
  const Command first = StartOn(dir, &first_address);
  const auto before = SubmitTo(first_address, "before");
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(RealFileSystem()->Remove(dir + "/coordinator.db.lock").ok());
  const Command second = StartOn(dir, &second_address);

  const auto refused = SubmitTo(first_address, "refused");
  EXPECT_FALSE(refused.ok());
  const CommandResult end = WaitCommand(first);
  EXPECT_NE(end.code, 0);
  EXPECT_THAT(end.err, HasSubstr("two run on one directory"));

  const auto after = SubmitTo(second_address, "after");
  EXPECT_TRUE(after.ok()) << after.status();
  ASSERT_TRUE(SendSignal(second.process, SIGTERM).ok());
  const CommandResult left = WaitCommand(second);
  EXPECT_EQ(left.code, 0) << left.err;
  EXPECT_EQ(Coordinator({"verify", dir}).code, 0);
  // What the first one refused is not there; what was answered is.
  std::string address;
  const Command third = StartOn(dir, &address);
  EXPECT_TRUE(SubmitTo(address, "refused").ok());
  EXPECT_EQ(SubmitTo(address, "before").status().code(),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(SubmitTo(address, "after").status().code(),
            StatusCode::kAlreadyExists);
  ASSERT_TRUE(SendSignal(third.process, SIGTERM).ok());
  EXPECT_EQ(WaitCommand(third).code, 0);
}

}  // namespace
}  // namespace lockstep::cli
