#include "worker/agent/exits/out_of_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;
using testing::IsEmpty;

ExitStatus Killed(int signo = SIGKILL) {
  ExitStatus exit;
  exit.how = ExitStatus::How::kSignal;
  exit.value = signo;
  return exit;
}

ExitStatus Judged(const OomEvidence& evidence, ExitStatus exit) {
  JudgeOutOfMemory(evidence, &exit);
  return exit;
}

TEST(OutOfMemoryTest, TheCountersLineIsFound) {
  EXPECT_EQ(ParseOomKills("nr_free_pages 7\noom_kill 3\nx 1\n"), 3u);
  EXPECT_EQ(ParseOomKills("oom_kill 0"), 0u);
  EXPECT_EQ(ParseOomKills("noom_kill 3\noom_killer 4\n"), std::nullopt);
  EXPECT_EQ(ParseOomKills("oom_kill x\n"), std::nullopt);
  EXPECT_EQ(ParseOomKills(""), std::nullopt);
}

TEST(OutOfMemoryTest, TheCountersRiseCountsOnlyAroundTheEnd) {
  OomWatch watch;
  const MonoTime start = MonoTime() + 100s;
  EXPECT_EQ(watch.RiseAround(start, 5), std::nullopt);
  for (int i = 0; i < 60; ++i) watch.Add(start + i * 1s, i < 30 ? 5 : 6);
  // The kill at 30 s was not that of who ended at 55 s.
  EXPECT_EQ(watch.RiseAround(start + 55s, 6), 0u);
  EXPECT_EQ(watch.RiseAround(start + 59s, 7), 1u);
  // Nothing is known of the time before the first reading.
  EXPECT_EQ(OomWatch().RiseAround(start, 6), std::nullopt);
  OomWatch late;
  late.Add(start + 10s, 1);
  EXPECT_EQ(late.RiseAround(start, 9), std::nullopt);
}

TEST(OutOfMemoryTest, TheLeastMemoryShortlyBefore) {
  OomWatch watch;
  const MonoTime start = MonoTime() + 100s;
  EXPECT_EQ(watch.LeastAvailable(start), std::nullopt);
  for (int i = 0; i < 60; ++i) {
    watch.AddAvailable(start + i * 1s, i == 45 ? 0.01 : 0.5);
  }
  EXPECT_EQ(watch.LeastAvailable(start + 50s), 0.01);
  EXPECT_EQ(watch.LeastAvailable(start + 44s), 0.5) << "it came later";
  EXPECT_EQ(watch.LeastAvailable(start + 56s), 0.5) << "long ago";
  EXPECT_EQ(watch.LeastAvailable(start + 90s), std::nullopt);
}

TEST(OutOfMemoryTest, SomebodyElseMayHaveKilledForIt) {
  const ExitStatus exit = Judged({.least_available = 0.021}, Killed());
  EXPECT_FALSE(exit.out_of_memory);
  EXPECT_EQ(exit.reason, Reason::kOutOfMemory);
  EXPECT_THAT(
      exit.message,
      HasSubstr(
          "probably out of memory: 2.1 % of this host's memory was left"));
  EXPECT_THAT(exit.message, HasSubstr("request more with --memory"));
  EXPECT_THAT(Judged({.least_available = 0.2}, Killed()).message, IsEmpty());
  EXPECT_THAT(Judged({.least_available = 0.0}, Killed(SIGSEGV)).message,
              IsEmpty());
  EXPECT_THAT(
      Judged({.least_available = 0.0, .told_to_end = true}, Killed()).message,
      IsEmpty());
  EXPECT_THAT(
      Judged({.cgroup_kills = 0, .least_available = 0.0}, Killed()).message,
      IsEmpty());
}

TEST(OutOfMemoryTest, TheCgroupsWordIsCertain) {
  const ExitStatus exit = Judged({.cgroup_kills = 1}, Killed());
  EXPECT_TRUE(exit.out_of_memory);
  EXPECT_THAT(exit.message, HasSubstr("the task exceeded its memory limit"));
  // Not when it is another of its processes that was killed, or we killed it.
  EXPECT_FALSE(Judged({.cgroup_kills = 1}, Killed(SIGSEGV)).out_of_memory);
  ExitStatus code;
  code.value = 1;
  EXPECT_FALSE(Judged({.cgroup_kills = 1}, code).out_of_memory);
  EXPECT_THAT(Judged({.cgroup_kills = 1}, code).message,
              HasSubstr("killed a process of this task"));
  EXPECT_FALSE(
      Judged({.cgroup_kills = 1, .told_to_end = true}, Killed()).out_of_memory);
  EXPECT_THAT(Judged({.cgroup_kills = 1}, ExitStatus()).message, IsEmpty());
}

TEST(OutOfMemoryTest, TheHostsWordIsProbableOnly) {
  const ExitStatus exit = Judged({.host_kills = 1}, Killed());
  EXPECT_FALSE(exit.out_of_memory);
  EXPECT_EQ(exit.reason, Reason::kOutOfMemory);
  EXPECT_THAT(exit.message, HasSubstr("probably out of memory"));
  EXPECT_THAT(exit.message, HasSubstr("or a larger machine type"));
  EXPECT_THAT(Judged({.host_kills = 0}, Killed()).message, IsEmpty());
  EXPECT_THAT(Judged({}, Killed()).message, IsEmpty());
  EXPECT_THAT(Judged({.host_kills = 1}, Killed(SIGTERM)).message, IsEmpty());
  EXPECT_THAT(Judged({.host_kills = 1, .told_to_end = true}, Killed()).message,
              IsEmpty());
  // A cgroup of its own that counted none knows better.
  EXPECT_THAT(Judged({.cgroup_kills = 0, .host_kills = 1}, Killed()).message,
              IsEmpty());
  ExitStatus said = Killed();
  said.message = "replicas differ";
  EXPECT_EQ(Judged({.host_kills = 1}, said).message, "replicas differ");
}

}  // namespace
}  // namespace lockstep::worker::agent
