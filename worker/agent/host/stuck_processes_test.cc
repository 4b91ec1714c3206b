#include "worker/agent/host/stuck_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

namespace lockstep::worker::agent {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// No test can make a process that SIGKILL does not end, so this one stands for
// it: the kernel's answer is the same but for the state.
TEST(StuckProcessesTest, IsListedUntilItHasEnded) {
  const ProcessStat self = *ReadProcessStat(getpid());
  std::set<pid_t> live = {self.pid};
  StuckProcesses stuck([&](const ProcessId& id) -> std::optional<ProcessStat> {
    if (!live.contains(id.pid)) return std::nullopt;
    return self;
  });
  const WallTime now = FromUnixNanos(5'000'000'000);
  stuck.Add({{self.pid, self.start_time}, {1 << 22, 7}}, "resnet", now);
  ASSERT_THAT(stuck.all(), SizeIs(1)) << "the other one has ended";
  const HeldProcess held = stuck.all()[0];
  EXPECT_EQ(held.pid, self.pid);
  EXPECT_EQ(held.job, "resnet");
  EXPECT_EQ(held.since, now);
  EXPECT_FALSE(held.user.empty());
  EXPECT_FALSE(held.command.empty());
  EXPECT_EQ(held.state, "R");
  // A second report does not restart its time.
  stuck.Add({{self.pid, self.start_time}}, "", now + std::chrono::seconds(1));
  ASSERT_THAT(stuck.all(), SizeIs(1));
  EXPECT_EQ(stuck.all()[0].since, now);
  live.clear();
  stuck.Look();
  EXPECT_THAT(stuck.all(), IsEmpty());
}

TEST(StuckProcessesTest, AProcessThatIsNotThereHasOnlyItsNumber) {
  HeldProcess none;
  none.pid = 1 << 22;
  EXPECT_EQ(DescribeHeld(1 << 22), none);
  EXPECT_EQ(Describe(none), "process 4194304 (not visible in /proc)");
}

}  // namespace
}  // namespace lockstep::worker::agent
