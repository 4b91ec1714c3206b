// What lost peers, late nodes and kills say, and what follows for the job.
#include "server/core/evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server/core/holding.h"
#include "server/core/pair_probe.h"
#include "server/core/scenes.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr char kTimedOut[] = "the connection is lost (Connection timed out)";

LostPair TimedOut(const NodeName& from, const NodeName& to) {
  return {from, to, kTimedOut};
}

// Three ranks on a, b and c.
Scene Three() {
  Scene s(NativeSpec("j", 3));
  s.Run({"a", "b", "c"});
  return s;
}

ExitStatus At(Scene* s, Duration after, ExitStatus exit) {
  exit.end_time = s->now.wall + after;
  return exit;
}

std::vector<LostPair> PairsOf(Scene* s) {
  Job job = s->job;
  for (TaskStatus& task : job.tasks) {
    for (RankStatus& rank : task.ranks) rank = s->Rank(rank.rank);
  }
  return EvidenceOf(job.tasks, job.generation, s->view).pairs;
}

TEST(EvidenceTest, ALostPeerIsALostPairOfNodes) {
  Scene s = Three();
  s.Gang("a").lost_peers = {{0, 1, kTimedOut}};
  EXPECT_THAT(PairsOf(&s), ElementsAre(TimedOut("a", "b")));
}

TEST(EvidenceTest, EachPairCountsOnce) {
  Scene s = Three();
  s.Gang("a").lost_peers = {{0, 1, kTimedOut}};
  s.Gang("b").lost_peers = {{1, 0, kTimedOut}};
  EXPECT_THAT(PairsOf(&s), SizeIs(1));
}

TEST(EvidenceTest, APeerThatHadEndedIsNoEvidence) {
  Scene s = Three();
  s.Gang("a").lost_peers = {{0, 1, kTimedOut}};
  s.Exited(1, At(&s, 0s, Signal(SIGSEGV)));
  s.Exited(0, At(&s, 1s, Code(75)));
  EXPECT_THAT(PairsOf(&s), IsEmpty());
}

TEST(EvidenceTest, APeerThatWasStoppedAfterTheLossIsEvidence) {
  Scene s = Three();
  s.Gang("a").lost_peers = {{0, 1, kTimedOut}};
  s.Exited(0, At(&s, 0s, Code(75)));
  s.Exited(1, At(&s, 1s, Victim(Signal(SIGTERM))));
  EXPECT_THAT(PairsOf(&s), ElementsAre(TimedOut("a", "b")));
}

TEST(EvidenceTest, AHostThatAnsweredIsNoEvidence) {
  for (const char* error :
       {"cannot connect to 10.0.0.2 port 7 (Connection refused)",
        "the connection to rank 1 is lost (it ended)",
        "Connection reset by peer"}) {
    Scene s = Three();
    s.Gang("a").lost_peers = {{0, 1, error}};
    EXPECT_THAT(PairsOf(&s), IsEmpty()) << error;
  }
}

TEST(EvidenceTest, ANodeSpeaksForItsOwnRanksOnly) {
  Scene s = Three();
  s.Gang("a").lost_peers = {
      {1, 2, kTimedOut}, {0, 7, kTimedOut}, {0, 0, kTimedOut}};
  EXPECT_THAT(PairsOf(&s), IsEmpty());
}

TEST(EvidenceTest, TwoNodesWhoseRanksAllStandLostEachOther) {
  Scene two = Running();
  two.view.all_stood = true;
  EXPECT_THAT(
      PairsOf(&two),
      ElementsAre(LostPair{"a", "b", "all ranks stalled in one all-reduce"}));
  Scene s = Three();
  s.view.all_stood = true;
  EXPECT_THAT(PairsOf(&s), IsEmpty()) << "nobody knows which";
}

TEST(EvidenceTest, WhatTheNodesSayNowGoesBeforeWhatTheRanksSaid) {
  Scene s = Three();
  s.Gang("a").lost_peers = {{0, 1, kTimedOut}};
  s.view.reached = {{"a", "b"}};
  LostPair tested = TimedOut("c", "b");
  tested.tested = true;
  s.view.unreached = {tested};
  LostPair doubted = TimedOut("a", "b");
  doubted.reached_since = true;
  EXPECT_THAT(PairsOf(&s), UnorderedElementsAre(doubted, tested));
}

TEST(SmallestCoverTest, OneHostExplainsAllItsPairs) {
  EXPECT_THAT(
      SmallestCover(
          {TimedOut("a", "b"), TimedOut("c", "b"), TimedOut("b", "d")}, "a"),
      ElementsAre("b"));
}

TEST(SmallestCoverTest, ATieKeepsTheSideOfRank0) {
  EXPECT_THAT(SmallestCover({TimedOut("a", "b")}, "a"), ElementsAre("b"));
  EXPECT_THAT(SmallestCover({TimedOut("a", "b")}, "b"), ElementsAre("a"));
}

TEST(SmallestCoverTest, IsTheSmallestWhereTheBusiestIsNotInIt) {
  // The centre has most pairs, and its three neighbours are needed anyway.
  const std::vector<LostPair> pairs = {
      TimedOut("m", "a"),  TimedOut("m", "b"),  TimedOut("m", "c"),
      TimedOut("a", "a1"), TimedOut("a", "a2"), TimedOut("b", "b1"),
      TimedOut("b", "b2"), TimedOut("c", "c1"), TimedOut("c", "c2")};
  EXPECT_THAT(SmallestCover(pairs, "m"), ElementsAre("a", "b", "c"));
}

TEST(SmallestCoverTest, NobodyIsBlamedWhereNoFewExplainIt) {
  std::vector<LostPair> all;
  for (char a = 'a'; a < 'm'; ++a) {
    for (char b = static_cast<char>(a + 1); b < 'm'; ++b) {
      all.push_back(TimedOut(std::string(1, a), std::string(1, b)));
    }
  }
  EXPECT_THAT(SmallestCover(all, "a"), IsEmpty());
  EXPECT_THAT(SmallestCover({}, "a"), IsEmpty());
}

// ---- Pair tests ------------------------------------------------------------

TEST(PairProbeTest, SaysWhoIsReachedOnceAllHaveAnswered) {
  const MonoTime now{};
  PairProbe test({{"a", {"b", "c"}}, {"b", {"a", "c"}}, {"c", {"a", "b"}}},
                 now + 1s);
  EXPECT_FALSE(test.IsOver(now));
  for (const char* node : {"a", "b", "c"}) {
    for (const char* other : {"a", "b", "c"}) {
      const bool cut = (node[0] == 'a' && other[0] == 'b');
      test.Take(node, {other, !cut, cut ? "Connection timed out" : ""});
    }
  }
  EXPECT_TRUE(test.IsOver(now));
  LostPair lost{"a", "b", "Connection timed out"};
  lost.tested = true;
  EXPECT_THAT(test.Unreached(), ElementsAre(lost)) << "one way is enough";
  EXPECT_THAT(test.Reached(),
              ElementsAre(std::pair("a", "c"), std::pair("b", "c")));
}

TEST(PairProbeTest, WhoDoesNotAnswerSaysNothing) {
  const MonoTime now{};
  PairProbe test({{"a", {"b"}}, {"b", {"a"}}}, now + 1s);
  test.Take("a", {"b", true, ""});
  test.Take("c", {"a", false, "nobody asked"});
  EXPECT_FALSE(test.IsOver(now + 999ms));
  EXPECT_TRUE(test.IsOver(now + 1s));
  EXPECT_THAT(test.Unreached(), IsEmpty());
  EXPECT_THAT(test.Reached(), IsEmpty());
}

// ---- What the job makes of it ----------------------------------------------

// The network between a and b is cut under a job that runs.
void Cut(Scene* s) {
  s->Gang("a").lost_peers = {{0, 1, kTimedOut}};
  s->Exited(0, Victim(Code(75)));
  s->Settle();
  ASSERT_TRUE(s->job.failing);
  s->AllStopped();
  s->Settle();
}

TEST(LostPairTest, AJobThatLostAPairHoldsAndUsesUpNoTry) {
  Scene s = Running();
  Cut(&s);
  EXPECT_EQ(s.job.state, JobState::kPlacing) << "not at once where it was";
  EXPECT_EQ(s.job.cause.reason, Reason::kCannotForm);
  EXPECT_THAT(s.job.cause.message, HasSubstr("a did not reach b"));
  EXPECT_EQ(s.job.failures_without_progress, 0);
  EXPECT_EQ(s.job.not_before, s.now.wall + 1s);
  EXPECT_EQ(UnchargedFailures(s.job, s.now.wall), 1);
}

TEST(LostPairTest, TheEleventhWithinAnHourUsesUpATry) {
  Scene s = Running();
  for (int i = 0; i < kMostUncharged; ++i) {
    Cut(&s);
    ASSERT_EQ(s.job.failures_without_progress, 0) << i;
    s.Advance(1min);
    s.Run({"a", "b"});
  }
  Cut(&s);
  EXPECT_EQ(s.job.failures_without_progress, 1);
  s.Advance(60min);
  s.Run({"a", "b"});
  Cut(&s);
  EXPECT_EQ(s.job.failures_without_progress, 1) << "the hour is over";
}

TEST(LostPairTest, AProgramThatMakesManyEventsIsCountedAllTheSame) {
  Scene s = Running();
  for (int i = 0; i < kMostUncharged; ++i) {
    Cut(&s);
    ASSERT_EQ(s.job.failures_without_progress, 0) << i;
    s.Advance(1min);
    s.Run({"a", "b"});
    // All that are kept, and no two alike.
    for (size_t k = 0; k < kMaxEvents; ++k) {
      AddEvent(&s.job, Reason::kNone, fmt::format("{} {}", i, k), s.now);
    }
  }
  Cut(&s);
  EXPECT_EQ(s.job.failures_without_progress, 1);
  EXPECT_LE(s.job.uncharged_failures.size(), size_t{kMostUncharged});
}

TEST(LostPairTest, AProgramThatFailsByItselfUsesUpATry) {
  Scene s = Running();
  s.Exited(1, At(&s, 0s, Signal(SIGSEGV)));
  s.Gang("a").lost_peers = {{0, 1, kTimedOut}};
  s.Exited(0, At(&s, 1s, Victim(Code(75))));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.failures_without_progress, 1);
  EXPECT_EQ(s.job.cause.reason, Reason::kPreparingNodes);
}

TEST(LostPairTest, TheDecisionWaitsForThePairTest) {
  Scene s = Running();
  s.Exited(0, Victim(Code(75)));
  s.Settle();
  s.view.testing_pairs = true;
  s.AllStopped();
  s.Settle();
  EXPECT_TRUE(s.job.failing);
  EXPECT_THAT(s.job.holds, SizeIs(2)) << "nobody else gets its places";
  s.view.testing_pairs = false;
  LostPair tested = TimedOut("a", "b");
  tested.tested = true;
  s.view.unreached = {tested};
  s.Settle();
  EXPECT_EQ(s.job.cause.reason, Reason::kCannotForm);
  EXPECT_EQ(s.job.failures_without_progress, 0);
}

TEST(LostPairTest, AfterTenMinutesItWaitsInTheQueue) {
  Scene s = Running();
  Cut(&s);
  s.Advance(5min);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  // A look that finds the same does not begin the time anew.
  s.Run({"a", "b"});
  Cut(&s);
  s.Advance(5min);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kQueued);
  EXPECT_EQ(s.job.cause.reason, Reason::kCannotForm);
  s.Run({"a", "c"});
}

TEST(LostPairTest, ANodeThatIsLateToPrepareUsesUpNoTry) {
  Scene s = Preparing();
  s.Gang("a").phase = GangPhase::kPrepared;
  s.Gang("b").phase = GangPhase::kPreparing;
  const Cause cause{Reason::kPrepareTimeout, "not prepared after 10 s"};
  s.view.late = LateNodes(s.job, s.view, cause);
  EXPECT_THAT(s.view.late, ElementsAre("b"));
  s.job.failing = cause;
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.failures_without_progress, 0);
}

TEST(LostPairTest, WhoFetchesIsNotLate) {
  Scene s = Preparing();
  TaskPreparation fetching;
  fetching.current = kFetchPart;
  s.Gang("b").preparations = {fetching};
  EXPECT_THAT(LateNodes(s.job, s.view, {Reason::kPrepareTimeout, ""}),
              ElementsAre("a"));
}

TEST(LostPairTest, AKillOnANodeThatCoolsUsesUpNoTry) {
  Scene s = Running();
  s.view.nodes["b"].cools = true;
  s.view.nodes["b"].takes_work = false;
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.failures_without_progress, 0);
}

TEST(KilledTwiceTest, TwoKillsInARowOnOneNode) {
  Scene s = Running();
  for (const int32_t rank : {0, 1, 1}) {
    EXPECT_EQ(KilledTwiceOn(s.job), std::nullopt);
    s.Exited(rank, Signal(SIGKILL));
    s.Settle();
    s.AllStopped();
    s.Settle();
    if (s.job.state == JobState::kPlacing) s.Advance(1min);
    s.Run({"a", "b"});
  }
  EXPECT_EQ(KilledTwiceOn(s.job), "b");
}

// Another's processes may have used up the node's memory.
TEST(KilledTwiceTest, AProbableWantOfMemoryIsAKillOfTheNodes) {
  Scene s = Running();
  ExitStatus memory = Signal(SIGKILL);
  memory.reason = Reason::kOutOfMemory;
  for (const ExitStatus& exit : {Signal(SIGKILL), memory}) {
    EXPECT_EQ(KilledTwiceOn(s.job), std::nullopt);
    s.Exited(1, exit);
    s.Settle();
    s.AllStopped();
    s.Settle();
    if (s.job.state == JobState::kPlacing) s.Advance(1min);
    s.Run({"a", "b"});
  }
  EXPECT_EQ(KilledTwiceOn(s.job), "b");
}

}  // namespace
}  // namespace lockstep::server
