// How gangs are stopped and how ranks end.
#include <gmock/gmock.h>

#include "worker/agent/core/agent_core_fixture.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""ns;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

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
  core_.OnPrepared(key_, {{2222}, 0}, now_, &actions);
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

class LostPeersTest : public AgentCoreTest {
 protected:
  // The gang of a job of `world_size` ranks.
  void LaunchOf(int32_t world_size) {
    Prepare();
    Assignment order = Order(Goal::kLaunch);
    order.cluster->world_size = world_size;
    Do(order);
  }
  Actions Say(int32_t rank, std::vector<int32_t> peers,
              const std::string& error) {
    RankNews news;
    news.lost_peers = std::move(peers);
    news.lost_peer_error = error;
    Actions actions;
    core_.OnRankNews(key_, rank, news, now_, &actions);
    return actions;
  }
};

TEST_F(LostPeersTest, AreKeptOnceAndReported) {
  LaunchOf(4);
  EXPECT_THAT(Kinds(Say(0, {3, 2}, "timed out")), ElementsAre(Kind::kReport));
  // Nothing new: rank 0 repeats itself after a broken link.
  EXPECT_THAT(Say(0, {2}, "another word"), IsEmpty());
  EXPECT_THAT(Kinds(Say(1, {3}, "")), ElementsAre(Kind::kReport));
  const std::vector<LostPeer> kept = {
      {0, 3, "timed out"}, {0, 2, "timed out"}, {1, 3, ""}};
  EXPECT_EQ(Status().lost_peers, kept);
  Do(Goal::kStop);
  Exit(0, kPeerLostCode);
  Exit(1, kPeerLostCode);
  EXPECT_EQ(Phase(), GangPhase::kStopped);
  EXPECT_EQ(Status().lost_peers, kept);
}

TEST_F(LostPeersTest, OfNoOtherRankOfTheJobAreIgnored) {
  LaunchOf(4);
  EXPECT_THAT(Say(1, {-1, 1, 4, 65'536}, "nonsense"), IsEmpty());
  EXPECT_THAT(Status().lost_peers, IsEmpty());
}

TEST_F(LostPeersTest, AreBounded) {
  LaunchOf(5'000);
  std::vector<int32_t> all;
  for (int32_t peer = 2; peer < 5'000; ++peer) all.push_back(peer);
  Say(0, all, "timed out");
  Say(1, all, "timed out");
  EXPECT_EQ(Status().lost_peers.size(), kKeptLostPeers);
  EXPECT_EQ(Status().lost_peers.back().peer, 1 + 1024);
}

// ---- Evidence of a failure ----

TEST_F(AgentCoreTest, AStopAfterAFailureWaitsForEvidence) {
  Prepare();
  Do(Goal::kLaunch);
  Assignment stop = Order(Goal::kStop);
  stop.keep_evidence = true;
  EXPECT_THAT(Kinds(Do(stop)), ElementsAre(Kind::kCapture, Kind::kReport));
  EXPECT_EQ(Phase(), GangPhase::kStopping);
  EXPECT_THAT(Do(stop), IsEmpty()) << "a repeat";
  Actions actions;
  core_.OnCaptured(key_, 0, now_, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kAbort, Kind::kKillTree,
                                          Kind::kAbort, Kind::kKillTree));
  EXPECT_EQ(actions[0].message, "enough");
  EXPECT_EQ(actions[1].grace, 5s);
  EXPECT_EQ(core_.NextDeadline(), now_.mono + 7s);
  actions.clear();
  core_.OnCaptured(key_, 0, now_, &actions);
  EXPECT_THAT(actions, IsEmpty());
}

TEST_F(AgentCoreTest, AStopWaitsForEvidenceForALimitedTime) {
  Prepare();
  Do(Goal::kLaunch);
  Assignment stop = Order(Goal::kStop);
  stop.keep_evidence = true;
  Do(stop);
  EXPECT_EQ(core_.NextDeadline(), now_.mono + 100ms);
  now_.mono += 100ms;
  Actions actions;
  core_.OnTick(now_, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kAbort, Kind::kKillTree,
                                          Kind::kAbort, Kind::kKillTree));
  EXPECT_EQ(core_.NextDeadline(), now_.mono + 7s);
}

TEST_F(AgentCoreTest, AShorterGraceEndsTheWaitForEvidence) {
  Prepare();
  Do(Goal::kLaunch);
  Assignment stop = Order(Goal::kStop);
  stop.keep_evidence = true;
  Do(stop);
  stop.grace = 0s;
  EXPECT_THAT(Kinds(Do(stop)), ElementsAre(Kind::kAbort, Kind::kKillTree,
                                           Kind::kAbort, Kind::kKillTree));
}

TEST_F(AgentCoreTest, EvidenceIsKeptWhenARankFailsAndOnlyOnce) {
  Prepare();
  Do(Goal::kLaunch);
  EXPECT_THAT(Kinds(Exit(0, 1)), ElementsAre(Kind::kReport, Kind::kCapture));
  Actions actions;
  core_.OnCaptured(key_, 0, now_, &actions);
  EXPECT_THAT(actions, IsEmpty()) << "nothing waits for it";
  Assignment stop = Order(Goal::kStop);
  stop.keep_evidence = true;
  EXPECT_THAT(Kinds(Do(stop)),
              ElementsAre(Kind::kAbort, Kind::kKillTree, Kind::kReport));
}

TEST_F(AgentCoreTest, AStopWaitsForEvidenceThatIsOnItsWay) {
  Prepare();
  Do(Goal::kLaunch);
  Exit(0, 1);
  Assignment stop = Order(Goal::kStop);
  stop.keep_evidence = true;
  EXPECT_THAT(Kinds(Do(stop)), ElementsAre(Kind::kReport));
  Actions actions;
  core_.OnCaptured(key_, 0, now_, &actions);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kAbort, Kind::kKillTree));
}

TEST_F(AgentCoreTest, NoEvidenceIsKeptOfSuccessAndOfOtherStops) {
  Prepare();
  Do(Goal::kLaunch);
  EXPECT_THAT(Kinds(Exit(0)), Not(Contains(Kind::kCapture)));
  EXPECT_THAT(Kinds(Do(Goal::kStop)), Not(Contains(Kind::kCapture)));
  EXPECT_THAT(Kinds(Exit(1, 1)), Not(Contains(Kind::kCapture)))
      << "it was stopped";
}

}  // namespace
}  // namespace lockstep::worker::agent
