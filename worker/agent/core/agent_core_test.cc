// Getting ready, launching, reporting, and what is adopted.
#include <gmock/gmock.h>

#include <algorithm>

#include "worker/agent/core/agent_core_fixture.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST_F(AgentCoreTest, PrepareAsksOnceAndAnswersWithPorts) {
  EXPECT_THAT(Kinds(Do(Goal::kPrepare)),
              ElementsAre(Kind::kReport, Kind::kPrepare));
  EXPECT_EQ(Phase(), GangPhase::kPreparing);
  EXPECT_THAT(Do(Goal::kPrepare), IsEmpty());
  Actions actions;
  core_.OnPrepared(key_, {{2222}, 2223}, now_, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kPrepared);
  EXPECT_THAT(Status().ports, ElementsAre(2222));
  EXPECT_EQ(Status().master_port, 2223);
  EXPECT_EQ(Status().ranks.size(), 2u);
}

// ---- Images ----

ImageContent Image(const std::string& id) { return {"x:1", id, "", ""}; }

TEST_F(AgentCoreTest, SaysWhichImagesItHasAndWhatWasNoticed) {
  Do(Goal::kPrepare);
  Actions actions;
  core_.OnPrepared(key_, {{2222}, 2223, {}, {Image("a")}, {"mind this"}}, now_,
                   &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kReport));
  EXPECT_THAT(Status().images, ElementsAre(Image("a")));
  ASSERT_EQ(Status().events.size(), 1u);
  EXPECT_EQ(Status().events[0].message, "mind this");
  EXPECT_EQ(Status().events[0].reason, Reason::kPrepareNote);
  EXPECT_EQ(Status().events[0].number, 1u);
}

TEST_F(AgentCoreTest, SettledAsSomethingElseItGetsReadyOnceMore) {
  Do(Goal::kPrepare);
  Actions actions;
  core_.OnPrepared(key_, {{2222}, 2223, {}, {Image("a")}, {"mind this"}}, now_,
                   &actions);
  Assignment settled = Order(Goal::kPrepare);
  settled.spec->images = {Image("a")};
  EXPECT_THAT(Do(settled), IsEmpty());
  settled.spec->images = {Image("b")};
  EXPECT_THAT(Kinds(Do(settled)),
              ElementsAre(Kind::kRelease, Kind::kReport, Kind::kPrepare));
  EXPECT_EQ(Phase(), GangPhase::kPreparing);
  EXPECT_THAT(Status().ports, IsEmpty());
  EXPECT_THAT(Do(settled), IsEmpty());
  actions.clear();
  core_.OnPrepared(key_, {{2224}, 2225, {}, {Image("b")}, {"mind this"}}, now_,
                   &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kPrepared);
  EXPECT_THAT(Status().images, ElementsAre(Image("b")));
  EXPECT_EQ(Status().events.size(), 1u);
}

// What it has got ready stays: packages are not installed twice.
TEST_F(AgentCoreTest, TheOutputDirectoryOfRankZeroIsLookedForOnceItIsKnown) {
  Assignment order = Order(Goal::kPrepare);
  order.spec->output_directory = "/out";
  Do(order);
  Actions actions;
  core_.OnPrepared(key_, {{2222}, 2223}, now_, &actions);
  EXPECT_EQ(Phase(), GangPhase::kPrepared);
  order.spec->output_identity = std::string(32, 'a');
  EXPECT_THAT(Kinds(Do(order)), ElementsAre(Kind::kCheckOutput, Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kPreparing);
  EXPECT_THAT(Status().ports, ElementsAre(2222));
  EXPECT_THAT(Do(order), IsEmpty()) << "it looks already";
  actions.clear();
  core_.OnOutputChecked(key_, std::string(32, 'a'), &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kPrepared);
  EXPECT_EQ(Status().output_identity, std::string(32, 'a'));
  EXPECT_THAT(Do(order), IsEmpty()) << "it has looked";
}

TEST_F(AgentCoreTest, AnOutputDirectoryThatBecomesKnownMeanwhileIsLookedFor) {
  Assignment order = Order(Goal::kPrepare);
  order.spec->output_directory = "/out";
  Do(order);
  order.spec->output_identity = std::string(32, 'a');
  EXPECT_THAT(Do(order), IsEmpty());
  Actions actions;
  core_.OnPrepared(key_, {{2222}, 2223}, now_, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kCheckOutput, Kind::kReport));
  actions.clear();
  core_.OnRefused(key_, {Reason::kOutputNotShared, "no"}, &actions);
  EXPECT_EQ(Phase(), GangPhase::kRefused);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kRelease, Kind::kReport));
}

TEST_F(AgentCoreTest, TheNodeOfRankZeroDoesNotLookTwice) {
  Assignment order = Order(Goal::kPrepare);
  order.spec->output_directory = "/out";
  Do(order);
  Actions actions;
  PreparedGang prepared{{2222}, 2223};
  prepared.output_identity = std::string(32, 'a');
  core_.OnPrepared(key_, prepared, now_, &actions);
  order.spec->output_identity = std::string(32, 'a');
  EXPECT_THAT(Do(order), IsEmpty());
  EXPECT_EQ(Phase(), GangPhase::kPrepared);
}

TEST_F(AgentCoreTest, StoppedWhileItLooksForTheDirectoryItGivesAllBack) {
  Assignment order = Order(Goal::kPrepare);
  order.spec->output_directory = "/out";
  Do(order);
  Actions actions;
  core_.OnPrepared(key_, {{2222}, 2223}, now_, &actions);
  order.spec->output_identity = std::string(32, 'a');
  Do(order);
  EXPECT_THAT(Kinds(Do(Goal::kStop)),
              ElementsAre(Kind::kRelease, Kind::kReport));
  actions.clear();
  core_.OnOutputChecked(key_, std::string(32, 'a'), &actions);
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_EQ(Phase(), GangPhase::kStopped);
}

TEST_F(AgentCoreTest, SettledMeanwhileAsSomethingElseItGetsReadyOnceMore) {
  Do(Goal::kPrepare);
  Assignment settled = Order(Goal::kPrepare);
  settled.spec->images = {Image("b")};
  EXPECT_THAT(Do(settled), IsEmpty());
  Actions actions;
  core_.OnPrepared(key_, {{2222}, 2223, {}, {Image("a")}, {}}, now_, &actions);
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kRelease, Kind::kReport, Kind::kPrepare));
  EXPECT_EQ(Phase(), GangPhase::kPreparing);
  // Asked with what is settled, what comes of it is taken: no end otherwise.
  actions.clear();
  core_.OnPrepared(key_, {{2222}, 2223, {}, {Image("c")}, {}}, now_, &actions);
  EXPECT_EQ(Phase(), GangPhase::kPrepared);
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
  EXPECT_THAT(Status().refusal.message,
              HasSubstr("has no record of preparing"));
}

TEST_F(AgentCoreTest, LaunchWithOtherPortsIsRefused) {
  Do(Goal::kPrepare);
  Actions actions;
  core_.OnPrepared(key_, {{4444}, 0}, now_, &actions);
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
  core_.OnRankJoined(key_, 0, {0, false}, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kReport));
  const Actions go = Do(Goal::kGo);
  ASSERT_THAT(Kinds(go), ElementsAre(Kind::kGo));
  EXPECT_EQ(go[0].rank, 0);
  actions.clear();
  core_.OnRankJoined(key_, 1, {0, false}, &actions);
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kReport, Kind::kGo, Kind::kGo));
  EXPECT_EQ(actions.back().rank, 1);
  actions.clear();
  core_.OnRankJoined(key_, 1, {0, false}, &actions);  // A repeat.
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
  core_.OnRankJoined(key_, 0, {0, false}, &actions);
  core_.OnRankJoined(key_, 1, {0, false}, &actions);
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

TEST_F(AgentCoreTest, EvidenceIsCapturedOncePerNumber) {
  Prepare();
  Assignment order = Order(Goal::kGo);
  order.evidence = 2;
  const Actions asked = Do(order);
  ASSERT_THAT(Kinds(asked), Contains(Kind::kCapture));
  const auto capture = std::find_if(
      asked.begin(), asked.end(),
      [](const Action& action) { return action.kind == Kind::kCapture; });
  EXPECT_EQ(capture->evidence, 2u);
  EXPECT_THAT(Kinds(Do(order)), Not(Contains(Kind::kCapture)));
  Actions actions;
  core_.OnCaptured(key_, 2, now_, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kReport));
  EXPECT_EQ(Status().evidence_done, 2u);
  actions.clear();
  core_.OnCaptured(key_, 1, now_, &actions);
  EXPECT_THAT(actions, IsEmpty()) << "an older one ends late";
  order.evidence = 3;
  EXPECT_THAT(Kinds(Do(order)), Contains(Kind::kCapture));
}

TEST_F(AgentCoreTest, EventsOfUnknownGangsAndRanksDoNothing) {
  Actions actions;
  core_.OnRankStarted({"x", 1}, 0, 1, &actions);
  core_.OnRankJoined({"x", 1}, 0, {0, false}, &actions);
  core_.OnRankNews({"x", 1}, 0, RankNews(), now_, &actions);
  core_.OnRefused({"x", 1}, Cause(), &actions);
  Prepare();
  Do(Goal::kLaunch);
  core_.OnRankJoined(key_, 99, {0, false}, &actions);
  EXPECT_THAT(actions, IsEmpty());
}

// The coordinator uses a spare node for other tasks than it has prepared for.
TEST_F(AgentCoreTest, ASpareNodePreparesAgainForOtherRanks) {
  Prepare();
  Assignment other = Order(Goal::kPrepare);
  other.spec->tasks[0].ranks = {{4, 0, {}}, {5, 1, {}}};
  EXPECT_THAT(Kinds(Do(other)),
              ElementsAre(Kind::kRelease, Kind::kReport, Kind::kPrepare));
  EXPECT_EQ(Phase(), GangPhase::kPreparing);
  EXPECT_EQ(Status().ranks[0].rank, 4);
  EXPECT_THAT(Status().ports, IsEmpty());
  EXPECT_THAT(Kinds(Do(other)), IsEmpty()) << "once";
  Actions actions;
  core_.OnPrepared(key_, {{2222}, 2223}, now_, &actions);
  EXPECT_EQ(Phase(), GangPhase::kPrepared);
}

TEST_F(AgentCoreTest, ASpareNodeThatStillPreparesForOthersBeginsAnew) {
  Do(Goal::kPrepare);
  Assignment other = Order(Goal::kPrepare);
  other.spec->tasks[0].ranks = {{4, 0, {}}, {5, 1, {}}};
  EXPECT_THAT(Kinds(Do(other)), IsEmpty());
  Actions actions;
  core_.OnPrepared(key_, {{2222}, 2223}, now_, &actions);
  EXPECT_THAT(Kinds(actions),
              ElementsAre(Kind::kRelease, Kind::kReport, Kind::kPrepare));
  EXPECT_EQ(Status().ranks[0].rank, 4);
}

}  // namespace
}  // namespace lockstep::worker::agent
