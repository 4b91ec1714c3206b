// A worker daemon against a coordinator over real gRPC, with the real shim and
// real processes. The daemon's loop runs on a thread of the test's.
#ifndef LOCKSTEP_WORKER_AGENT_AGENT_FIXTURE_H_
#define LOCKSTEP_WORKER_AGENT_AGENT_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/os/process.h"
#include "common/rpc/channel.h"
#include "worker/agent/agent.h"
#include "worker/agent/fake_coordinator.h"

namespace lockstep::worker::agent {

// One life of a daemon.
class Daemon {
 public:
  // `gpus` may be null.
  Daemon(const AgentConfig& config, const std::string& coordinator,
         const devices::GpuSampler* gpus,
         FileSystem* files = RealFileSystem()) {
    auto loop = EventLoop::Create(&clock_);
    EXPECT_TRUE(loop.ok());
    loop_ = *std::move(loop);
    auto agent = Agent::Create(config, loop_.get(), files, gpus);
    EXPECT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
    ChannelOptions options;
    options.target = coordinator;
    options.insecure_loopback = true;
    auto channel = MakeChannel(options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    client_ = MakeGrpcCoordinatorClient(*channel, agent_->ClientEvents());
    auto listener = ProbeListener::Listen(config.daemon.node.address);
    EXPECT_TRUE(listener.ok()) << listener.status();
    agent_->SetProbeListener(*std::move(listener));
    const Status started = agent_->Start(client_.get());
    EXPECT_TRUE(started.ok()) << started;
    thread_ = std::thread([this] { loop_->Run(); });
  }
  ~Daemon() { (void)Stop(); }
  // As on SIGTERM. What it started goes on.
  Status Stop() {
    loop_->Stop();
    return Wait();
  }
  // Until it leaves by itself.
  Status Wait() {
    if (thread_.joinable()) thread_.join();
    return agent_->fatal();
  }
  Agent* agent() { return agent_.get(); }
  // On the daemon's own thread.
  void Post(std::function<void()> what) { loop_->Post(std::move(what)); }

 private:
  SystemClock clock_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<CoordinatorClient> client_;
  std::thread thread_;
};

class AgentTest : public testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    const char* bin = getenv("LOCKSTEP_BIN");
    ASSERT_NE(bin, nullptr) << "set LOCKSTEP_BIN to the folder of the binaries";
    char name[] = "/tmp/lockstep-agent-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    config_.daemon.node.name = "node-a";
    config_.daemon.node.incarnation = {1, 1};
    config_.daemon.node.boot_id = BootId().value();
    config_.daemon.node.hostname = "host";
    config_.daemon.node.version = "0";
    config_.daemon.node.address = "127.0.0.1";
    config_.daemon.node.capacity = {4, 1 << 30, 0, ""};
    config_.daemon.dir = dir_;
    config_.daemon.runtime_dir = dir_ + "/run";
    config_.ranks.shim_program = JoinPath(bin, "lockstep-shim");
    config_.daemon.environment = {{"PATH", "/usr/bin:/bin"}};
    config_.prepare.port_ranges = {{20000, 32000}};
    config_.stream.reconnect_first = std::chrono::milliseconds(5);
    config_.stream.reconnect_most = std::chrono::milliseconds(20);
    ASSERT_TRUE(coordinator_.Start().ok());
    StartDaemon();
    ASSERT_TRUE(
        coordinator_.Eventually([&] { return !coordinator_.beats.empty(); }));
  }
  void TearDown() override {
    daemon_.reset();
    coordinator_.Stop();
    EXPECT_THAT(coordinator_.errors, testing::IsEmpty());
    // What a failed test has left.
    for (const auto& [key, status] : coordinator_.statuses) {
      for (const RankStatus& rank : status.ranks) {
        const auto start = StartTime(static_cast<pid_t>(rank.pid));
        if (rank.exit || !start.ok() || rank.pid == 0) continue;
        const auto held = OpenVerified({static_cast<pid_t>(rank.pid), *start});
        if (held.ok()) (void)SendSignal(*held, SIGKILL);
      }
    }
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  // Nothing of it is heard after this.
  void StopDaemon() {
    daemon_.reset();
    EXPECT_TRUE(coordinator_.ReceivedAll());
  }
  void StartDaemon() {
    StopDaemon();
    daemon_ = std::make_unique<Daemon>(config_, coordinator_.address(),
                                       gpus_.get(), files_);
  }

  // With the config of now, until what is sent reaches it.
  void StartAgain() {
    StopDaemon();
    coordinator_.Locked([&] { coordinator_.beats.clear(); });
    StartDaemon();
    ASSERT_TRUE(
        coordinator_.Eventually([&] { return !coordinator_.beats.empty(); }));
  }

  Assignment Order(Goal goal, std::vector<std::string> argv,
                   JobKind kind = JobKind::kProgram, int ranks = 1,
                   Generation generation = 1) {
    Assignment a;
    a.job = "job";
    a.job_uid = "uid";
    a.generation = generation;
    a.epoch = 1;
    a.goal = goal;
    a.grace = std::chrono::milliseconds(300);
    a.stop_message = "the test says so";
    if (goal >= Goal::kStop) return a;
    LocalTask task;
    task.argv = std::move(argv);
    for (int i = 0; i < ranks; ++i) task.ranks.push_back({i, i, {}});
    a.spec.emplace();
    a.spec->kind = kind;
    a.spec->tasks = {task};
    a.spec->lineage = {{generation, 0}};
    a.job_key = std::string(32, 'k');
    if (goal == Goal::kPrepare) return a;
    const GangStatus status = Reported(generation);
    a.cluster.emplace();
    a.cluster->job = "job";
    a.cluster->job_uid = "uid";
    a.cluster->generation = generation;
    a.cluster->world_size = ranks;
    a.cluster->tasks = {
        {TaskType::kChief, 0, "node-a",
         fmt::format("127.0.0.1:{}",
                     status.ports.empty() ? 1 : status.ports[0]),
         task.ranks}};
    a.cluster->master_address = "127.0.0.1";
    a.cluster->master_port = status.master_port;
    return a;
  }
  // Within Eventually; else Said.
  const GangStatus& Peek(Generation generation = 1) {
    static const GangStatus kNone;
    const auto it = coordinator_.statuses.find({"job", generation});
    return it == coordinator_.statuses.end() ? kNone : it->second;
  }
  GangStatus Reported(Generation generation = 1) {
    return coordinator_.Locked([&] { return Peek(generation); });
  }
  Registration Registered() {
    return coordinator_.Locked([&] { return coordinator_.registration; });
  }
  bool Reaches(GangPhase phase, Generation generation = 1) {
    return coordinator_.Eventually(
        [&] { return Peek(generation).phase == phase; });
  }
  // From nothing to running ranks.
  void Launch(std::vector<std::string> argv, JobKind kind = JobKind::kProgram,
              int ranks = 1, Generation generation = 1) {
    coordinator_.Send(Order(Goal::kPrepare, argv, kind, ranks, generation));
    ASSERT_TRUE(Reaches(GangPhase::kPrepared, generation))
        << Reported(generation).refusal.message;
    coordinator_.Send(Order(Goal::kLaunch, argv, kind, ranks, generation));
  }
  bool AllAre(RankState state, Generation generation = 1) {
    return coordinator_.Eventually([&] {
      const GangStatus& said = Peek(generation);
      return !said.ranks.empty() &&
             std::all_of(
                 said.ranks.begin(), said.ranks.end(),
                 [&](const RankStatus& rank) { return rank.state == state; });
    });
  }
  std::string LogOf(int32_t rank, Generation generation = 1) {
    const RankRef ref{{"job", generation}, rank};
    EXPECT_TRUE(
        coordinator_.Eventually([&] { return coordinator_.logs[ref].end; }));
    return coordinator_.Locked([&] { return coordinator_.logs[ref].bytes; });
  }
  std::string FakeRank() { return AGENT_FAKE_RANK; }

  std::string dir_;
  AgentConfig config_;
  FileSystem* files_ = RealFileSystem();  // Of the next daemon.
  FakeCoordinator coordinator_;
  std::unique_ptr<devices::GpuSampler>
      gpus_;  // Before the daemon, that reads it.
  std::unique_ptr<Daemon> daemon_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_AGENT_FIXTURE_H_
