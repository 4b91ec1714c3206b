#include "worker/agent/readings/session_cpu.h"

#include <gtest/gtest.h>

namespace lockstep::worker::agent {
namespace {

TEST(SessionCpuTest, LivingSessionsAndThoseThatEnded) {
  SessionCpu sessions;
  EXPECT_EQ(sessions.Take({}, 0), 0);
  EXPECT_EQ(sessions.Take({{7, 1.5}}, 0), 1.5);
  EXPECT_EQ(sessions.Take({{7, 3.0}, {8, 1.0}}, 0), 4.0);
  // Keeper 7 was reaped; it had used another half of a second.
  EXPECT_EQ(sessions.Take({{8, 1.0}}, 3.5), 4.5);
  EXPECT_EQ(sessions.Take({}, 4.75), 4.75);
  EXPECT_EQ(sessions.Take({}, 4.75), 4.75);
}

TEST(SessionCpuTest, OtherReapedChildrenAreTheRanks) {
  SessionCpu sessions;
  EXPECT_EQ(sessions.Take({}, 10), 0);
  EXPECT_EQ(sessions.Take({{7, 1}}, 12), 1);
  EXPECT_EQ(sessions.Take({{7, 1}}, 15), 1);
  EXPECT_EQ(sessions.Take({}, 16.5), 1.5);
}

TEST(SessionCpuTest, KeepersAreShimsBelowTheShim) {
  const auto process = [](pid_t pid, pid_t parent, const char* command) {
    ProcessStat stat;
    stat.pid = pid;
    stat.parent = parent;
    stat.command = command;
    return stat;
  };
  const std::vector<ProcessStat> all = {
      process(10, 1, "lockstep-shim"),  process(11, 10, "python3"),
      process(12, 10, "lockstep-shim"), process(13, 12, "sh"),
      process(14, 1, "lockstep-shim"),  process(15, 10, "lockstep-shim")};
  // 15 is the rank's, and only has the name.
  EXPECT_EQ(KeepersOf(all[0], all, [](pid_t pid) { return pid != 15; }),
            std::vector<pid_t>{12});
}

}  // namespace
}  // namespace lockstep::worker::agent
