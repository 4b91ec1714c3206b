// The worker daemon: its life with gangs, and what it finds again.
#include "worker/agent/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "common/os/process.h"
#include "common/rpc/status_conversion.h"
#include "worker/agent/agent_fixture.h"
#include "worker/agent/fake_coordinator.h"
#include "worker/devices/fake_nvml_control.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;

TEST_F(AgentTest, AProgramRunsAndItsExitAndOutputArrive) {
  Launch({"/bin/sh", "-c", "echo hi $RANK; echo bad >&2; exit 3"});
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  ASSERT_THAT(Reported().ranks, SizeIs(1));
  const RankStatus rank = Reported().ranks[0];
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
  EXPECT_THAT(Reported().refusal.message,
              HasSubstr("no-such-program-of-ours is not in PATH"));
  EXPECT_EQ(Reported().refusal.reason, Reason::kPrepareRefused);
}

TEST_F(AgentTest, AnOutputDirectoryThatCannotBeWrittenIsRefused) {
  Assignment order = Order(Goal::kPrepare, {"sh"});
  order.spec->output_directory = "/proc/nothing";
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kRefused));
  EXPECT_THAT(Reported().refusal.message, HasSubstr("/proc/nothing"));
}

TEST_F(AgentTest, WhatCannotBeExecutedSaysWhy) {
  const std::string tool = dir_ + "/tool";
  ASSERT_TRUE(
      RealFileSystem()->WriteAtomic(tool, "#!/no/such/shell\n", 0755).ok());
  Launch({tool});
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const ExitStatus exit = *Reported().ranks[0].exit;
  EXPECT_EQ(exit.how, ExitStatus::How::kExecErrno);
  EXPECT_EQ(exit.value, ENOENT);
  EXPECT_THAT(exit.message, HasSubstr("interpreter"));
}

TEST_F(AgentTest, WhoIgnoresSigtermIsKilledWithHisChildren) {
  Launch({"/bin/sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_EQ(Reported().ranks[0].exit->how, ExitStatus::How::kSignal);
  EXPECT_TRUE(Reported().ranks[0].exit->victim);
}

TEST_F(AgentTest, AHigherGenerationIsPreparedWhenTheLowerOneIsGone) {
  Launch({"/bin/sh", "-c", "exec sleep 1000"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  coordinator_.Send(Order(Goal::kPrepare, {"sh"}, JobKind::kProgram, 1, 2));
  ASSERT_TRUE(Reaches(GangPhase::kPrepared, 2));
  EXPECT_EQ(Reported(1).phase, GangPhase::kStopped);
  EXPECT_TRUE(Reported(1).ranks[0].exit.has_value());
}

TEST_F(AgentTest, StopOfSomethingUnknownIsAcknowledged) {
  coordinator_.Send(Order(Goal::kStop, {}));
  EXPECT_TRUE(Reaches(GangPhase::kStopped));
}

TEST_F(AgentTest, ALostStreamCostsNothingAndIsFollowedByAFullReport) {
  Launch({"/bin/sh", "-c", "exec sleep 1000"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const int64_t pid = Reported().ranks[0].pid;
  coordinator_.Drop();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers >= 2; }));
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
  const int64_t pid = Reported().ranks[1].pid;
  config_.daemon.node.incarnation.counter = 2;
  StartDaemon();
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.registration.node.incarnation.counter == 2; }));
  ASSERT_THAT(Registered().gangs, SizeIs(1));
  const GangStatus adopted = Registered().gangs[0];
  EXPECT_EQ(adopted.phase, GangPhase::kLaunched);
  EXPECT_EQ(adopted.ranks[1].pid, pid);
  EXPECT_EQ(adopted.ports, Reported().ports);
  // Its ranks have come back to the link and are let go.
  coordinator_.Send(
      Order(Goal::kGo, {FakeRank(), "wait"}, JobKind::kNative, 2));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return Peek().events.size() == 2; }));
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const GangStatus said = Reported();
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
  const auto start = StartTime(static_cast<pid_t>(Reported().ranks[0].pid));
  ASSERT_TRUE(start.ok());
  const auto rank =
      OpenVerified({static_cast<pid_t>(Reported().ranks[0].pid), *start});
  ASSERT_TRUE(rank.ok());
  daemon_.reset();
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(flag, "").ok());
  (void)WaitExit(*rank, MonotonicNow() + 10s);
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
  gang.status = Reported();
  gang.status.phase = GangPhase::kLaunched;
  for (RankStatus& rank : gang.status.ranks) {
    rank.state = RankState::kPrepared;
    rank.exit.reset();
  }
  ASSERT_TRUE(store.Save(gang).ok());
  const RankPaths first = store.PathsOf({"job", 1}, 0);
  const RankPaths second = store.PathsOf({"job", 1}, 1);
  auto record = shim::ReadTaskRecord(second.task_record);
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
      coordinator_.Eventually([&] { return coordinator_.registers >= 2; }));
  const GangStatus found = Registered().gangs.at(0);
  EXPECT_EQ(found.phase, GangPhase::kStopped);
  EXPECT_THAT(found.ranks[0].exit->message,
              HasSubstr("before it started this rank"));
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
  const auto record =
      shim::ReadTaskRecord(dir_ + "/tasks/job.g1/rank-0/task.record");
  ASSERT_TRUE(record.ok()) << record.status();
  const auto shim = OpenVerified({record->shim.pid, record->shim.start_time});
  ASSERT_TRUE(shim.ok());
  ASSERT_TRUE(SendSignal(*shim, SIGKILL).ok());
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_THAT(Reported().ranks[0].exit->message, HasSubstr("lockstep-shim"));
  EXPECT_FALSE(Reported().ranks[0].exit->ok());
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

TEST_F(AgentTest, HeartbeatsSayHowLongTheLastAnswerTook) {
  Duration took{};
  ASSERT_TRUE(coordinator_.Eventually([&] {
    if (coordinator_.beats.empty()) return false;
    const auto& said = coordinator_.beats.back().readings.round_trip;
    took = said.value_or(Duration(0));
    return said.has_value();
  }));
  EXPECT_GT(took, 0s);
  EXPECT_LT(took, 20s);
  coordinator_.Locked([&] {
    EXPECT_EQ(coordinator_.beats[0].readings.round_trip, std::nullopt)
        << "nothing was answered before the first";
  });
}

TEST_F(AgentTest, GpusOfferedAreInHeartbeatsAndTheirUseIsTheRanks) {
  devices::FakeNvmlControl fake(2, "T4");
  fake.Write("set 1 utilization 40\n");
  devices::GpuSamplerOptions options;
  options.library = LOCKSTEP_FAKE_NVML;
  options.period = 20ms;
  gpus_ = OpenGpusIfThere(options);
  ASSERT_NE(gpus_, nullptr);
  // The second alone.
  config_.daemon.node.gpus = {gpus_->gpus()[1]};
  config_.daemon.node.capacity.gpus = 1;
  StartDaemon();
  EXPECT_TRUE(coordinator_.Eventually([&] {
    const auto& gpus = coordinator_.beats.back().readings.gpus;
    return gpus.size() == 1 && gpus[0].index == 1 &&
           gpus[0].utilization == 0.4 && gpus[0].power_watts == 70.5;
  }));
  // Each error is told once, of GPUs that are offered.
  fake.Write("set 1 utilization 40\nxid 0 48\nxid 1 79\nxid 1 4242\n");
  const auto errors = [&] {
    std::vector<GpuError> all;
    for (const auto& beat : coordinator_.beats) {
      const auto& some = beat.readings.gpu_errors;
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  };
  EXPECT_TRUE(coordinator_.Eventually([&] { return errors().size() >= 2; }));
  EXPECT_EQ(coordinator_.Locked(errors),
            (std::vector<GpuError>{{1, 79}, {1, 4242}}));
  // The sampler goes before what it reads.
  daemon_.reset();
  gpus_.reset();
}

TEST_F(AgentTest, AGpuIsFreeWhenItIsAsBeforeItsRank) {
  devices::FakeNvmlControl fake(2, "T4");
  fake.Write("set 1 memory_used 1000000000\n");
  devices::GpuSamplerOptions options;
  options.library = LOCKSTEP_FAKE_NVML;
  options.period = 20ms;
  gpus_ = OpenGpusIfThere(options);
  ASSERT_NE(gpus_, nullptr);
  config_.daemon.node.gpus = {gpus_->gpus()[1]};
  config_.daemon.node.capacity.gpus = 1;
  StartAgain();
  // It has been read while it was free.
  ASSERT_TRUE(coordinator_.Eventually([&] {
    const auto& gpus = coordinator_.beats.back().readings.gpus;
    return gpus.size() == 1 && gpus[0].memory_used_bytes == 1'000'000'000;
  }));
  for (const Goal goal : {Goal::kPrepare, Goal::kLaunch}) {
    Assignment order = Order(goal, {"/bin/sleep", "600"});
    order.spec->tasks[0].gpus = {1};
    coordinator_.Send(order);
    ASSERT_TRUE(Reaches(goal == Goal::kPrepare ? GangPhase::kPrepared
                                               : GangPhase::kLaunched));
  }
  ASSERT_TRUE(AllAre(RankState::kStarted));
  // This test stands for a process that outlives the rank.
  fake.Write(fmt::format(
      "set 1 memory_used 6000000000\nprocess 1 {} 5000000000\n", getpid()));
  EXPECT_TRUE(coordinator_.Eventually([&] {
    return coordinator_.beats.back().readings.gpus[0].memory_used_bytes ==
           6'000'000'000;
  }));
  coordinator_.Locked([&] {
    EXPECT_THAT(coordinator_.beats.back().readings.reclaims, IsEmpty());
  });
  coordinator_.Send(Order(Goal::kStop, {}));
  // Whoever hears of the end has heard of the GPU.
  std::vector<GpuReclaim> reclaims;
  ASSERT_TRUE(coordinator_.Eventually([&] {
    reclaims = coordinator_.beats.back().readings.reclaims;
    return Peek().phase == GangPhase::kStopped;
  }));
  ASSERT_EQ(reclaims.size(), 1u);
  EXPECT_EQ(reclaims[0].index, 1);
  EXPECT_EQ(reclaims[0].job, "job");
  EXPECT_EQ(reclaims[0].baseline_bytes, 1'000'000'000);
  ASSERT_EQ(reclaims[0].processes.size(), 1u);
  const HeldProcess& process = reclaims[0].processes[0];
  EXPECT_EQ(process.pid, getpid());
  EXPECT_EQ(process.gpu_memory_bytes, 5'000'000'000);
  EXPECT_FALSE(process.user.empty());
  EXPECT_FALSE(process.command.empty());
  // The next daemon finds it so, too: it knows the baseline.
  StartAgain();
  EXPECT_TRUE(coordinator_.Eventually([&] {
    const auto& left = coordinator_.beats.back().readings.reclaims;
    return left.size() == 1 && left[0].baseline_bytes == 1'000'000'000;
  }));
  fake.Write("set 1 memory_used 1000000000\n");
  EXPECT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.beats.back().readings.reclaims.empty(); }));
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
  EXPECT_THAT(Message(fatal),
              HasSubstr("another daemon has registered as node"));
}

// A copy of another host's daemon that was cut off, and comes back: what it ran
// is run elsewhere by now.
TEST_F(AgentTest, ARefusedCopyEndsWhatIsItsOwn) {
  Launch({"/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"},
         JobKind::kProgram, 2);
  ASSERT_TRUE(AllAre(RankState::kStarted));
  std::vector<Process> ranks;
  for (const RankStatus& rank : Reported().ranks) {
    const auto pid = static_cast<pid_t>(rank.pid);
    auto held = OpenVerified({pid, StartTime(pid).value()});
    ASSERT_TRUE(held.ok());
    ranks.push_back(*std::move(held));
  }
  coordinator_.Refuse(
      ToGrpc(WithReason(Aborted("it is a copy"), "CLONED_NODE")));
  coordinator_.Drop();
  EXPECT_EQ(daemon_->Wait().code(), StatusCode::kAborted);
  for (const Process& rank : ranks) {
    EXPECT_TRUE(WaitExit(rank, MonotonicNow()).ok())
        << "before the daemon left";
  }
  // Its records tell of the end.
  coordinator_.Refuse(grpc::Status::OK);
  StartAgain();
  ASSERT_THAT(Registered().gangs, SizeIs(1));
  EXPECT_EQ(Registered().gangs[0].phase, GangPhase::kStopped);
}

// `cp -a` of the directory, on the same host: boot, start times and secrets are
// all in the records, and they are the first daemon's.
TEST_F(AgentTest, ACopyOfTheDirectoryTakesNoShimOfTheFirst) {
  Launch({"/bin/sh", "-c", "while :; do sleep 0.05; done"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const auto pid = static_cast<pid_t>(Reported().ranks[0].pid);
  const auto rank = OpenVerified({pid, StartTime(pid).value()});
  ASSERT_TRUE(rank.ok());
  AgentConfig config = config_;
  config.daemon.dir = dir_ + "-copy";
  config.daemon.runtime_dir = config.daemon.dir + "/run";
  config.daemon.node.name = "node-b";
  config.daemon.node.incarnation = {2, 2};
  ASSERT_EQ(system(("cp -a " + dir_ + " " + config.daemon.dir).c_str()), 0);
  {
    Daemon copy(config, coordinator_.address(), gpus_.get());
    ASSERT_TRUE(coordinator_.Eventually(
        [&] { return coordinator_.registration.node.name == "node-b"; }));
    ASSERT_TRUE(coordinator_.Eventually([&] {
      const auto& gangs = coordinator_.registration.gangs;
      return Peek().phase == GangPhase::kStopped ||
             (gangs.size() == 1 && gangs[0].phase == GangPhase::kStopped);
    })) << "what the copy says of it is over";
    coordinator_.Refuse(
        ToGrpc(WithReason(Aborted("it is a copy"), "CLONED_NODE")));
    coordinator_.Drop();
    EXPECT_EQ(copy.Wait().code(), StatusCode::kAborted);
  }
  EXPECT_TRUE(OpenVerified(rank->id).ok()) << "the first one's rank lives";
  coordinator_.Refuse(grpc::Status::OK);
  (void)SendSignal(*rank, SIGKILL);
  EXPECT_TRUE(RealFileSystem()->RemoveAll(config.daemon.dir).ok());
}

TEST_F(AgentTest, ItSaysWhomItReachesAndIsReachedItself) {
  const int32_t port =
      coordinator_.Locked([&] { return coordinator_.registration.probe_port; });
  ASSERT_GT(port, 0);
  coordinator_.Send(ProbeQuery{
      5,
      {{"node-a", "127.0.0.1", port}, {"node-b", "255.255.255.255", 9}},
      1s});
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.probe_answers.contains(5); }));
  const auto results = coordinator_.Locked(
      [&] { return coordinator_.probe_answers.at(5).results; });
  ASSERT_THAT(results, SizeIs(2));
  EXPECT_EQ(results[0].node, "node-a");
  EXPECT_TRUE(results[0].reached);
  EXPECT_EQ(results[0].error, "");
  // Since its start no daemon has asked it for a sign of life.
  EXPECT_NE(results[0].quiet, std::nullopt);
  EXPECT_EQ(results[1].node, "node-b");
  EXPECT_FALSE(results[1].reached);
  EXPECT_NE(results[1].error, "");
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

}  // namespace
}  // namespace lockstep::worker::agent
