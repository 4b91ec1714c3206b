#include "common/os/marked_processes.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "common/base/random.h"

namespace lockstep {
namespace {

StatusOr<Process> Sleeper(const std::string& variable) {
  SpawnOptions options;
  options.program = "/bin/sleep";
  options.argv = {"sleep", "1000"};
  options.env = {"PATH=/usr/bin:/bin", variable};
  options.new_session = true;
  return Spawn(options);
}

TEST(MarkedProcessesTest, OnlyThoseWithTheVariableGo) {
  const std::string value = RandomHex(8);
  const auto ours = Sleeper("LOCKSTEP_TEST_MARK=" + value);
  const auto other = Sleeper("LOCKSTEP_TEST_MARK=" + value + "0");
  ASSERT_TRUE(ours.ok() && other.ok());
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
  EXPECT_TRUE(KillMarked("LOCKSTEP_TEST_MARK", value, deadline));
  ASSERT_TRUE(HasEnded(*ours));
  EXPECT_FALSE(HasEnded(*other));
  EXPECT_EQ(WaitExit(*ours, deadline)->signal, SIGKILL);
  EXPECT_TRUE(StopProcess(*other, {}).ok());
  EXPECT_TRUE(KillMarked("LOCKSTEP_TEST_MARK", value, deadline));
}

// Spawn returns while the kernel still makes the new program ready.
TEST(MarkedProcessesTest, OneThatWasStartedThisMomentIsFound) {
  const std::string value = RandomHex(8);
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
  for (int i = 0; i < 50; ++i) {
    const auto sleeper = Sleeper("LOCKSTEP_TEST_MARK=" + value);
    ASSERT_TRUE(sleeper.ok()) << sleeper.status();
    EXPECT_TRUE(KillMarked("LOCKSTEP_TEST_MARK", value, deadline));
    const bool ended = HasEnded(*sleeper);
    EXPECT_TRUE(StopProcess(*sleeper, {}).ok());
    ASSERT_TRUE(ended) << i;
  }
}

TEST(MarkedProcessesTest, ThatItIsInExecIsReadFromItsStat) {
  const auto stat = [](const char* size, const char* code_end) {
    std::string text = "42 (a) (b c) R";
    for (int field = 4; field <= 52; ++field) {
      text += field == 23   ? std::string(" ") + size
              : field == 27 ? std::string(" ") + code_end
                            : " 7";
    }
    return text + "\n";
  };
  EXPECT_TRUE(IsInExec(stat("4096", "0")));
  EXPECT_FALSE(IsInExec(stat("4096", "94")));
  EXPECT_FALSE(IsInExec(stat("0", "0"))) << "the kernel's, or one that ends";
  EXPECT_FALSE(IsInExec("42 (a) R 1 2 3"));
  EXPECT_FALSE(IsInExec("42 (a"));
  EXPECT_FALSE(IsInExec(*ReadProcFile("/proc/self/stat")));
}

TEST(MarkedProcessesTest, WhatDoesNotEndIsWaitedForUntilTheDeadline) {
  auto sleeper = Sleeper("A=b");
  ASSERT_TRUE(sleeper.ok());
  std::vector<Process> one;
  one.push_back(*std::move(sleeper));
  EXPECT_FALSE(WaitUntilGone(one, MonotonicNow()));
  EXPECT_TRUE(StopProcess(one[0], {}).ok());
}

}  // namespace
}  // namespace lockstep
