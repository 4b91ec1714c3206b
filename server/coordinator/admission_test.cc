#include <gmock/gmock.h>

#include <csignal>

#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Contains;
using testing::IsEmpty;
using testing::Not;

TEST_F(CoordinatorTest, OlderProcessIsRefused) {
  a_.info.incarnation = {5, 1};
  Connect(&a_);
  FakeDaemon old("a", {2, 0, 0, ""});
  old.info.incarnation = {4, 1};
  EXPECT_EQ(ReasonOf(old.Connect(coordinator_.get())), "STALE_INCARNATION");
  EXPECT_TRUE(a_.Beat().ok());
}

TEST_F(CoordinatorTest, CloneIsRefusedAndTheFirstStays) {
  Connect(&a_);
  FakeDaemon clone("a", {2, 0, 0, ""});
  clone.info.incarnation = {1, 999};
  Connect(&clone);
  EXPECT_FALSE(clone.welcomed());
  clock_.Advance(500ms);
  EXPECT_TRUE(a_.Beat().ok());
  clock_.Advance(500ms);
  coordinator_->Tick();
  EXPECT_EQ(ReasonOf(clone.closed()), "CLONED_NODE");
  EXPECT_TRUE(a_.closed().ok());
  EXPECT_TRUE(a_.Beat().ok());
}

// ---- A daemon whose directory is a copy of another's ----

class CloneTest : public CoordinatorTest {
 protected:
  CloneTest() {
    copy_.info.incarnation = {2, 5};
    copy_.info.hostname = "copy-of-a";
    copy_.info.boot_id = "another host's";
  }
  // Of the job `j` on a and b, as the copy finds it: all of another boot.
  void CopyGangs() {
    copy_.gangs = a_.gangs;
    for (auto& [key, gang] : copy_.gangs) {
      gang.status.phase = GangPhase::kStopped;
      for (RankStatus& rank : gang.status.ranks) {
        rank.state = RankState::kExited;
        rank.exit = KilledBy(SIGKILL);
      }
    }
  }
  FakeDaemon copy_{"a", {2, int64_t{8} << 30, 0, ""}};
};

TEST_F(CloneTest, CostsTheJobNothingHoweverOftenItComes) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  CopyGangs();
  for (int i = 0; i < 20; ++i) {
    Connect(&copy_);
    // What it adds is of the newcomer, too.
    EXPECT_TRUE(
        coordinator_->sessions()
            ->OnGangStatus(copy_.session(), copy_.gangs.begin()->second.status)
            .ok());
    EXPECT_TRUE(copy_.Beat().ok()) << "dropped";
    Pass(500ms);
    EXPECT_EQ(ReasonOf(copy_.closed()), "CLONED_NODE");
    EXPECT_EQ(coordinator_->queries()->GetNode("a")->member.Shown(true),
              NodeState::kQuarantined);
    copy_.Disconnect();
    ++copy_.info.incarnation.counter;
    Pass(1500ms);
  }
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_TRUE(Get("j").attempts.size() <= 1u);
  EXPECT_THAT(GoalsOf(a_, "j"), Not(Contains(Goal::kStop)));
  // An ordinary restart of the first one is no contest, and waits for nothing.
  a_.Restart(true);
  Connect(&a_);
  EXPECT_TRUE(a_.welcomed());
  Pass(61s);
  EXPECT_EQ(coordinator_->queries()->GetNode("a")->member.Shown(true),
            NodeState::kReady);
}

TEST_F(CloneTest, IsNotLetInWhileTheFirstIsAwayForAMoment) {
  Connect(&a_);
  Connect(&copy_);
  ASSERT_TRUE(a_.Beat().ok());
  EXPECT_EQ(ReasonOf(copy_.closed()), "CLONED_NODE");
  copy_.Disconnect();
  a_.Disconnect();
  EXPECT_EQ(ReasonOf(copy_.Connect(coordinator_.get())), "CLONED_NODE");
  // A person says that the copy is the right one.
  ASSERT_TRUE(UndrainNode("a").ok());
  Connect(&copy_);
  EXPECT_TRUE(copy_.welcomed());
}

TEST_F(CloneTest, AHalfOpenStreamIsTakenOverAfterASecondAndNoContest) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  FakeDaemon next("a", a_.info.capacity);
  next.info = a_.info;
  ++next.info.incarnation.counter;
  next.gangs = a_.gangs;
  Connect(&next);
  clock_.Advance(999ms);
  coordinator_->Tick();
  EXPECT_FALSE(next.welcomed());
  EXPECT_TRUE(a_.closed().ok());
  clock_.Advance(1ms);
  coordinator_->Tick();
  EXPECT_TRUE(next.welcomed());
  EXPECT_EQ(ReasonOf(a_.closed()), "STALE_SESSION");
  EXPECT_TRUE(next.Beat().ok());
  Run();
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u) << "its gangs came with it";
  EXPECT_EQ(coordinator_->queries()->GetNode("a")->member.Shown(true),
            NodeState::kReady);
}

TEST_F(CloneTest, ARestartIsLetInAsSoonAsTheOldStreamEnds) {
  Connect(&a_);
  FakeDaemon next("a", a_.info.capacity);
  next.info = a_.info;
  ++next.info.incarnation.counter;
  Connect(&next);
  ASSERT_TRUE(a_.Beat().ok());
  EXPECT_FALSE(next.welcomed());
  a_.Disconnect();
  EXPECT_TRUE(next.welcomed());
}

TEST_F(CloneTest, ADaemonThatReadsItsTakeOverFromAnotherHostIsToldSo) {
  Connect(&a_);
  Connect(&copy_);
  clock_.Advance(1s);
  coordinator_->Tick();
  EXPECT_TRUE(copy_.welcomed());
  EXPECT_EQ(ReasonOf(a_.closed()), "CLONED_NODE");
}

// The first daemon is paused for longer than a newcomer waits.
TEST_F(CloneTest, OneThatWasAdmittedDoesNotEndRanksThatStep) {
  for (const bool knows : {false, true}) {
    const JobName name = knows ? "knows" : "empty";
    a_.Restart(true);
    Connect(&a_);
    if (!b_.connected()) Connect(&b_);
    MustSubmit(Wide(name));
    Run();
    ASSERT_EQ(State(name), JobState::kRunning);
    StepFast(name);
    FakeDaemon copy("a", a_.info.capacity);
    copy.info = a_.info;
    ++copy.info.incarnation.counter;
    copy.info.boot_id += " of another host";
    if (knows) {
      copy_.gangs.clear();
      CopyGangs();
      copy.gangs = copy_.gangs;
    }
    Connect(&copy);
    int64_t step = 100;
    const auto advance = [&](Duration time, bool steps) {
      for (Duration done{}; done < time; done += 500ms) {
        clock_.Advance(500ms);
        if (copy.welcomed()) {
          EXPECT_TRUE(copy.Beat().ok());
        }
        if (b_.gangs.contains({name, 1})) {
          ASSERT_TRUE(b_.Progress(name, 1, steps ? ++step : step).ok());
        }
        coordinator_->Tick();
        PumpAll({&b_, &copy});
      }
    };
    advance(1500ms, true);
    ASSERT_TRUE(copy.welcomed());
    ASSERT_EQ(ReasonOf(a_.closed()), "CLONED_NODE");
    advance(20s, true);
    EXPECT_EQ(State(name), JobState::kRunning);
    EXPECT_FALSE(Get(name).failing) << Get(name).failing->message;
    EXPECT_THAT(GoalsOf(copy, name), IsEmpty()) << "two would run";
    // Its ranks end with their host; no step says that they live any more.
    advance(4500ms, false);
    EXPECT_FALSE(Get(name).failing);
    advance(1500ms, false);
    PumpAll({&b_, &copy});
    EXPECT_EQ(Get(name).attempts.size(), 1u);
    if (!knows) {
      EXPECT_EQ(Get(name).attempts[0].end_cause.reason, Reason::kNodeLost);
    }
    ASSERT_TRUE(Cancel(name).ok());
    PumpAll({&b_, &copy});
    copy.Disconnect();
    a_.info = copy.info;
    a_.gangs.clear();
  }
}

// The host was started anew, and rank 1 has lost its connection to rank 0.
TEST_F(CloneTest, RanksThatLostAPeerDoNotStep) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  StepFast("j");
  for (FakeDaemon* daemon : {&a_, &b_}) {
    daemon->Find("j")->status.ranks[0].recoverable = true;
    daemon->Find("j")->dirty = true;
  }
  Run();
  a_.Restart(false);
  b_.Find("j")->status.ranks[0].parked = 1;
  b_.Find("j")->dirty = true;
  clock_.Advance(1s);
  Connect(&a_);
  Run();
  EXPECT_THAT(GoalsOf(a_, "j"), Contains(Goal::kPrepare));
  EXPECT_EQ(Get("j").recovery, 1u);
  EXPECT_EQ(Get("j").generation, 1u);
  // The new process is this daemon's own.
  Run();
  EXPECT_EQ(a_.Find("j")->assignment.goal, Goal::kGo);
  EXPECT_TRUE(FakeDaemon::Alive(*a_.Find("j")));
  StepFast("j");
  EXPECT_EQ(RanksOf(Get("j"))[0]->state, RankState::kJoined);
}

TEST_F(CloneTest, OneIsJudgedAtATimeAndAStreamThatEndsIsForgotten) {
  Connect(&a_);
  Connect(&copy_);
  FakeDaemon third("a", a_.info.capacity);
  third.info.incarnation = {3, 6};
  EXPECT_EQ(third.Connect(coordinator_.get()).code(), StatusCode::kUnavailable);
  copy_.Disconnect();
  Connect(&third);
  ASSERT_TRUE(a_.Beat().ok());
  clock_.Advance(1s);
  coordinator_->Tick();
  EXPECT_EQ(ReasonOf(third.closed()), "CLONED_NODE") << "of the same boot";
  EXPECT_TRUE(a_.closed().ok());
}

}  // namespace
}  // namespace lockstep::server
