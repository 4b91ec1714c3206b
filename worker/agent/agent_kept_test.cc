// The worker daemon: nothing is lost, nothing is left.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "common/os/process.h"
#include "common/rpc/status_conversion.h"
#include "common/wire/protocol_version.h"
#include "worker/agent/agent.h"
#include "worker/agent/agent_fixture.h"
#include "worker/agent/fake_coordinator.h"
#include "worker/agent/ports/testing.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;

TEST_F(AgentTest, PortsStayLeasedWithoutADaemonUntilTheTaskEnds) {
  Launch({"/bin/sh", "-c", "exec sleep 1000"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const GangStatus said = Reported();
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
  const int32_t port = Reported().ports.at(0);
  const Fd stranger = ListenOn(port, /*reuse=*/true);
  ASSERT_TRUE(stranger);
  coordinator_.Send(Order(Goal::kLaunch, argv));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const ExitStatus exit = *Reported().ranks[0].exit;
  EXPECT_EQ(exit.reason, Reason::kPortTaken);
  EXPECT_EQ(exit.message,
            fmt::format("port {}, leased to this task, is taken by process {} "
                        "({}), which does not belong to the task",
                        port, getpid(), ReadProcessStat(getpid())->command));
}

// Such a program cannot bind what is held for it: once it is told so, and its
// next start's ports are not held.
TEST_F(AgentTest, AProgramThatBindsWithoutReuseGetsPortsThatAreNotHeld) {
  const std::vector<std::string> argv = {
      "/bin/sh", "-c",
      "echo 'OSError: [Errno 98] Address already in use' >&2; exit 1"};
  Launch(argv);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const ExitStatus exit = *Reported().ranks[0].exit;
  EXPECT_EQ(exit.reason, Reason::kPortTaken);
  EXPECT_THAT(exit.message,
              HasSubstr("Address already in use; the worker holds leased ports "
                        "open, so a program must set SO_REUSEADDR"));
  coordinator_.Send(Order(Goal::kPrepare, argv, JobKind::kProgram, 1, 2));
  ASSERT_TRUE(Reaches(GangPhase::kPrepared, 2));
  EXPECT_TRUE(ListenOn(Reported(2).ports.at(0), /*reuse=*/false));
  // Then it is another port that it cannot bind.
  coordinator_.Send(Order(Goal::kLaunch, argv, JobKind::kProgram, 1, 2));
  ASSERT_TRUE(Reaches(GangPhase::kStopped, 2));
  EXPECT_EQ(Reported(2).ranks[0].exit->reason, Reason::kNone);
}

TEST_F(AgentTest, APortThatAStrangerTookMeanwhileIsWhyARankFailed) {
  const std::string flag = dir_ + "/flag";
  Launch({"/bin/sh", "-c",
          "while [ ! -e " + flag + " ]; do sleep 0.01; done; exit 1"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const int32_t port = Reported().master_port;
  {
    const Fd stranger = ListenOn(port, /*reuse=*/true);
    ASSERT_TRUE(stranger);
    ASSERT_TRUE(
        coordinator_.Eventually([&] { return !Peek().events.empty(); }));
  }
  EXPECT_EQ(Reported().events[0].reason, Reason::kPortTaken);
  EXPECT_THAT(Reported().events[0].message,
              HasSubstr(fmt::format("process {} (", getpid())));
  // It is gone again: the program may have failed by it all the same.
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(flag, "").ok());
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_EQ(Reported().ranks[0].exit->reason, Reason::kPortTaken);
  EXPECT_THAT(Reported().ranks[0].exit->message,
              HasSubstr(fmt::format("port {}, leased to this task", port)));
}

TEST_F(AgentTest, AFullDiskRefusesWhatMayBeTriedAgain) {
  auto space = std::make_shared<std::atomic<uint64_t>>(1 << 20);
  config_.prepare.disk_space =
      [space](const std::string&) -> StatusOr<DiskSpace> {
    return DiskSpace{uint64_t{1} << 40, space->load()};
  };
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers >= 2; }));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return daemon_->agent()->Ready().ok(); }));
  coordinator_.Send(Order(Goal::kPrepare, {"sh"}));
  ASSERT_TRUE(Reaches(GangPhase::kRefused));
  EXPECT_EQ(Reported().refusal.reason, Reason::kNoCapacity);
  EXPECT_THAT(Reported().refusal.message, HasSubstr("nearly full"));
  *space = uint64_t{2} << 30;
  coordinator_.Send(Order(Goal::kPrepare, {"sh"}, JobKind::kProgram, 1, 2));
  EXPECT_TRUE(Reaches(GangPhase::kPrepared, 2));
}

TEST_F(AgentTest, ACoordinatorOfThePastIsNotObeyedAfterARestartEither) {
  const std::string path = dir_ + "/epoch";
  EXPECT_EQ(*RealFileSystem()->Read(path), "1\n");
  StopDaemon();
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path, "7\n").ok());
  const size_t beats =
      coordinator_.Locked([&] { return coordinator_.beats.size(); });
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers >= 4; }));
  const Status ready = daemon_->agent()->Ready();
  EXPECT_EQ(ready.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(ready),
              HasSubstr("of epoch 1, and this node has followed epoch 7"));
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

TEST_F(AgentTest, AnotherHistoryIsObeyedOnlyIfItReplacesTheOneBefore) {
  const std::string first(kHistoryDigits, 'a');
  const std::string second(kHistoryDigits, 'b');
  StopDaemon();
  ASSERT_TRUE(
      SaveObeyed(RealFileSystem(), dir_, StorePoint{first, 7, 40}).ok());
  coordinator_.SetHistory(second);
  const size_t beats =
      coordinator_.Locked([&] { return coordinator_.beats.size(); });
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers >= 4; }));
  EXPECT_EQ(
      coordinator_.Locked([&] { return coordinator_.registration.obeyed; }),
      (StorePoint{first, 7, 40}));
  EXPECT_THAT(Message(daemon_->agent()->Ready()),
              HasSubstr("of history " + second));
  EXPECT_THAT(Message(daemon_->agent()->Ready()), HasSubstr("accept-loss"));
  EXPECT_EQ(coordinator_.Locked([&] { return coordinator_.beats.size(); }),
            beats);
  // An operator says so, once; the epoch counts from anew.
  coordinator_.SetHistory(second, {first});
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.beats.size() > beats; }));
  coordinator_.Send(Order(Goal::kPrepare, {"sh"}));
  EXPECT_TRUE(Reaches(GangPhase::kPrepared));
  daemon_.reset();
  EXPECT_EQ(LoadObeyed(RealFileSystem(), dir_).value(),
            (StorePoint{second, 1, 0}));
}

// A copy of the store has been started as often as the one that was obeyed.
TEST_F(AgentTest, AnotherEpochOfTheSameNumberIsNotObeyed) {
  const std::string history(kHistoryDigits, 'a');
  const std::string obeyed(kHistoryDigits, 'c');
  StopDaemon();
  ASSERT_TRUE(
      SaveObeyed(RealFileSystem(), dir_, StorePoint{history, 1, 40, obeyed})
          .ok());
  coordinator_.SetHistory(history, {}, std::string(kHistoryDigits, 'd'));
  const size_t beats =
      coordinator_.Locked([&] { return coordinator_.beats.size(); });
  StartDaemon();
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return coordinator_.registers >= 4; }));
  EXPECT_THAT(Message(daemon_->agent()->Ready()),
              HasSubstr("has followed another epoch 1"));
  EXPECT_EQ(coordinator_.Locked([&] { return coordinator_.beats.size(); }),
            beats);
  coordinator_.SetHistory(history, {}, obeyed);
  EXPECT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.beats.size() > beats; }));
}

// It knows that it is an old copy, and the daemon cannot know.
TEST_F(AgentTest, ACoordinatorThatSaysThatItIsOutdatedIsNotTakenForAbsent) {
  StopDaemon();
  coordinator_.Refuse(ToGrpc(
      WithReason(FailedPrecondition("an old copy"), "COORDINATOR_OUTDATED")));
  const int before =
      coordinator_.Locked([&] { return coordinator_.registers; });
  StartDaemon();
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.registers >= before + 2; }));
  EXPECT_EQ(daemon_->agent()->Ready().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(daemon_->agent()->Ready()), HasSubstr("an old copy"));
  coordinator_.Refuse(grpc::Status::OK);
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return daemon_->agent()->Ready().ok(); }));
}

TEST_F(AgentTest, ACoordinatorOfAnotherProtocolIsTriedAgainAndToldOf) {
  StopDaemon();
  coordinator_.Refuse(ToGrpc(
      WithReason(FailedPrecondition("upgrade the worker"), kProtocolVersion)));
  const int before =
      coordinator_.Locked([&] { return coordinator_.registers; });
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  StartDaemon();
  EXPECT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.registers >= before + 3; }));
  const std::string log = testing::internal::GetCapturedStderr() +
                          testing::internal::GetCapturedStdout();
  EXPECT_EQ(Message(daemon_->agent()->Ready()), "upgrade the worker");
  EXPECT_EQ(log.find("upgrade the worker"), log.rfind("upgrade the worker"));
  EXPECT_THAT(log, HasSubstr("upgrade the worker"));
  coordinator_.Refuse(grpc::Status::OK);
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return daemon_->agent()->Ready().ok(); }));
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
  gang.status = Reported();
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
      coordinator_.Eventually([&] { return coordinator_.registers >= 2; }));
  EXPECT_EQ(Registered().gangs.at(0).phase, GangPhase::kLaunched);
  // It comes, and goes, with a record.
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(paths.exit_record, exit).ok());
  shim.Reset();
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_TRUE(Reported().ranks[0].exit->ok());
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
  const auto record =
      shim::ReadTaskRecord(dir_ + "/tasks/job.g1/rank-0/task.record");
  ASSERT_TRUE(record.ok()) << record.status();
  const auto shim = OpenVerified({record->shim.pid, record->shim.start_time});
  ASSERT_TRUE(shim.ok());
  daemon_.reset();
  ASSERT_TRUE(SendSignal(*shim, SIGKILL).ok());
  (void)WaitExit(*shim, MonotonicNow() + 10s);
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
      coordinator_.Eventually([&] { return coordinator_.registers >= 2; }));
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return daemon_->agent()->Ready().ok(); }));
  // As the kernel would: it counts, and kills.
  Launch({"/bin/sh", "-c",
          "cd " + mount +
              "/a/rank-*; cat cgroup.procs; echo; "
              "echo 'oom_kill 1' > memory.events; kill -9 $$"});
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const ExitStatus exit = *Reported().ranks[0].exit;
  EXPECT_TRUE(exit.out_of_memory) << Describe(exit);
  EXPECT_THAT(exit.message, HasSubstr("the task exceeded its memory limit"));
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
  config.daemon.runtime_dir = "/tmp/" + std::string(90, 'x');
  const auto agent =
      Agent::Create(config, loop->get(), RealFileSystem(), nullptr);
  EXPECT_EQ(agent.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(agent.status()), HasSubstr("--runtime-dir"));
}

TEST_F(AgentTest, DatesAreLookedAtWhenTheCoordinatorCannotBeReached) {
  std::atomic<int> asked = 0;
  config_.stream.check_dates = [&](const Status& ended) {
    EXPECT_EQ(ended.code(), StatusCode::kUnavailable) << ended;
    ++asked;
    return FailedPrecondition("the certificate expired");
  };
  StartAgain();
  coordinator_.Stop();
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
  while (asked == 0 && MonotonicNow() < deadline) usleep(1000);
  EXPECT_GT(asked, 0);
  ASSERT_TRUE(coordinator_.Start().ok());
  StopDaemon();  // It calls what is on this stack.
}

TEST_F(AgentTest, WhileDatesAreLookedAtTheDaemonDoesTheRest) {
  Mutex mu;
  CondVar changed;
  bool asked = false, seen = false, in_time = false;
  config_.stream.check_dates = [&](const Status&) {
    MutexLock lock(&mu);
    asked = true;
    changed.NotifyAll();
    const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
    while (!seen && changed.WaitUntil(&mu, deadline)) {
    }
    in_time = seen;
    return OkStatus();
  };
  StartAgain();
  coordinator_.Stop();
  {
    MutexLock lock(&mu);
    const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
    while (!asked && changed.WaitUntil(&mu, deadline)) {
    }
    ASSERT_TRUE(asked);
  }
  coordinator_.Locked([&] { coordinator_.beats.clear(); });
  ASSERT_TRUE(coordinator_.Start().ok());
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return !coordinator_.beats.empty(); }));
  {
    MutexLock lock(&mu);
    seen = true;
    changed.NotifyAll();
  }
  StopDaemon();
  EXPECT_TRUE(in_time) << "it was back while the look went on";
}

TEST_F(AgentTest, SocketsOfShimsThatWereKilledAreRemovedAtTheStart) {
  const std::string path =
      config_.daemon.runtime_dir + "/0123456789abcdef.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), path.size());
  {
    const Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
  }
  // Made an hour ago.
  const timespec then{time(nullptr) - 3600, 0};
  const timespec times[] = {then, then};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  StartAgain();
  EXPECT_FALSE(RealFileSystem()->Exists(path));
  EXPECT_TRUE(
      RealFileSystem()->Exists(config_.daemon.runtime_dir + "/link.sock"));
}

}  // namespace
}  // namespace lockstep::worker::agent
