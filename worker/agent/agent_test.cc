// The worker daemon against a coordinator over real gRPC, with the real shim
// and real processes. The daemon's loop runs on a thread of the test's.
#include "worker/agent/agent.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "common/base/random.h"
#include "common/os/process.h"
#include "common/rpc/channel.h"
#include "worker/agent/fake_coordinator.h"
#include "worker/devices/fake_nvml_control.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// One life of a daemon.
class Daemon {
 public:
  // `gpus` may be null.
  Daemon(const AgentConfig& config, const std::string& coordinator,
         const GpuSampler* gpus) {
    auto loop = EventLoop::Create(&clock_);
    EXPECT_TRUE(loop.ok());
    loop_ = *std::move(loop);
    auto agent = Agent::Create(config, loop_.get(), RealFileSystem(), gpus);
    EXPECT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
    ChannelOptions options;
    options.target = coordinator;
    options.insecure_loopback = true;
    auto channel = MakeChannel(options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    client_ = MakeGrpcCoordinatorClient(*channel, agent_->ClientEvents());
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
    config_.node.name = "node-a";
    config_.node.incarnation = {1, 1};
    config_.node.boot_id = BootId().value();
    config_.node.hostname = "host";
    config_.node.version = "0";
    config_.node.address = "127.0.0.1";
    config_.node.capacity = {4, 1 << 30, 0, ""};
    config_.dir = dir_;
    config_.runtime_dir = dir_ + "/run";
    config_.shim_program = JoinPath(bin, "lockstep-shim");
    config_.environment = {{"PATH", "/usr/bin:/bin"}};
    config_.port_ranges = {{20000, 32000}};
    config_.reconnect_first = 5ms;
    config_.reconnect_most = 20ms;
    ASSERT_TRUE(coordinator_.Start().ok());
    StartDaemon();
    ASSERT_TRUE(
        coordinator_.Eventually([&] { return !coordinator_.beats.empty(); }));
  }
  void TearDown() override {
    daemon_.reset();
    coordinator_.Stop();
    EXPECT_THAT(coordinator_.errors, IsEmpty());
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

  void StartDaemon() {
    daemon_.reset();
    daemon_ =
        std::make_unique<Daemon>(config_, coordinator_.address(), gpus_.get());
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
    a.grace = 300ms;
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
    const GangStatus status = Said(generation);
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
  GangStatus Said(Generation generation = 1) {
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
        << Said(generation).refusal.message;
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
  FakeCoordinator coordinator_;
  std::unique_ptr<GpuSampler> gpus_;  // Before the daemon, that reads it.
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(AgentTest, AProgramRunsAndItsExitAndOutputArrive) {
  Launch({"/bin/sh", "-c", "echo hi $RANK; echo bad >&2; exit 3"});
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  ASSERT_THAT(Said().ranks, SizeIs(1));
  const RankStatus rank = Said().ranks[0];
  ASSERT_TRUE(rank.exit.has_value());
  EXPECT_EQ(rank.exit->how, ExitStatus::How::kCode);
  EXPECT_EQ(rank.exit->value, 3);
  EXPECT_FALSE(rank.exit->victim);
  EXPECT_GT(rank.pid, 0);
  EXPECT_GT(rank.usage.seconds, 0);
  EXPECT_GT(rank.usage.memory_peak_bytes, 0);
  const std::string log = LogOf(0);
  EXPECT_THAT(log, HasSubstr(" stdout F hi 0\n"));
  EXPECT_THAT(log, HasSubstr(" stderr F bad\n"));
  // Forgotten: nothing is left here.
  coordinator_.Send(Order(Goal::kForget, {}));
  EXPECT_TRUE(coordinator_.Eventually(
      [&] { return RealFileSystem()->List(dir_ + "/tasks")->empty(); }));
}

TEST_F(AgentTest, AProgramThatIsNotHereIsRefusedWhilePreparing) {
  coordinator_.Send(Order(Goal::kPrepare, {"no-such-program-of-ours"}));
  ASSERT_TRUE(Reaches(GangPhase::kRefused));
  EXPECT_THAT(Said().refusal.message,
              HasSubstr("no-such-program-of-ours is not in PATH"));
  EXPECT_EQ(Said().refusal.reason, Reason::kPrepareRefused);
}

TEST_F(AgentTest, AnOutputDirectoryThatCannotBeWrittenIsRefused) {
  Assignment order = Order(Goal::kPrepare, {"sh"});
  order.spec->output_directory = "/proc/nothing";
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kRefused));
  EXPECT_THAT(Said().refusal.message, HasSubstr("/proc/nothing"));
}

TEST_F(AgentTest, WhatCannotBeExecutedSaysWhy) {
  const std::string tool = dir_ + "/tool";
  ASSERT_TRUE(
      RealFileSystem()->WriteAtomic(tool, "#!/no/such/shell\n", 0755).ok());
  Launch({tool});
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const ExitStatus exit = *Said().ranks[0].exit;
  EXPECT_EQ(exit.how, ExitStatus::How::kExecErrno);
  EXPECT_EQ(exit.value, ENOENT);
  EXPECT_THAT(exit.message, HasSubstr("interpreter"));
}

TEST_F(AgentTest, NativeRanksMeetJoinGoAndReport) {
  Launch({FakeRank(), "ok"}, JobKind::kNative, 2);
  ASSERT_TRUE(AllAre(RankState::kJoined));
  Assignment go = Order(Goal::kGo, {FakeRank(), "ok"}, JobKind::kNative, 2);
  coordinator_.Send(go);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const GangStatus said = Said();
  for (const RankStatus& rank : said.ranks) {
    ASSERT_TRUE(rank.exit.has_value());
    EXPECT_TRUE(rank.exit->ok()) << Describe(*rank.exit);
    // From its page, read after its end.
    EXPECT_EQ(rank.progress.committed_step, 7);
    EXPECT_EQ(rank.progress.samples, 640);
  }
  EXPECT_EQ(Said().checkpoint->path, "/out/checkpoint-7");
  EXPECT_EQ(Said().checkpoint->generation, 1u);
  EXPECT_EQ(Said().artifacts.at("model"), "/out/model");
  EXPECT_EQ(Said().resumed_step, 3);
  EXPECT_THAT(Said().events, SizeIs(2));
  EXPECT_THAT(LogOf(1), HasSubstr("got \"value of 0\""));
  EXPECT_THAT(LogOf(0), HasSubstr("got \"value of 1\""));
}

TEST_F(AgentTest, LastWordsOfARankAreInItsExit) {
  Launch({FakeRank(), "fail"}, JobKind::kNative);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const ExitStatus exit = *Said().ranks[0].exit;
  EXPECT_EQ(exit.message, "replicas differ");
  EXPECT_EQ(exit.reason, Reason::kDiverged);
}

TEST_F(AgentTest, StopAbortsNativeRanksOverTheirLink) {
  Launch({FakeRank(), "wait"}, JobKind::kNative, 2);
  ASSERT_TRUE(AllAre(RankState::kJoined));
  coordinator_.Send(
      Order(Goal::kGo, {FakeRank(), "wait"}, JobKind::kNative, 2));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return Peek().events.size() == 2; }));
  Assignment stop = Order(Goal::kStop, {});
  stop.grace = 20s;  // They go by themselves.
  coordinator_.Send(stop);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const GangStatus said = Said();
  for (const RankStatus& rank : said.ranks) {
    EXPECT_EQ(rank.exit->value, kPeerLostCode);
    EXPECT_TRUE(rank.exit->victim);
  }
  EXPECT_THAT(LogOf(0), HasSubstr("aborted: the test says so"));
}

TEST_F(AgentTest, WhoIgnoresSigtermIsKilledWithHisChildren) {
  Launch({"/bin/sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_EQ(Said().ranks[0].exit->how, ExitStatus::How::kSignal);
  EXPECT_TRUE(Said().ranks[0].exit->victim);
}

TEST_F(AgentTest, AHigherGenerationIsPreparedWhenTheLowerOneIsGone) {
  Launch({"/bin/sh", "-c", "exec sleep 1000"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  coordinator_.Send(Order(Goal::kPrepare, {"sh"}, JobKind::kProgram, 1, 2));
  ASSERT_TRUE(Reaches(GangPhase::kPrepared, 2));
  EXPECT_EQ(Said(1).phase, GangPhase::kStopped);
  EXPECT_TRUE(Said(1).ranks[0].exit.has_value());
}

TEST_F(AgentTest, StopOfSomethingUnknownIsAcknowledged) {
  coordinator_.Send(Order(Goal::kStop, {}));
  EXPECT_TRUE(Reaches(GangPhase::kStopped));
}

TEST_F(AgentTest, ALostStreamCostsNothingAndIsFollowedByAFullReport) {
  Launch({"/bin/sh", "-c", "exec sleep 1000"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const int64_t pid = Said().ranks[0].pid;
  coordinator_.Drop();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers == 2; }));
  ASSERT_THAT(Registered().gangs, SizeIs(1));
  EXPECT_EQ(Registered().gangs[0].ranks[0].pid, pid);
  EXPECT_EQ(Registered().gangs[0].phase, GangPhase::kLaunched);
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return daemon_->agent()->Ready().ok(); }));
  coordinator_.Send(Order(Goal::kStop, {}));
  EXPECT_TRUE(Reaches(GangPhase::kStopped));
}

TEST_F(AgentTest, ARankThatEndsWhileTheCoordinatorIsAwayIsReportedLater) {
  const std::string flag = dir_ + "/flag";
  Launch({"/bin/sh", "-c",
          "echo one; while [ ! -e " + flag +
              " ]; do sleep 0.01; done; "
              "echo two; exit 5"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  coordinator_.Stop();
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(flag, "").ok());
  ASSERT_TRUE(coordinator_.Start().ok());
  ASSERT_TRUE(coordinator_.Eventually([&] {
    const auto& gangs = coordinator_.registration.gangs;
    return Peek().phase == GangPhase::kStopped ||
           (gangs.size() == 1 && gangs[0].phase == GangPhase::kStopped);
  }));
  const std::string log = LogOf(0);
  EXPECT_THAT(log, HasSubstr("one"));
  EXPECT_THAT(log, HasSubstr("two"));
}

TEST_F(AgentTest, ARestartedDaemonAdoptsItsRanks) {
  Launch({FakeRank(), "wait"}, JobKind::kNative, 2);
  ASSERT_TRUE(AllAre(RankState::kJoined));
  const int64_t pid = Said().ranks[1].pid;
  config_.node.incarnation.counter = 2;
  StartDaemon();
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.registration.node.incarnation.counter == 2; }));
  ASSERT_THAT(Registered().gangs, SizeIs(1));
  const GangStatus adopted = Registered().gangs[0];
  EXPECT_EQ(adopted.phase, GangPhase::kLaunched);
  EXPECT_EQ(adopted.ranks[1].pid, pid);
  EXPECT_EQ(adopted.ports, Said().ports);
  // Its ranks have come back to the link and are let go.
  coordinator_.Send(
      Order(Goal::kGo, {FakeRank(), "wait"}, JobKind::kNative, 2));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return Peek().events.size() == 2; }));
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const GangStatus said = Said();
  for (const RankStatus& rank : said.ranks) {
    EXPECT_EQ(rank.exit->value, kPeerLostCode);
  }
  EXPECT_THAT(LogOf(0), HasSubstr("go\n"));
}

TEST_F(AgentTest, WhatEndedWhileNoDaemonRanIsInTheNextOnesFirstReport) {
  const std::string flag = dir_ + "/flag";
  Launch({"/bin/sh", "-c",
          "while [ ! -e " + flag + " ]; do sleep 0.01; done; exit 6"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const auto start = StartTime(static_cast<pid_t>(Said().ranks[0].pid));
  ASSERT_TRUE(start.ok());
  const auto rank =
      OpenVerified({static_cast<pid_t>(Said().ranks[0].pid), *start});
  ASSERT_TRUE(rank.ok());
  daemon_.reset();
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(flag, "").ok());
  (void)WaitExit(*rank, SystemClock().Now().mono + 10s);
  StartDaemon();
  ASSERT_TRUE(coordinator_.Eventually([&] {
    const auto& gangs = coordinator_.registration.gangs;
    const GangStatus* gang = Peek().phase == GangPhase::kStopped ? &Peek()
                             : gangs.size() == 1                 ? &gangs[0]
                                                                 : nullptr;
    return gang != nullptr && gang->phase == GangPhase::kStopped &&
           gang->ranks[0].exit->value == 6;
  }));
}

TEST_F(AgentTest, RanksThatCannotBeFoundAgainAreReportedDead) {
  Launch({"/bin/sh", "-c", "exit 0"}, JobKind::kProgram, 2);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const Assignment order =
      Order(Goal::kLaunch, {"/bin/sh"}, JobKind::kProgram, 2);
  daemon_.reset();
  // As if it had died right before it started them; of one there is a record
  // from before the host restarted.
  TaskStore store(RealFileSystem(), dir_);
  StoredGang gang;
  gang.assignment = order;
  gang.status = Said();
  gang.status.phase = GangPhase::kLaunched;
  for (RankStatus& rank : gang.status.ranks) {
    rank.state = RankState::kPrepared;
    rank.exit.reset();
  }
  ASSERT_TRUE(store.Save(gang).ok());
  const RankPaths first = store.PathsOf({"job", 1}, 0);
  const RankPaths second = store.PathsOf({"job", 1}, 1);
  auto record = ReadTaskRecord(second.task_record);
  ASSERT_TRUE(record.ok()) << record.status();
  record->boot_id = "another";
  ASSERT_TRUE(
      RealFileSystem()
          ->WriteAtomic(second.task_record, task::EncodeTaskRecord(*record))
          .ok());
  for (const std::string& path :
       {first.task_record, first.exit_record, second.exit_record}) {
    ASSERT_TRUE(RealFileSystem()->Remove(path).ok());
  }
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers == 2; }));
  const GangStatus found = Registered().gangs.at(0);
  EXPECT_EQ(found.phase, GangPhase::kStopped);
  EXPECT_THAT(found.ranks[0].exit->message, HasSubstr("before it was started"));
  EXPECT_THAT(found.ranks[1].exit->message, HasSubstr("its host restarted"));
  EXPECT_EQ(found.ranks[1].exit->how, ExitStatus::How::kSignal);
}

TEST_F(AgentTest, AKilledShimTakesItsRankWithIt) {
  const std::string child = dir_ + "/child";
  Launch({"/bin/sh", "-c",
          "sleep 1000 & echo $! > " + child + ".new; mv " + child + ".new " +
              child + "; exec sleep 1000"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return RealFileSystem()->Exists(child); }));
  const pid_t child_pid = atoi(RealFileSystem()->Read(child)->c_str());
  const auto child_start = StartTime(child_pid);
  ASSERT_TRUE(child_start.ok());
  const auto record = ReadTaskRecord(dir_ + "/tasks/job.g1/rank-0/task.record");
  ASSERT_TRUE(record.ok()) << record.status();
  const auto shim = OpenVerified({record->shim.pid, record->shim.start_time});
  ASSERT_TRUE(shim.ok());
  ASSERT_TRUE(SendSignal(*shim, SIGKILL).ok());
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_THAT(Said().ranks[0].exit->message, HasSubstr("lockstep-shim"));
  EXPECT_FALSE(Said().ranks[0].exit->ok());
  EXPECT_TRUE(coordinator_.Eventually([&] {
    return !OpenVerified({child_pid, *child_start}).ok();
  }));
}

TEST_F(AgentTest, HeartbeatsCarryProgressAndUse) {
  Launch({FakeRank(), "wait"}, JobKind::kNative);
  ASSERT_TRUE(AllAre(RankState::kJoined));
  ASSERT_TRUE(coordinator_.Eventually([&] {
    if (coordinator_.beats.empty()) return false;
    const NodeHeartbeat& beat = coordinator_.beats.back();
    return !beat.gangs.empty() &&
           beat.gangs[0].ranks[0].progress.committed_step == 7 &&
           beat.gangs[0].ranks[0].usage.memory_bytes > 0 &&
           beat.readings.memory_available_bytes > 0;
  }));
  coordinator_.Send(Order(Goal::kStop, {}));
  EXPECT_TRUE(Reaches(GangPhase::kStopped));
}

TEST_F(AgentTest, GpusOfferedAreInHeartbeatsAndTheirUseIsTheRanks) {
  FakeNvmlControl fake(2, "T4");
  fake.Write("set 1 utilization 40\n");
  GpuSamplerOptions options;
  options.library = LOCKSTEP_FAKE_NVML;
  options.period = 20ms;
  gpus_ = OpenGpusIfThere(options);
  ASSERT_NE(gpus_, nullptr);
  // The second alone.
  config_.node.gpus = {gpus_->gpus()[1]};
  config_.node.capacity.gpus = 1;
  StartDaemon();
  EXPECT_TRUE(coordinator_.Eventually([&] {
    const auto& gpus = coordinator_.beats.back().readings.gpus;
    return gpus.size() == 1 && gpus[0].index == 1 &&
           gpus[0].utilization == 0.4 && gpus[0].power_watts == 70.5;
  }));
  // The sampler goes before what it reads.
  daemon_.reset();
  gpus_.reset();
}

TEST_F(AgentTest, MetricsShowHostAndTasks) {
  Launch({"/bin/sh", "-c", "exit 0"});
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  bool task = false;
  ASSERT_TRUE(coordinator_.Eventually([&] {
    for (const auto& family : daemon_->agent()->metrics()->Collect()) {
      task = task || family.name == "lockstep_task_cpu_seconds_total";
    }
    return task;
  }));
}

TEST_F(AgentTest, ALaterDaemonOfTheNodeEndsThisOne) {
  coordinator_.Refuse(grpc::Status(grpc::ABORTED, "a later one registered"));
  coordinator_.Drop();
  const Status fatal = daemon_->Wait();
  EXPECT_EQ(fatal.code(), StatusCode::kAborted);
  EXPECT_THAT(Message(fatal), HasSubstr("another daemon speaks for node"));
}

TEST_F(AgentTest, ARefusalThatMayPassIsTriedAgain) {
  coordinator_.Refuse(grpc::Status(grpc::UNAVAILABLE, "starting"));
  coordinator_.Drop();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers >= 4; }));
  EXPECT_FALSE(daemon_->agent()->Ready().ok());
  coordinator_.Refuse(grpc::Status::OK);
  const size_t beats =
      coordinator_.Locked([&] { return coordinator_.beats.size(); });
  EXPECT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.beats.size() > beats; }));
}

// ---- Nothing is lost, nothing is left --------------------------------------

// Listens on `port` of loopback as servers do; nothing where it cannot.
Fd ListenOn(int32_t port, bool reuse) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (reuse) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
          0 ||
      listen(fd.get(), 1) != 0) {
    return Fd();
  }
  return fd;
}

TEST_F(AgentTest, PortsStayLeasedWithoutADaemonUntilTheTaskEnds) {
  Launch({"/bin/sh", "-c", "exec sleep 1000"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const GangStatus said = Said();
  for (const int32_t port : {said.ports.at(0), said.master_port}) {
    EXPECT_FALSE(ListenOn(port, /*reuse=*/false));
    daemon_.reset();
    EXPECT_FALSE(ListenOn(port, /*reuse=*/false));
    EXPECT_EQ(PortLease::Adopt(port).status().code(),
              StatusCode::kAlreadyExists);
    StartDaemon();
    ASSERT_TRUE(coordinator_.Eventually(
        [&] { return daemon_->agent()->Ready().ok(); }));
  }
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  // The shim leaves once its word was taken.
  EXPECT_TRUE(coordinator_.Eventually(
      [&] { return PortLease::Take(said.ports[0]).ok(); }));
}

TEST_F(AgentTest, APortThatAStrangerTookIsWhyARankFailed) {
  const auto argv = std::vector<std::string>{"/bin/sh", "-c", "exit 1"};
  coordinator_.Send(Order(Goal::kPrepare, argv));
  ASSERT_TRUE(Reaches(GangPhase::kPrepared));
  const int32_t port = Said().ports.at(0);
  const Fd stranger = ListenOn(port, /*reuse=*/true);
  ASSERT_TRUE(stranger);
  coordinator_.Send(Order(Goal::kLaunch, argv));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_THAT(Said().ranks[0].exit->message,
              HasSubstr(fmt::format("port {}, which was leased", port)));
}

TEST_F(AgentTest, AFullDiskRefusesWhatMayBeTriedAgain) {
  auto space = std::make_shared<std::atomic<uint64_t>>(1 << 20);
  config_.disk_space = [space](const std::string&) -> StatusOr<DiskSpace> {
    return DiskSpace{uint64_t{1} << 40, space->load()};
  };
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers == 2; }));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return daemon_->agent()->Ready().ok(); }));
  coordinator_.Send(Order(Goal::kPrepare, {"sh"}));
  ASSERT_TRUE(Reaches(GangPhase::kRefused));
  EXPECT_EQ(Said().refusal.reason, Reason::kNoCapacity);
  EXPECT_THAT(Said().refusal.message, HasSubstr("nearly full"));
  *space = uint64_t{2} << 30;
  coordinator_.Send(Order(Goal::kPrepare, {"sh"}, JobKind::kProgram, 1, 2));
  EXPECT_TRUE(Reaches(GangPhase::kPrepared, 2));
}

TEST_F(AgentTest, ACoordinatorOfThePastIsNotObeyedAfterARestartEither) {
  const std::string path = dir_ + "/epoch";
  EXPECT_EQ(*RealFileSystem()->Read(path), "1\n");
  daemon_.reset();
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path, "7\n").ok());
  const size_t beats =
      coordinator_.Locked([&] { return coordinator_.beats.size(); });
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers >= 4; }));
  const Status ready = daemon_->agent()->Ready();
  EXPECT_EQ(ready.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(ready),
              HasSubstr("of epoch 1, and this node has obeyed epoch 7"));
  EXPECT_THAT(Message(ready), HasSubstr("remove " + path));
  EXPECT_EQ(coordinator_.Locked([&] { return coordinator_.beats.size(); }),
            beats);
  // The way out.
  daemon_.reset();
  ASSERT_TRUE(RealFileSystem()->Remove(path).ok());
  StartDaemon();
  EXPECT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.beats.size() > beats; }));
  EXPECT_EQ(*RealFileSystem()->Read(path), "1\n");
}

TEST_F(AgentTest, AShimThatIsBeingStartedIsWaitedForAndNotTakenForDead) {
  Launch({"/bin/sh", "-c", "exit 0"});
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const Assignment order = Order(Goal::kLaunch, {"/bin/sh"});
  daemon_.reset();
  // As if the daemon had died between spawn and the shim's first record.
  TaskStore store(RealFileSystem(), dir_);
  StoredGang gang;
  gang.assignment = order;
  gang.status = Said();
  gang.status.phase = GangPhase::kLaunched;
  gang.status.ranks[0].state = RankState::kPrepared;
  gang.status.ranks[0].exit.reset();
  ASSERT_TRUE(store.Save(gang).ok());
  const RankPaths paths = store.PathsOf({"job", 1}, 0);
  const std::string exit = *RealFileSystem()->Read(paths.exit_record);
  ASSERT_TRUE(RealFileSystem()->Remove(paths.exit_record).ok());
  ASSERT_TRUE(RealFileSystem()->Remove(paths.task_record).ok());
  Fd shim(open(paths.lock.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(shim.get(), LOCK_EX), 0);  // The first one leaves.
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers == 2; }));
  EXPECT_EQ(Registered().gangs.at(0).phase, GangPhase::kLaunched);
  // It comes, and goes, with a record.
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(paths.exit_record, exit).ok());
  shim.Reset();
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_TRUE(Said().ranks[0].exit->ok());
}

TEST_F(AgentTest, WhatADeadShimsRankHadStartedIsFoundAtTheNextStart) {
  const std::string child = dir_ + "/child";
  // In a session of its own, and an orphan.
  Launch({"/bin/sh", "-c",
          "setsid sh -c 'echo $$ > " + child + ".new; mv " + child + ".new " +
              child + "; exec sleep 1000' & exec sleep 1000"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return RealFileSystem()->Exists(child); }));
  const pid_t pid = atoi(RealFileSystem()->Read(child)->c_str());
  const auto start = StartTime(pid);
  ASSERT_TRUE(start.ok());
  const auto record = ReadTaskRecord(dir_ + "/tasks/job.g1/rank-0/task.record");
  ASSERT_TRUE(record.ok()) << record.status();
  const auto shim = OpenVerified({record->shim.pid, record->shim.start_time});
  ASSERT_TRUE(shim.ok());
  daemon_.reset();
  ASSERT_TRUE(SendSignal(*shim, SIGKILL).ok());
  (void)WaitExit(*shim, SystemClock().Now().mono + 10s);
  // Even its record is gone.
  ASSERT_TRUE(
      RealFileSystem()->Remove(dir_ + "/tasks/job.g1/rank-0/task.record").ok());
  EXPECT_TRUE(OpenVerified({pid, *start}).ok());
  StartDaemon();
  EXPECT_TRUE(coordinator_.Eventually([&] {
    return !OpenVerified({pid, *start}).ok();
  }));
}

// A directory in place of cgroupfs.
class DirectoryCgroups final : public CgroupFiles {
 public:
  StatusOr<std::string> Read(const std::string& path) override {
    return RealFileSystem()->Read(path);
  }
  Status Write(const std::string& path, std::string_view text) override {
    if (path.ends_with("/cgroup.kill")) ++kills;
    return RealFileSystem()->WriteAtomic(path, text, 0666);
  }
  Status MakeDir(const std::string& path) override {
    LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(path));
    for (const char* name :
         {"cgroup.procs", "cgroup.kill", "memory.events", "cpu.stat"}) {
      LOCKSTEP_RETURN_IF_ERROR(
          RealFileSystem()->WriteAtomic(JoinPath(path, name), "", 0666));
    }
    return OkStatus();
  }
  Status RemoveDir(const std::string& path) override {
    if (!RealFileSystem()->Exists(path)) return NotFound("{}", path);
    // As while the dead leave it.
    if (++removals == 1) return FailedPrecondition("{} is busy", path);
    return RealFileSystem()->RemoveAll(path);
  }
  std::atomic<int> kills{0};
  std::atomic<int> removals{0};
};

TEST_F(AgentTest, ARankInACgroupOfItsOwnIsKnownToHaveRunOutOfMemory) {
  DirectoryCgroups cgroups;
  const std::string mount = dir_ + "/cg";
  ASSERT_TRUE(cgroups.MakeDir(mount + "/a").ok());
  ASSERT_TRUE(
      cgroups.Write(mount + "/a/cgroup.controllers", "cpu memory").ok());
  auto tree = CgroupTree::Open(&cgroups, mount, {"0::/a\n", getpid(), false});
  ASSERT_TRUE(tree.ok()) << tree.status();
  config_.cgroups = tree->get();
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers == 2; }));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return daemon_->agent()->Ready().ok(); }));
  // As the kernel would: it counts, and kills.
  Launch({"/bin/sh", "-c",
          "cd " + mount +
              "/a/rank-*; cat cgroup.procs; echo; "
              "echo 'oom_kill 1' > memory.events; kill -9 $$"});
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const ExitStatus exit = *Said().ranks[0].exit;
  EXPECT_TRUE(exit.out_of_memory) << Describe(exit);
  EXPECT_THAT(exit.message, HasSubstr("more memory than the task asked for"));
  EXPECT_THAT(LogOf(0), HasSubstr(" stdout F 0\n"));
  EXPECT_GE(cgroups.kills, 1);
  // Removed, once nothing is in it.
  EXPECT_TRUE(coordinator_.Eventually([&] {
    const auto names = RealFileSystem()->List(mount + "/a");
    return names.ok() && std::none_of(names->begin(), names->end(),
                                      [](const std::string& name) {
                                        return name.starts_with("rank-");
                                      });
  }));
  daemon_.reset();  // It borrows them.
}

TEST(LogShareTest, RanksShareWhatTheNodeMayKeep) {
  constexpr uint64_t kMiB = 1 << 20;
  EXPECT_EQ(ShareOfLogs(8192 * kMiB, 1).head, 16 * kMiB);
  EXPECT_EQ(ShareOfLogs(8192 * kMiB, 1).tail, 64 * kMiB);
  const LogShare many = ShareOfLogs(8192 * kMiB, 400);
  EXPECT_LE(400 * (many.head + many.tail), 8192 * kMiB);
  // Never nothing.
  EXPECT_GE(ShareOfLogs(0, 0).tail, 4 * kMiB);
}

TEST(AgentCreateTest, ARuntimeDirectoryThatNoSocketFitsIsRefused) {
  SystemClock clock;
  const auto loop = EventLoop::Create(&clock);
  ASSERT_TRUE(loop.ok());
  AgentConfig config;
  config.runtime_dir = "/tmp/" + std::string(90, 'x');
  const auto agent =
      Agent::Create(config, loop->get(), RealFileSystem(), nullptr);
  EXPECT_EQ(agent.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(agent.status()), HasSubstr("--runtime_dir"));
}

}  // namespace
}  // namespace lockstep
