// The end of ranks: their last words, what they used and left, and one that is
// started again alone.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <optional>

#include "common/base/fd.h"
#include "worker/agent/agent_fixture.h"
#include "worker/devices/fake_nvml_control.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class AgentEndTest : public AgentTest {
 protected:
  // The exit of a rank whose program is this script.
  ExitStatus ExitOf(const std::string& script) {
    Launch({"/bin/sh", "-c", script});
    EXPECT_TRUE(Reaches(GangPhase::kStopped));
    return Reported().ranks.at(0).exit.value_or(ExitStatus());
  }
};

TEST_F(AgentEndTest, TheLastExceptionIsInTheExit) {
  const ExitStatus exit = ExitOf(
      "echo 'Traceback (most recent call last):' >&2; echo '  File' >&2;"
      "echo 'ValueError: no such layer' >&2; exit 1");
  EXPECT_EQ(exit.value, 1);
  EXPECT_EQ(exit.message, "ValueError: no such layer");
}

TEST_F(AgentEndTest, TorchsErrorFileCountsMoreThanTheLog) {
  const ExitStatus exit = ExitOf(
      "echo 'KeyError: 1' >&2; echo '{\"message\": {\"message\": "
      "\"RuntimeError: boom\"}}' > $TORCHELASTIC_ERROR_FILE; exit 1");
  EXPECT_EQ(exit.message, "RuntimeError: boom");
}

// One of its shapes has no callstack, and the log has the class's package.
TEST_F(AgentEndTest, WhereItWasRaisedIsOfTheLogWhereTheErrorFileDoesNotSay) {
  const ExitStatus exit = ExitOf(
      "echo 'Traceback (most recent call last):' >&2;"
      "echo '  File \"/srv/train.py\", line 12, in main' >&2;"
      "echo 'my.own.BadError: boom' >&2;"
      "echo '{\"message\": \"BadError: boom\"}' > $TORCHELASTIC_ERROR_FILE;"
      "exit 1");
  EXPECT_EQ(exit.message, "BadError: boom");
  EXPECT_EQ(exit.location, "train.py:12");
}

TEST_F(AgentEndTest, WhoAbortsIsDescribedByItsFatalLine) {
  const ExitStatus exit = ExitOf(
      "echo 'F1123 12:00:00.000000 7 client.h:99] Terminating process' >&2;"
      "kill -ABRT $$");
  EXPECT_EQ(exit.how, ExitStatus::How::kSignal);
  EXPECT_EQ(exit.message, "Terminating process");
  EXPECT_EQ(exit.location, "client.h:99");
}

TEST_F(AgentEndTest, AnErrorFileThatIsALinkIsNotRead) {
  const std::string secret = dir_ + "/secret";
  ASSERT_TRUE(
      RealFileSystem()->WriteAtomic(secret, R"({"message": "secret"})").ok());
  const ExitStatus exit =
      ExitOf("ln -s " + secret + " $TORCHELASTIC_ERROR_FILE; exit 1");
  EXPECT_EQ(exit.message, "");
}

TEST_F(AgentEndTest, WhoIsKilledFromOutsideHasNoLastWords) {
  const ExitStatus exit = ExitOf("echo 'KeyError: 1' >&2; kill -9 $$");
  EXPECT_EQ(exit.how, ExitStatus::How::kSignal);
  EXPECT_THAT(exit.message, Not(HasSubstr("KeyError")));
}

TEST_F(AgentEndTest, AStoppedRankEndsBecauseItWasStopped) {
  Launch({"/bin/sh", "-c",
          "trap \"echo 'KeyError: 1' >&2; exit 1\" TERM; echo ready;"
          "while :; do sleep 0.01; done"});
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return coordinator_.logs[{{"job", 1}, 0}].bytes.find("ready") !=
           std::string::npos;
  }));
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_EQ(Reported().ranks[0].exit->message, "stopped: the test says so");
}

TEST_F(AgentEndTest, PeaksAreThoseOfTheWholeTreeAndOfShortTasksToo) {
  // Some 50 ms of work in a child of a child.
  ExitOf("sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; exit 0");
  const Usage usage = Reported().ranks[0].usage;
  ASSERT_TRUE(usage.cpu_peak_cores.has_value());
  EXPECT_GT(*usage.cpu_peak_cores, 0.01);
  EXPECT_LT(*usage.cpu_peak_cores, 16);
  EXPECT_FALSE(usage.gpu_utilization_peak.has_value());
}

TEST_F(AgentEndTest, PeaksOfARanksGpusAreItsOwn) {
  devices::FakeNvmlControl fake(2, "T4");
  fake.Write("set 1 utilization 80\n");
  devices::GpuSamplerOptions options;
  options.library = LOCKSTEP_FAKE_NVML;
  options.period = std::chrono::milliseconds(20);
  gpus_ = OpenGpusIfThere(options);
  ASSERT_NE(gpus_, nullptr);
  config_.daemon.node.gpus = gpus_->gpus();
  config_.daemon.node.capacity.gpus = 2;
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers >= 2; }));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return daemon_->agent()->Ready().ok(); }));
  const std::vector<std::string> argv = {"/bin/sh", "-c", "exec sleep 1000"};
  for (const Goal goal : {Goal::kPrepare, Goal::kLaunch}) {
    Assignment order = Order(goal, argv);
    order.spec->tasks[0].gpus = {1};
    order.spec->tasks[0].ranks[0].gpus = {1};
    if (order.cluster) order.cluster->tasks[0].ranks[0].gpus = {1};
    coordinator_.Send(order);
    ASSERT_TRUE(Reaches(goal == Goal::kPrepare ? GangPhase::kPrepared
                                               : GangPhase::kLaunched))
        << Reported().refusal.message;
  }
  EXPECT_TRUE(coordinator_.Eventually([&] {
    const NodeHeartbeat& beat = coordinator_.beats.back();
    if (beat.gangs.empty()) return false;
    const Usage& usage = beat.gangs[0].ranks[0].usage;
    return usage.gpu_utilization_peak == 0.8 &&
           usage.gpu_memory_peak_bytes.has_value();
  }));
  fake.Write("set 1 utilization 10\n");
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_EQ(Reported().ranks[0].usage.gpu_utilization_peak, 0.8);
  daemon_.reset();  // The sampler goes before what it reads.
  gpus_.reset();
}

TEST_F(AgentEndTest, WhatTheJobLeftIsToldWithItsEnd) {
  const std::string out = dir_ + "/out/deep";
  const std::vector<std::string> argv = {
      "/bin/sh", "-c",
      "cd $LOCKSTEP_OUTPUT_DIRECTORY; echo model > model.keras; mkdir tb;"
      "echo > tb/events.out.tfevents.1"};
  Assignment order = Order(Goal::kPrepare, argv);
  order.spec->output_directory = out;
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared)) << Reported().refusal.message;
  // Made before the program runs, for the user that it runs as.
  struct stat info {};
  ASSERT_EQ(stat(out.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, geteuid());
  order = Order(Goal::kLaunch, argv);
  order.spec->output_directory = out;
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_THAT(Reported().outputs,
              ElementsAre(OutputFile{"model.keras", "keras", 6},
                          OutputFile{"tb", "tensorboard", 1}));
  // And by the next daemon.
  config_.daemon.node.incarnation.counter = 2;
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers >= 2; }));
  EXPECT_EQ(Registered().gangs.at(0).outputs.size(), 2u);
}

TEST_F(AgentEndTest, WhatAFailedJobLeftIsToldToo) {
  const std::string out = dir_ + "/out";
  const std::vector<std::string> argv = {"/bin/sh", "-c",
                                         "echo > " + out + "/m.pt; exit 1"};
  for (const Goal goal : {Goal::kPrepare, Goal::kLaunch}) {
    Assignment order = Order(goal, argv);
    order.spec->output_directory = out;
    coordinator_.Send(order);
    ASSERT_TRUE(Reaches(goal == Goal::kPrepare ? GangPhase::kPrepared
                                               : GangPhase::kStopped));
  }
  EXPECT_TRUE(coordinator_.Eventually([&] {
    return Peek().outputs == std::vector<OutputFile>{{"m.pt", "torch", 1}};
  }));
}

// A chief that runs on, and a worker that `script` is for.
class RestartAloneTest : public AgentTest {
 protected:
  Assignment Orders(Goal goal, const std::string& script, int32_t restarts,
                    bool with_chief = true) {
    Assignment a = Order(goal, {"/bin/sh", "-c", "exec sleep 1000"});
    LocalTask worker = a.spec->tasks[0];
    worker.type = TaskType::kWorker;
    worker.argv = {"/bin/sh", "-c", script};
    worker.ranks = {{1, 0, {}, 0}};
    worker.restarts = restarts;
    a.spec->restart_count = 4;
    if (!with_chief) a.spec->tasks.clear();
    a.spec->tasks.push_back(worker);
    if (!a.cluster) return a;
    const GangStatus status = Reported();
    a.cluster->world_size = 2;
    a.cluster->tasks[0].node = with_chief ? "node-a" : "node-b";
    a.cluster->tasks.push_back(
        {TaskType::kWorker, 0, "node-a",
         fmt::format("127.0.0.1:{}", status.ports.at(with_chief ? 1 : 0)),
         worker.ranks});
    return a;
  }
  void LaunchBoth(const std::string& script, bool with_chief = true) {
    coordinator_.Send(Orders(Goal::kPrepare, script, 0, with_chief));
    ASSERT_TRUE(Reaches(GangPhase::kPrepared)) << Reported().refusal.message;
    coordinator_.Send(Orders(Goal::kLaunch, script, 0, with_chief));
  }
  // Of the worker, which is the last one.
  bool WorkerIs(RankState state, int32_t restarts) {
    return coordinator_.Eventually([&] {
      return !Peek().ranks.empty() && Peek().ranks.back().state == state &&
             Peek().ranks.back().restarts == restarts;
    });
  }
};

constexpr char kSaysAndFails[] =
    "echo n $TORCHELASTIC_RESTART_COUNT $RANK $TF_CONFIG; exit 3";

TEST_F(RestartAloneTest, AWorkerIsStartedAgainInItsPlaceAndItsLogGoesOn) {
  LaunchBoth(kSaysAndFails);
  ASSERT_TRUE(WorkerIs(RankState::kExited, 0));
  // The two start side by side.
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return Peek().ranks[0].state == RankState::kStarted; }));
  const int64_t chief = Reported().ranks[0].pid;
  const std::vector<int32_t> ports = Reported().ports;
  // Its log has ended, and is told to have.
  EXPECT_THAT(LogOf(1), HasSubstr(" F n 4 1 "));
  for (const int32_t restarts : {1, 2}) {
    coordinator_.Send(Orders(Goal::kLaunch, kSaysAndFails, restarts));
    coordinator_.Send(Orders(Goal::kLaunch, kSaysAndFails, restarts));
    ASSERT_TRUE(WorkerIs(RankState::kExited, restarts));
  }
  EXPECT_EQ(Reported().ranks[0].pid, chief);
  EXPECT_EQ(Reported().ranks[0].state, RankState::kStarted);
  EXPECT_EQ(Reported().ports, ports);
  EXPECT_EQ(Reported().ranks[1].exit->value, 3);
  ASSERT_TRUE(coordinator_.Eventually([&] {
    const auto& log = coordinator_.logs[{{"job", 1}, 1}];
    return log.end && log.bytes.find(" F n 6 1 ") != std::string::npos;
  }));
  const std::string log = LogOf(1);
  EXPECT_THAT(log, HasSubstr(" F n 4 1 "));
  EXPECT_THAT(log, HasSubstr(" F n 5 1 "));
  // The same identity each time.
  EXPECT_EQ(log.find(" F n 6 1 ", log.find(" F n 6 1 ") + 1),
            std::string::npos);
  const std::string address = fmt::format("127.0.0.1:{}", ports.at(1));
  size_t found = 0;
  for (size_t at = 0; (at = log.find(address, at)) != std::string::npos; ++at) {
    ++found;
  }
  EXPECT_EQ(found, 3u);
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

TEST_F(RestartAloneTest, AWorkerAloneOnItsNodeComesBackOnItsPort) {
  LaunchBoth(kSaysAndFails, /*with_chief=*/false);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const std::vector<int32_t> ports = Reported().ports;
  coordinator_.Send(
      Orders(Goal::kLaunch, "exec sleep 1000", 1, /*with_chief=*/false));
  ASSERT_TRUE(WorkerIs(RankState::kStarted, 1));
  EXPECT_EQ(Reported().phase, GangPhase::kLaunched);
  EXPECT_EQ(Reported().ports, ports);
  // The port is leased again.
  EXPECT_EQ(PortLease::Take(ports.at(0)).status().code(),
            StatusCode::kAlreadyExists);
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

TEST_F(RestartAloneTest, ARestartedDaemonKnowsTheNumber) {
  LaunchBoth(kSaysAndFails);
  ASSERT_TRUE(WorkerIs(RankState::kExited, 0));
  coordinator_.Send(Orders(Goal::kLaunch, "exec sleep 1000", 1));
  ASSERT_TRUE(WorkerIs(RankState::kStarted, 1));
  const int64_t pid = Reported().ranks[1].pid;
  config_.daemon.node.incarnation.counter = 2;
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers >= 2; }));
  const GangStatus adopted = Registered().gangs.at(0);
  EXPECT_EQ(adopted.ranks[1].restarts, 1);
  EXPECT_EQ(adopted.ranks[1].pid, pid);
  EXPECT_EQ(adopted.ranks[1].state, RankState::kStarted);
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return daemon_->agent()->Ready().ok(); }));
  // The order comes again, and one more after it.
  coordinator_.Send(Orders(Goal::kLaunch, "exec sleep 1000", 1));
  coordinator_.Send(Orders(Goal::kLaunch, "exit 0", 2));
  ASSERT_TRUE(WorkerIs(RankState::kExited, 2));
  EXPECT_TRUE(Reported().ranks[1].exit->ok())
      << Describe(*Reported().ranks[1].exit);
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

// The stored report of the first end must not come back with the second run.
TEST_F(RestartAloneTest, WhatTheFirstRunLeftIsNotReportedOfTheSecond) {
  LaunchBoth("echo x > file; exit 3", /*with_chief=*/false);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  ASSERT_TRUE(coordinator_.Eventually([&] { return !Peek().work.empty(); }));
  config_.daemon.node.incarnation.counter = 2;
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers >= 2; }));
  EXPECT_FALSE(Registered().gangs.at(0).work.empty());
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return daemon_->agent()->Ready().ok(); }));
  coordinator_.Send(
      Orders(Goal::kLaunch, "exec sleep 1000", 1, /*with_chief=*/false));
  ASSERT_TRUE(WorkerIs(RankState::kStarted, 1));
  EXPECT_TRUE(Reported().work.empty());
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

TEST_F(RestartAloneTest, AStopWhileTheOldShimIsStillThereEndsIt) {
  LaunchBoth(kSaysAndFails);
  ASSERT_TRUE(WorkerIs(RankState::kExited, 0));
  const std::string lock = dir_ + "/tasks/job.g1/rank-1/lock";
  const Fd shim(open(lock.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(shim.get(), LOCK_EX), 0);  // The first one leaves.
  coordinator_.Send(Orders(Goal::kLaunch, kSaysAndFails, 1));
  ASSERT_TRUE(WorkerIs(RankState::kPrepared, 1));
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_THAT(Reported().ranks[1].exit->message,
              HasSubstr("stopped before its restart"));
}

TEST_F(RestartAloneTest, AnOldShimThatNeverLeavesIsNotWaitedForForEver) {
  config_.ranks.shim_leave_time = std::chrono::milliseconds(300);
  StartAgain();
  LaunchBoth(kSaysAndFails);
  ASSERT_TRUE(WorkerIs(RankState::kExited, 0));
  const std::string lock = dir_ + "/tasks/job.g1/rank-1/lock";
  const Fd shim(open(lock.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(shim.get(), LOCK_EX), 0);  // The first one leaves.
  coordinator_.Send(Orders(Goal::kLaunch, kSaysAndFails, 1));
  ASSERT_TRUE(WorkerIs(RankState::kExited, 1));
  EXPECT_THAT(Reported().ranks[1].exit->message,
              HasSubstr("its previous shim does not exit"));
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

TEST_F(RestartAloneTest, APortThatWasLostMeanwhileIsSaid) {
  config_.ranks.shim_leave_time = std::chrono::milliseconds(300);
  StartAgain();
  LaunchBoth(kSaysAndFails, /*with_chief=*/false);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  // Another worker of this host has it now.
  std::optional<PortLease> other;
  ASSERT_TRUE(coordinator_.Eventually([&] {
    auto lease = PortLease::Take(Peek().ports.at(0));
    if (lease.ok()) other.emplace(*std::move(lease));
    return other.has_value();
  }));
  coordinator_.Send(
      Orders(Goal::kLaunch, "exec sleep 1000", 1, /*with_chief=*/false));
  ASSERT_TRUE(WorkerIs(RankState::kExited, 1));
  EXPECT_THAT(Reported().ranks[0].exit->message,
              HasSubstr("another worker of this host holds a port"));
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

}  // namespace
}  // namespace lockstep::worker::agent
