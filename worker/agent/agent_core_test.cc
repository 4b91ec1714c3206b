#include "worker/agent/agent_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ns;
using Kind = Action::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class AgentCoreTest : public testing::Test {
 protected:
  AgentCoreTest() : core_(Options()) {}

  static AgentOptions Options() {
    AgentOptions options;
    options.node = "a";
    return options;
  }

  // Two ranks of a chief with two processes.
  static Assignment Order(Goal goal, Generation generation = 1) {
    Assignment a;
    a.job = "job";
    a.job_uid = "uid";
    a.generation = generation;
    a.epoch = 1;
    a.goal = goal;
    a.grace = 5s;
    a.stop_message = "enough";
    if (goal >= Goal::kStop) return a;
    LocalTask task;
    task.argv = {"train"};
    task.ranks = {{0, 0, {}}, {1, 1, {}}};
    a.spec.emplace();
    a.spec->tasks = {task};
    if (goal >= Goal::kLaunch) {
      a.cluster.emplace();
      a.cluster->job = "job";
      a.cluster->generation = generation;
      a.cluster->world_size = 2;
      a.cluster->tasks = {
          {TaskType::kChief, 0, "a", "10.0.0.1:2222", task.ranks},
          {TaskType::kWorker, 0, "b", "10.0.0.2:3333", {}}};
    }
    return a;
  }

  Actions Do(const Assignment& a) {
    Actions actions;
    EXPECT_TRUE(core_.OnAssignment(a, now_, &actions).ok());
    return actions;
  }
  Actions Do(Goal goal, Generation generation = 1) {
    return Do(Order(goal, generation));
  }
  void Prepare(Generation generation = 1) {
    Do(Goal::kPrepare, generation);
    Actions actions;
    core_.OnPrepared({"job", generation}, {2222}, 2223, &actions);
  }
  Actions Exit(int32_t rank, int32_t code = 0, Generation generation = 1) {
    Actions actions;
    ExitStatus exit;
    exit.value = code;
    core_.OnRankExited({"job", generation}, rank, exit, RankProgress(), Usage(),
                       &actions);
    return actions;
  }
  GangStatus Status(Generation generation = 1) {
    const auto* gang = core_.Find({"job", generation});
    EXPECT_NE(gang, nullptr);
    return gang == nullptr ? GangStatus() : gang->status;
  }
  GangPhase Phase(Generation generation = 1) {
    return Status(generation).phase;
  }
  static std::vector<Kind> Kinds(const Actions& actions) {
    std::vector<Kind> kinds;
    for (const Action& action : actions) kinds.push_back(action.kind);
    return kinds;
  }

  AgentCore core_;
  Time now_{MonoTime(100s), WallTime(1000s)};
  const GangKey key_{"job", 1};
};

TEST_F(AgentCoreTest, PrepareAsksOnceAndAnswersWithPorts) {
  EXPECT_THAT(Kinds(Do(Goal::kPrepare)),
              ElementsAre(Kind::kReport, Kind::kPrepare));
  EXPECT_EQ(Phase(), GangPhase::kPreparing);
  EXPECT_THAT(Do(Goal::kPrepare), IsEmpty());
  Actions actions;
  core_.OnPrepared(key_, {2222}, 2223, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kPrepared);
  EXPECT_THAT(Status().ports, ElementsAre(2222));
  EXPECT_EQ(Status().master_port, 2223);
  EXPECT_EQ(Status().ranks.size(), 2u);
}

TEST_F(AgentCoreTest, ARefusalHasItsSentenceAndHoldsNothing) {
  Do(Goal::kPrepare);
  Actions actions;
  core_.OnRefused(key_, {Reason::kPrepareRefused, "no such program"}, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kRelease, Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kRefused);
  EXPECT_EQ(Status().refusal.message, "no such program");
  EXPECT_THAT(Kinds(Do(Goal::kForget)), ElementsAre(Kind::kForget));
  EXPECT_EQ(core_.Find(key_), nullptr);
}

TEST_F(AgentCoreTest, LaunchStartsEveryRankOnce) {
  Prepare();
  EXPECT_THAT(Kinds(Do(Goal::kLaunch)),
              ElementsAre(Kind::kStartRank, Kind::kStartRank, Kind::kReport));
  EXPECT_THAT(Do(Goal::kLaunch), IsEmpty());
  EXPECT_THAT(Do(Goal::kPrepare), IsEmpty());  // Goals only rise.
  EXPECT_EQ(Phase(), GangPhase::kLaunched);
}

TEST_F(AgentCoreTest, LaunchOfWhatNeverPreparedIsRefused) {
  EXPECT_THAT(Kinds(Do(Goal::kLaunch)), ElementsAre(Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kRefused);
  EXPECT_THAT(Status().refusal.message, HasSubstr("does not remember"));
}

TEST_F(AgentCoreTest, LaunchWithOtherPortsIsRefused) {
  Do(Goal::kPrepare);
  Actions actions;
  core_.OnPrepared(key_, {4444}, 0, &actions);
  EXPECT_THAT(Kinds(Do(Goal::kLaunch)),
              ElementsAre(Kind::kRelease, Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kRefused);
}

TEST_F(AgentCoreTest, GoReachesRanksThatJoinBeforeAndAfterIt) {
  Prepare();
  Do(Goal::kLaunch);
  Actions actions;
  core_.OnRankStarted(key_, 0, 77, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kReport));
  EXPECT_EQ(Status().ranks[0].pid, 77);
  actions.clear();
  core_.OnRankJoined(key_, 0, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kReport));
  const Actions go = Do(Goal::kGo);
  ASSERT_THAT(Kinds(go), ElementsAre(Kind::kGo));
  EXPECT_EQ(go[0].rank, 0);
  actions.clear();
  core_.OnRankJoined(key_, 1, &actions);
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kReport, Kind::kGo, Kind::kGo));
  EXPECT_EQ(actions.back().rank, 1);
  actions.clear();
  core_.OnRankJoined(key_, 1, &actions);  // A repeat.
  EXPECT_THAT(actions, IsEmpty());
}

TEST_F(AgentCoreTest, GoFromPreparedLaunchesFirst) {
  Prepare();
  EXPECT_THAT(Kinds(Do(Goal::kGo)),
              ElementsAre(Kind::kStartRank, Kind::kStartRank, Kind::kReport));
}

TEST_F(AgentCoreTest, DirectivesGoToRankZeroOnceEach) {
  Prepare();
  Do(Goal::kLaunch);
  Actions actions;
  core_.OnRankJoined(key_, 0, &actions);
  core_.OnRankJoined(key_, 1, &actions);
  Assignment go = Order(Goal::kGo);
  go.directives = {{1, DirectiveKind::kCheckpoint}};
  const auto directives = [](const Actions& all) {
    std::vector<uint32_t> ids;
    for (const Action& action : all) {
      if (action.kind != Kind::kDirective) continue;
      EXPECT_EQ(action.rank, 0);
      ids.push_back(action.directive.id);
    }
    return ids;
  };
  EXPECT_THAT(directives(Do(go)), ElementsAre(1u));
  EXPECT_THAT(directives(Do(go)), IsEmpty());
  go.directives.push_back({2, DirectiveKind::kStop});
  EXPECT_THAT(directives(Do(go)), ElementsAre(2u));
}

TEST_F(AgentCoreTest, StopOfRunningRanksAbortsAndKillsEach) {
  Prepare();
  Do(Goal::kLaunch);
  Exit(1);
  const Actions actions = Do(Goal::kStop);
  ASSERT_THAT(Kinds(actions),
              ElementsAre(Kind::kAbort, Kind::kKillTree, Kind::kReport));
  EXPECT_EQ(actions[0].message, "enough");
  EXPECT_EQ(actions[1].grace, 5s);
  EXPECT_EQ(actions[1].rank, 0);
  EXPECT_EQ(Phase(), GangPhase::kStopping);
  EXPECT_THAT(Do(Goal::kStop), IsEmpty());
  EXPECT_THAT(Kinds(Exit(0)),
              ElementsAre(Kind::kReport, Kind::kRelease, Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kStopped);
}

TEST_F(AgentCoreTest, ASecondStopMayShortenTheGraceAndNotLengthenIt) {
  Prepare();
  Do(Goal::kLaunch);
  Do(Goal::kStop);
  Assignment stop = Order(Goal::kStop);
  stop.grace = 1s;
  const Actions actions = Do(stop);
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kKillTree, Kind::kKillTree));
  EXPECT_EQ(actions[0].grace, 1s);
  EXPECT_THAT(Do(Goal::kStop), IsEmpty());
}

TEST_F(AgentCoreTest, WhatDoesNotEndIsKilledByForceAgainAndAgain) {
  Prepare();
  Do(Goal::kLaunch);
  EXPECT_FALSE(core_.NextDeadline().has_value());
  Do(Goal::kStop);
  Exit(1);
  ASSERT_EQ(core_.NextDeadline(), now_.mono + 7s);
  Actions actions;
  now_.mono += 7s - 1ns;
  core_.OnTick(now_, &actions);
  EXPECT_THAT(actions, IsEmpty());
  now_.mono += 1ns;
  core_.OnTick(now_, &actions);
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kKillTree));
  EXPECT_EQ(actions[0].grace, 0s);
  EXPECT_EQ(actions[0].rank, 0);
  EXPECT_EQ(core_.NextDeadline(), now_.mono + 2s);
  Exit(0, 9);
  EXPECT_FALSE(core_.NextDeadline().has_value());
}

TEST_F(AgentCoreTest, StopBeforeLaunchReleasesAtOnce) {
  Prepare();
  EXPECT_THAT(Kinds(Do(Goal::kStop)),
              ElementsAre(Kind::kRelease, Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kStopped);
}

TEST_F(AgentCoreTest, WhatIsPreparedAfterAStopIsReleased) {
  Do(Goal::kPrepare);
  Do(Goal::kStop);
  EXPECT_EQ(Phase(), GangPhase::kStopped);
  Actions actions;
  core_.OnPrepared(key_, {2222}, 0, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kRelease));
  EXPECT_EQ(Phase(), GangPhase::kStopped);
}

TEST_F(AgentCoreTest, StopOfSomethingUnknownIsAcknowledged) {
  EXPECT_THAT(Kinds(Do(Goal::kStop)), ElementsAre(Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kStopped);
  EXPECT_THAT(Status().ranks, IsEmpty());
  EXPECT_THAT(Kinds(Do(Goal::kForget)), ElementsAre(Kind::kForget));
  EXPECT_THAT(Kinds(Do(Goal::kForget)), ElementsAre(Kind::kForget));
}

TEST_F(AgentCoreTest, ForgetOfSomethingAliveStopsItFirst) {
  Prepare();
  Do(Goal::kLaunch);
  EXPECT_THAT(Kinds(Do(Goal::kForget)),
              testing::Not(testing::Contains(Kind::kForget)));
  EXPECT_EQ(Phase(), GangPhase::kStopping);
  Exit(0);
  EXPECT_EQ(Exit(1).back().kind, Kind::kForget);
  EXPECT_EQ(core_.Find(key_), nullptr);
}

TEST_F(AgentCoreTest, ForgetOfSomethingPreparedNeedsNoSecondWord) {
  Prepare();
  EXPECT_EQ(Do(Goal::kForget).back().kind, Kind::kForget);
  EXPECT_EQ(core_.Find(key_), nullptr);
}

TEST_F(AgentCoreTest, RanksThatAllEndByThemselvesStopTheGang) {
  Prepare();
  Do(Goal::kGo);
  Exit(0);
  EXPECT_EQ(Phase(), GangPhase::kLaunched);
  Exit(1, 3);
  EXPECT_EQ(Phase(), GangPhase::kStopped);
  EXPECT_EQ(Status().ranks[1].exit->value, 3);
  EXPECT_FALSE(Status().ranks[1].exit->victim);
  EXPECT_THAT(Exit(1, 4), IsEmpty());  // The first exit counts.
  EXPECT_EQ(Status().ranks[1].exit->value, 3);
}

TEST_F(AgentCoreTest, AHigherGenerationStopsLowerOnesAndWaitsForTheirEnd) {
  Prepare();
  Do(Goal::kLaunch);
  const Actions actions = Do(Goal::kPrepare, 2);
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kAbort, Kind::kKillTree, Kind::kAbort,
                          Kind::kKillTree, Kind::kReport, Kind::kReport));
  EXPECT_EQ(actions[1].grace, 1s);
  EXPECT_EQ(Phase(1), GangPhase::kStopping);
  EXPECT_EQ(Phase(2), GangPhase::kPreparing);
  Exit(0);
  const Actions last = Exit(1);
  EXPECT_EQ(last.back().kind, Kind::kPrepare);
  EXPECT_EQ(last.back().gang.generation, 2u);
}

TEST_F(AgentCoreTest, ALowerGenerationNeverComesBack) {
  Prepare(2);
  Actions actions;
  EXPECT_EQ(core_.OnAssignment(Order(Goal::kPrepare, 1), now_, &actions).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(core_.OnAssignment(Order(Goal::kGo, 1), now_, &actions).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_EQ(core_.Find({"job", 1}), nullptr);
  Do(Goal::kStop, 1);  // Acknowledged; generation 2 is not touched.
  EXPECT_EQ(Phase(1), GangPhase::kStopped);
  EXPECT_EQ(Phase(2), GangPhase::kPrepared);
}

TEST_F(AgentCoreTest, OtherJobsAreNotTouched) {
  Prepare();
  Do(Goal::kLaunch);
  Assignment other = Order(Goal::kPrepare, 9);
  other.job = "job2";
  EXPECT_THAT(Kinds(Do(other)), ElementsAre(Kind::kReport, Kind::kPrepare));
  EXPECT_EQ(Phase(), GangPhase::kLaunched);
}

TEST_F(AgentCoreTest, ACoordinatorOfALowerEpochIsRefused) {
  Assignment order = Order(Goal::kPrepare);
  order.epoch = 5;
  Do(order);
  Actions actions;
  EXPECT_EQ(core_.OnAssignment(Order(Goal::kStop), now_, &actions).code(),
            StatusCode::kAborted);
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_EQ(Phase(), GangPhase::kPreparing);
}

TEST_F(AgentCoreTest, WhoEndsAfterStopOrForAPeerIsAVictim) {
  Prepare();
  Do(Goal::kLaunch);
  Exit(0, kPeerLostCode);
  EXPECT_TRUE(Status().ranks[0].exit->victim);
  Do(Goal::kStop);
  Exit(1, 1);
  EXPECT_TRUE(Status().ranks[1].exit->victim);
  EXPECT_EQ(Status().ranks[0].exit->message, "");
  EXPECT_EQ(Status().ranks[1].exit->message, "stopped: enough");
}

// Its peer's end was heard of first, and the gang told to stop.
TEST_F(AgentCoreTest, WhoFailedBeforeStopOrByItselfIsNoVictim) {
  Prepare();
  Do(Goal::kLaunch);
  RankNews news;
  news.failure = "no such file";
  Actions actions;
  core_.OnRankNews(key_, 0, news, now_, &actions);
  Do(Goal::kStop);
  Exit(0, 1);
  EXPECT_FALSE(Status().ranks[0].exit->victim);
  EXPECT_EQ(Status().ranks[0].exit->message, "no such file");

  ExitStatus killed;
  killed.how = ExitStatus::How::kSignal;
  killed.value = 11;
  killed.end_time = now_.wall - 1s;
  core_.OnRankExited(key_, 1, killed, RankProgress(), Usage(), &actions);
  EXPECT_FALSE(Status().ranks[1].exit->victim);
  EXPECT_EQ(Status().ranks[1].exit->message, "");
}

TEST_F(AgentCoreTest, TheLastWordsOfARankAreInItsExit) {
  Prepare();
  Do(Goal::kLaunch);
  RankNews news;
  news.failure = "replicas differ";
  news.failure_reason = Reason::kDiverged;
  Actions actions;
  core_.OnRankNews(key_, 0, news, now_, &actions);
  Exit(0, 1);
  EXPECT_EQ(Status().ranks[0].exit->message, "replicas differ");
  EXPECT_EQ(Status().ranks[0].exit->reason, Reason::kDiverged);
  EXPECT_FALSE(Status().ranks[0].exit->victim);
}

TEST_F(AgentCoreTest, NewsAreReportedAndRepeatsAreNot) {
  Prepare();
  Do(Goal::kLaunch);
  RankNews news;
  news.checkpoint = Checkpoint{10, 0, "/out/c10", {}, 99};
  news.artifact_name = "model";
  news.artifact_path = "/out/model";
  news.resumed_step = 4;
  news.directive_done = 2;
  Actions actions;
  core_.OnRankNews(key_, 0, news, now_, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kReport));
  EXPECT_EQ(Status().checkpoint->step, 10);
  EXPECT_EQ(Status().checkpoint->generation, 1u);
  EXPECT_EQ(Status().checkpoint->time, now_.wall);
  actions.clear();
  now_.wall += 1s;
  core_.OnRankNews(key_, 0, news, now_, &actions);
  EXPECT_THAT(actions, IsEmpty());
  news = RankNews();
  news.checkpoint = Checkpoint{5, 0, "/out/c5", {}, 99};
  core_.OnRankNews(key_, 0, news, now_, &actions);
  EXPECT_EQ(Status().checkpoint->step, 10);  // An older one, late.
  news = RankNews();
  news.event = "hello";
  core_.OnRankNews(key_, 1, news, now_, &actions);
  core_.OnRankNews(key_, 1, news, now_, &actions);
  ASSERT_EQ(Status().events.size(), 2u);
  EXPECT_EQ(Status().events[1].number, 2u);
}

TEST_F(AgentCoreTest, OnlyTheNewestEventsAreKept) {
  Prepare();
  Do(Goal::kLaunch);
  RankNews news;
  news.event = "x";
  Actions actions;
  for (size_t i = 0; i < kKeptEvents + 5; ++i) {
    core_.OnRankNews(key_, 0, news, now_, &actions);
  }
  EXPECT_EQ(Status().events.size(), kKeptEvents);
  EXPECT_EQ(Status().events.back().number, kKeptEvents + 5);
}

TEST_F(AgentCoreTest, AnAdoptedGangGoesOn) {
  Prepare();
  Do(Goal::kGo);
  GangStatus status = Status();
  status.events = {{7, 0, {}, Reason::kNone, "x"}};
  status.ranks[0].state = RankState::kExited;
  status.ranks[0].exit = ExitStatus();
  AgentCore next(Options());
  next.Adopt(core_.Find(key_)->assignment, status);
  Actions actions;
  ASSERT_TRUE(next.OnAssignment(Order(Goal::kGo), now_, &actions).ok());
  EXPECT_THAT(actions, IsEmpty());  // Nothing is started twice.
  RankNews news;
  news.event = "y";
  next.OnRankNews(key_, 1, news, now_, &actions);
  EXPECT_EQ(next.Find(key_)->status.events.back().number, 8u);
  next.OnRankExited(key_, 1, ExitStatus(), RankProgress(), Usage(), &actions);
  EXPECT_EQ(next.Find(key_)->status.phase, GangPhase::kStopped);
}

TEST_F(AgentCoreTest, AnAdoptedGangThatWasBeingStoppedIsStoppedAgain) {
  Prepare();
  Do(Goal::kLaunch);
  Do(Goal::kStop);
  AgentCore next(Options());
  next.Adopt(core_.Find(key_)->assignment, Status());
  Actions actions;
  ASSERT_TRUE(next.OnAssignment(Order(Goal::kStop), now_, &actions).ok());
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kKillTree, Kind::kKillTree));
}

TEST_F(AgentCoreTest, EventsOfUnknownGangsAndRanksDoNothing) {
  Actions actions;
  core_.OnRankStarted({"x", 1}, 0, 1, &actions);
  core_.OnRankJoined({"x", 1}, 0, &actions);
  core_.OnRankNews({"x", 1}, 0, RankNews(), now_, &actions);
  core_.OnRefused({"x", 1}, Cause(), &actions);
  Prepare();
  Do(Goal::kLaunch);
  core_.OnRankJoined(key_, 99, &actions);
  EXPECT_THAT(actions, IsEmpty());
}

}  // namespace
}  // namespace lockstep
