// A machine whose date is set: what the coordinator makes of it.
#include "server/coordinator/steady_clock.h"

#include <gtest/gtest.h>

#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

TEST(SteadyClockTest, GoesWithTheMachines) {
  FakeClock machine;
  const SteadyClock clock(&machine);
  for (const Duration passed : {Duration(1s), Duration(1h), Duration(9000h)}) {
    machine.Advance(passed);
    EXPECT_EQ(clock.Now().mono, machine.Now().mono);
    EXPECT_EQ(clock.Now().wall, machine.Now().wall);
  }
}

TEST(SteadyClockTest, AStepIsMadeUpForSlowly) {
  for (const Duration step : {Duration(1h), Duration(-1h)}) {
    FakeClock machine;
    const SteadyClock clock(&machine);
    const WallTime start = clock.Now().wall;
    machine.JumpWall(step);
    EXPECT_EQ(clock.Now().wall, start);
    machine.Advance(100s);
    EXPECT_EQ(clock.Now().wall - start, step > 0s ? 101s : 99s);
    machine.Advance(100h);
    EXPECT_EQ(clock.Now().wall, machine.Now().wall);
    machine.Advance(1h);
    EXPECT_EQ(clock.Now().wall, machine.Now().wall) << "and no further";
  }
}

TEST(SteadyClockTest, AsOftenAsItIsAskedItIsTheSame) {
  FakeClock machine;
  const SteadyClock often(&machine);
  const SteadyClock seldom(&machine);
  machine.JumpWall(24h * 365);
  WallTime last = often.Now().wall;
  for (int i = 0; i < 1000; ++i) {
    machine.Advance(100ms);
    EXPECT_GE(often.Now().wall, last);
    last = often.Now().wall;
  }
  EXPECT_EQ(seldom.Now().wall, last);
}

class SteppedCoordinatorTest : public CoordinatorTest {};

TEST_F(SteppedCoordinatorTest, HistoryOutlivesADateAYearAhead) {
  MustSubmit(NativeSpec("j", 1));
  ASSERT_TRUE(Cancel("j").ok());
  clock_.JumpWall(24h * 365);
  Pass(10min);
  EXPECT_EQ(State("j"), JobState::kCancelled);
  EXPECT_EQ(*Submit(NativeSpec("j", 1)), "j QUEUED v1")
      << "and so do the answers to its requests";
  // The log sweeper asks the same clock.
  EXPECT_LT(coordinator_->clock().Now().wall, clock_.Now().wall - 24h * 364);
}

TEST_F(SteppedCoordinatorTest, DeadlinesStayWhereTheyWere) {
  for (const Duration step : {Duration(1h), Duration(-1h)}) {
    const JobName name = step > 0s ? "ahead" : "behind";
    Connect(&a_);
    JobSpec spec = NativeSpec(name, 1);
    spec.max_running_time = 10min;
    MustSubmit(spec);
    Run();
    ASSERT_EQ(State(name), JobState::kRunning);
    clock_.JumpWall(step);
    Pass(9min);
    EXPECT_EQ(State(name), JobState::kRunning);
    Pass(2min);
    EXPECT_NE(State(name), JobState::kRunning);
    Restart();
  }
}

}  // namespace
}  // namespace lockstep::server
