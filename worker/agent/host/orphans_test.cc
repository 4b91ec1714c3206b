#include "worker/agent/host/orphans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <optional>

#include "common/os/marked_processes.h"
#include "worker/agent/host/stray_processes.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(ProcessListTest, GoesThereAndBack) {
  const std::vector<ProcessId> processes = {{17, 1}, {4000000, 99999999999}};
  EXPECT_EQ(DecodeProcesses(EncodeProcesses(processes)), processes);
  EXPECT_THAT(DecodeProcesses(""), IsEmpty());
}

TEST(ProcessListTest, WhatIsNoProcessIsPassedOver) {
  EXPECT_THAT(
      DecodeProcesses("1 5\n0 5\n-3 5\n99999999999999999999 5\nx\n17\n17 5 6\n"
                      "17  5\n17 x\n\n18 5\n19 5"),
      ElementsAre(ProcessId{18, 5}))
      << "nor is what was cut off";
}

// This process as the daemon.
class OrphansTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(BecomeSubreaper().ok());
    record_.job = "job";
    record_.generation = 1;
    record_.socket_path = "/nowhere/0123456789abcdef.sock";
    record_.shim.pid = getpid();
    record_.shim.start_time = StartTime(getpid()).value();
  }
  void TearDown() override {
    for (const Process& process : processes_) {
      (void)SendSignal(process, SIGKILL);
      (void)WaitExit(process, MonotonicNow() + 10s);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
  }
  const Process& Child(const std::vector<std::string>& env) {
    SpawnOptions options;
    options.program = "/bin/sleep";
    options.argv = {"sleep", "1000"};
    options.env = env;
    auto process = Spawn(options);
    EXPECT_TRUE(process.ok()) << process.status();
    processes_.push_back(*std::move(process));
    return processes_.back();
  }
  // Of a shell that has ended: it says the number, and is gone.
  const Process& Orphan() {
    auto pipe = MakePipe();
    EXPECT_TRUE(pipe.ok());
    SpawnOptions options;
    options.program = "/bin/sh";
    options.argv = {"sh", "-c",
                    "env -i setsid sleep 1000 >/dev/null & echo $!"};
    options.env = {"PATH=/usr/bin:/bin",
                   std::string(kToolVariable) + "=a test"};
    options.stdout_fd = pipe->write.get();
    auto shell = Spawn(options);
    EXPECT_TRUE(shell.ok());
    EXPECT_TRUE(WaitExit(*shell, MonotonicNow() + 10s).value().ok());
    char text[32] = {};
    EXPECT_GT(read(pipe->read.get(), text, sizeof(text) - 1), 0);
    const pid_t pid = atoi(text);
    auto process = OpenVerified({pid, StartTime(pid).value_or(0)});
    EXPECT_TRUE(process.ok()) << process.status();
    processes_.push_back(*std::move(process));
    // Until it is what it is going to be.
    const MonoTime deadline = MonotonicNow() + 10s;
    while (ReadProcessStat(pid)->command != "sleep" &&
           MonotonicNow() < deadline) {
      usleep(1000);
    }
    return processes_.back();
  }

  task::TaskRecord record_;
  std::deque<Process> processes_;
};

TEST_F(OrphansTest, WhatHidesAndFellToUsIsKilledAndReaped) {
  const Process& orphan = Orphan();
  ASSERT_EQ(ReadProcessStat(orphan.id.pid)->parent, getpid());
  EXPECT_EQ(KillLeftovers(record_).killed, 1);
  EXPECT_FALSE(StartTime(orphan.id.pid).ok()) << "not even a zombie is left";
}

TEST_F(OrphansTest, WhatWeStartedOurselvesIsLeftAlone) {
  const Process& tool = Child({std::string(kToolVariable) + "=x"});
  EXPECT_EQ(KillLeftovers(record_).killed, 0);
  EXPECT_FALSE(HasEnded(tool));
}

// What was read of it was read before its execve: it was a fork of this one.
TEST_F(OrphansTest, WhatBecameAToolAfterItWasReadIsLeftAlone) {
  const Process& tool = Child({std::string(kToolVariable) + "=x"});
  const auto stat = ReadProcessStat(tool.id.pid);
  ASSERT_TRUE(stat.ok());
  const std::string before("PATH=/usr/bin:/bin\0", 19);
  EXPECT_FALSE(IsOrphan(*stat, before, record_.shim.start_time));
  const Process& orphan = Orphan();
  const auto other = ReadProcessStat(orphan.id.pid);
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(IsOrphan(*other, before, record_.shim.start_time));
}

TEST_F(OrphansTest, WhatIsOlderThanTheShimIsLeftAlone) {
  const Process& orphan = Orphan();
  record_.shim.start_time = orphan.id.start_time + 1;
  EXPECT_EQ(KillLeftovers(record_).killed, 0);
  EXPECT_FALSE(HasEnded(orphan));
}

// An engine ends its containers itself.
TEST_F(OrphansTest, OfARankInAContainerNothingIsGuessed) {
  const Process& orphan = Orphan();
  record_.container = "lockstep-job";
  EXPECT_EQ(KillLeftovers(record_, {orphan.id}).killed, 0);
  EXPECT_FALSE(HasEnded(orphan));
}

// As after a restart of the daemon: what fell to init.
TEST_F(OrphansTest, WhatWasSeenBeforeIsKilledUnlessItIsAnother) {
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  const Process& seen = Child({});
  const Process& stranger = Child({});
  const ProcessId before{stranger.id.pid, stranger.id.start_time - 1};
  EXPECT_EQ(KillLeftovers(record_, {seen.id, before}).killed, 1);
  EXPECT_TRUE(HasEnded(seen));
  EXPECT_FALSE(HasEnded(stranger));
}

TEST_F(OrphansTest, ChildrenFromBeforeMakeItImpossible) {
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  Child({});
  EXPECT_EQ(BecomeSubreaper().code(), StatusCode::kFailedPrecondition);
  int is = 1;
  ASSERT_EQ(prctl(PR_GET_CHILD_SUBREAPER, &is), 0);
  EXPECT_EQ(is, 0);
}

TEST_F(OrphansTest, ZombiesThatNobodyWaitsForAreReaped) {
  const Process& orphan = Orphan();
  ASSERT_TRUE(SendSignal(orphan, SIGKILL).ok());
  siginfo_t info{};
  ASSERT_EQ(
      waitid(P_PID, static_cast<id_t>(orphan.id.pid), &info, WEXITED | WNOWAIT),
      0);
  OrphanReaper reaper;
  const MonoTime start{};
  reaper.Look(start);
  reaper.Look(start + OrphanReaper::kPatience - 1ms);
  EXPECT_TRUE(StartTime(orphan.id.pid).ok()) << "whose it is waits for it";
  reaper.Look(start + OrphanReaper::kPatience);
  EXPECT_FALSE(StartTime(orphan.id.pid).ok());
}

}  // namespace
}  // namespace lockstep::worker::agent
