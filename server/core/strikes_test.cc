#include "server/core/strikes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/place_gang.h"
#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// The nodes say so themselves.
LostPair Lost(const NodeName& from, const NodeName& to) {
  return {from, to, "Connection timed out", /*reached_since=*/false,
          /*tested=*/true};
}
// Only a rank does, and these are its words.
LostPair Claimed(const NodeName& from, const NodeName& to) {
  return {from, to, "s3cret"};
}

class StrikesTest : public testing::Test {
 protected:
  void Advance(Duration by) {
    now_.mono += by;
    now_.wall += by;
    strikes_.Expire(now_);
  }
  // A generation of another job of which `node` was late.
  Strikes::News Late(const NodeName& node) {
    return strikes_.Take("late" + std::to_string(++jobs_), 1, {{}, {node}}, "a",
                         now_);
  }
  Strikes::News Loses(std::vector<LostPair> pairs) {
    return strikes_.Take("loses", ++generation_, {std::move(pairs), {}}, "a",
                         now_);
  }
  bool Cools(const NodeName& node) {
    return strikes_.CoolingOf(node) != nullptr;
  }

  Strikes strikes_;
  Time now_{MonoTime{} + 1h, WallTime{} + 24h};
  int jobs_ = 0;
  Generation generation_ = 0;
};

TEST_F(StrikesTest, TheSecondStrikeNotTheFirstCoolsANode) {
  EXPECT_THAT(Late("b").cooled, IsEmpty());
  EXPECT_FALSE(Cools("b"));
  Advance(9min);
  EXPECT_THAT(Late("b").cooled, SizeIs(1));
  ASSERT_TRUE(Cools("b"));
  EXPECT_EQ(strikes_.CoolingOf("b")->until, now_.wall + 60s);
  EXPECT_FALSE(Cools("a"));
  Advance(59s);
  EXPECT_TRUE(Cools("b"));
  Advance(1s);
  EXPECT_FALSE(Cools("b")) << "it has always an end";
}

TEST_F(StrikesTest, StrikesThatAreFarApartAreTwoFirstOnes) {
  Late("b");
  Advance(11min);
  Late("b");
  EXPECT_FALSE(Cools("b"));
}

TEST_F(StrikesTest, CoolingDoublesUpToAnHourAndIsForgottenAfterOne) {
  for (const Duration wait :
       {Duration(1min), Duration(2min), Duration(4min), Duration(8min),
        Duration(16min), Duration(32min), Duration(60min), Duration(60min)}) {
    Late("b");
    EXPECT_FALSE(Cools("b")) << "never after a single failure";
    Late("b");
    ASSERT_TRUE(Cools("b"));
    EXPECT_EQ(strikes_.CoolingOf("b")->until, now_.wall + wait);
    Advance(wait);
    ASSERT_FALSE(Cools("b"));
  }
  Advance(61min);
  Late("b");
  Late("b");
  EXPECT_EQ(strikes_.CoolingOf("b")->until, now_.wall + 1min);
}

TEST_F(StrikesTest, AGenerationCountsOnce) {
  for (int i = 0; i < 3; ++i) {
    strikes_.Take("uid", 1, {{}, {"b"}}, "a", now_);
  }
  EXPECT_FALSE(Cools("b"));
  strikes_.Take("uid", 2, {{}, {"b"}}, "a", now_);
  EXPECT_TRUE(Cools("b"));
}

TEST_F(StrikesTest, APairIsApartFromTheFirstTimeAndNoStrike) {
  const Strikes::News news = Loses({Lost("c", "b")});
  ASSERT_THAT(news.apart, SizeIs(1));
  EXPECT_EQ(news.apart[0].a, "b");
  EXPECT_EQ(news.apart[0].b, "c");
  EXPECT_EQ(news.apart[0].until, now_.wall + 60s);
  EXPECT_THAT(news.apart[0].why, HasSubstr("c did not reach b"));
  EXPECT_THAT(strikes_.ApartFrom("c"), ElementsAre("b"));
  for (int i = 0; i < 5; ++i) Loses({Lost("c", "b")});
  EXPECT_FALSE(Cools("b"));
  EXPECT_FALSE(Cools("c"));
  Advance(60s);
  EXPECT_THAT(strikes_.AllApart(), IsEmpty());
}

TEST_F(StrikesTest, ApartDoublesUpToAnHourAndIsForgottenAfterTenMinutes) {
  for (const Duration wait :
       {Duration(1min), Duration(2min), Duration(4min), Duration(8min),
        Duration(16min), Duration(32min), Duration(60min), Duration(60min)}) {
    const auto news = Loses({Lost("b", "c")});
    ASSERT_THAT(news.apart, SizeIs(1));
    EXPECT_EQ(news.apart[0].until, now_.wall + wait);
    Advance(wait);
    EXPECT_THAT(strikes_.AllApart(), IsEmpty());
    Advance(9min);
  }
  Advance(2min);
  EXPECT_EQ(Loses({Lost("b", "c")}).apart[0].until, now_.wall + 1min);
}

TEST_F(StrikesTest, AHostThatSeveralPairsShareGetsTheStrike) {
  Loses({Lost("a", "d"), Lost("b", "d"), Lost("d", "c")});
  EXPECT_FALSE(Cools("d"));
  EXPECT_THAT(strikes_.AllApart(), SizeIs(3));
  Loses({Lost("a", "d"), Lost("b", "d")});
  EXPECT_TRUE(Cools("d"));
  for (const char* good : {"a", "b", "c"}) EXPECT_FALSE(Cools(good));
}

TEST_F(StrikesTest, APairThatReachesEachOtherIsApartFromTheSecondTimeOn) {
  LostPair doubted = Claimed("b", "c");
  doubted.reached_since = true;
  EXPECT_THAT(Loses({doubted}).apart, IsEmpty());
  EXPECT_THAT(Loses({doubted}).apart, SizeIs(1));
}

TEST_F(StrikesTest, WhatOnlyRanksSayIsNoStrike) {
  for (const bool reached : {true, false}) {
    std::vector<LostPair> pairs = {Claimed("a", "d"), Claimed("b", "d")};
    for (LostPair& pair : pairs) pair.reached_since = reached;
    for (int i = 0; i < 5; ++i) Loses(pairs);
    EXPECT_FALSE(Cools("d"));
  }
}

TEST_F(StrikesTest, OfNodesThatWereNotAskedRanksAreBelievedTheSecondTime) {
  EXPECT_THAT(Loses({Claimed("b", "c")}).apart, IsEmpty());
  const Strikes::News news = Loses({Claimed("b", "c")});
  ASSERT_THAT(news.apart, SizeIs(1));
  EXPECT_EQ(news.apart[0].why, "their ranks lost each other")
      << "all see it, and a rank's words are not for all";
}

TEST_F(StrikesTest, WhatMendsIsTogetherAndItsTimesAreRemembered) {
  Loses({Lost("b", "c")});
  EXPECT_TRUE(strikes_.Mend("c", "b", now_));
  EXPECT_FALSE(strikes_.Mend("c", "b", now_));
  EXPECT_THAT(strikes_.AllApart(), IsEmpty());
  EXPECT_EQ(Loses({Lost("b", "c")}).apart[0].until, now_.wall + 2min);
}

TEST_F(StrikesTest, AKillCountsWhenTheJobRunsElsewhere) {
  for (const char* job : {"one", "two"}) {
    EXPECT_FALSE(Cools("b"));
    strikes_.NoteKill(job, "b", now_);
    strikes_.NoteRan(job, {"a", "b"}, now_);
    EXPECT_TRUE(strikes_.HasKilled(job)) << "it runs there, too";
    strikes_.NoteRan(job, {"a", "c"}, now_);
    EXPECT_FALSE(strikes_.HasKilled(job));
    // Of one job there is one strike.
    strikes_.NoteRan(job, {"a", "c"}, now_);
  }
  EXPECT_TRUE(Cools("b"));
}

TEST_F(StrikesTest, AJobThatCrashesEverywhereIsNobodysStrike) {
  for (int i = 0; i < 20; ++i) {
    const std::string job = "crashes" + std::to_string(i);
    strikes_.NoteKill(job, "b", now_);
    strikes_.NoteKill(job, "c", now_);
    strikes_.ForgetJob(job);
  }
  EXPECT_FALSE(Cools("b"));
  EXPECT_FALSE(Cools("c"));
}

TEST_F(StrikesTest, AKillOfLongAgoDoesNotCount) {
  for (const char* job : {"one", "two"}) strikes_.NoteKill(job, "b", now_);
  Advance(11min);
  for (const char* job : {"one", "two"}) strikes_.NoteRan(job, {"a"}, now_);
  EXPECT_FALSE(Cools("b"));
}

TEST_F(StrikesTest, AnOperatorClearsANode) {
  Late("b");
  Late("b");
  Loses({Lost("b", "c")});
  EXPECT_TRUE(strikes_.Clear("b"));
  EXPECT_FALSE(Cools("b"));
  EXPECT_THAT(strikes_.ApartFrom("c"), IsEmpty());
  EXPECT_FALSE(strikes_.Clear("b"));
}

// ---- Placement -------------------------------------------------------------

void Part(const NodeName& a, const NodeName& b,
          std::vector<HostCapacity>* hosts) {
  const std::string why =
      "a did not reach b at 12:00:00 UTC: a and b are not placed together "
      "until 12:01:00 UTC";
  for (HostCapacity& host : *hosts) {
    if (host.node == a) host.apart[b] = why;
    if (host.node == b) host.apart[a] = why;
  }
}

std::vector<NodeName> PlacedOn(const std::vector<TaskPlacement>& placement) {
  std::vector<NodeName> nodes;
  for (const TaskPlacement& place : placement) nodes.push_back(place.node);
  return nodes;
}

TEST(PlaceApartTest, AGangGoesOnWithTheThirdNode) {
  std::vector<HostCapacity> hosts = {Host("a", 4), Host("b", 4), Host("c", 4)};
  Part("a", "b", &hosts);
  const auto placed = PlaceGang(Gang(2, {4, 0, 0, ""}), hosts);
  ASSERT_TRUE(placed);
  EXPECT_THAT(PlacedOn(*placed), ElementsAre("a", "c"));
}

TEST(PlaceApartTest, TheNodeThatIsApartFromAllOthersIsLeftOut) {
  std::vector<HostCapacity> hosts = {Host("a", 5), Host("b", 4), Host("c", 4),
                                     Host("d", 4)};
  for (const char* other : {"b", "c", "d"}) Part("a", other, &hosts);
  const auto placed = PlaceGang(Gang(3, {4, 0, 0, ""}), hosts);
  ASSERT_TRUE(placed) << "a is the largest, and tried first";
  EXPECT_THAT(PlacedOn(*placed), ElementsAre("b", "c", "d"));
}

TEST(PlaceApartTest, OneNodeIsNotApartFromItself) {
  std::vector<HostCapacity> hosts = {Host("a", 8), Host("b", 4)};
  Part("a", "b", &hosts);
  const auto placed = PlaceGang(Gang(2, {4, 0, 0, ""}), hosts);
  ASSERT_TRUE(placed);
  EXPECT_THAT(PlacedOn(*placed), ElementsAre("a", "a"));
}

class ApartQueueTest : public testing::Test {
 protected:
  ApartQueueTest() : job_(NewJob(Gang(2, {4, 0, 0, ""}), "uid", "ann", {})) {
    job_.spec.name = "j";
  }
  ScheduleResult Run() { return Schedule({{&job_, 1h, false}}, hosts_, {}); }

  std::vector<HostCapacity> hosts_ = {Host("a", 4), Host("b", 4)};
  Job job_;
};

TEST_F(ApartQueueTest, WhoWaitsForAPairIsToldWhich) {
  Part("a", "b", &hosts_);
  const ScheduleResult result = Run();
  EXPECT_THAT(result.placed, IsEmpty());
  EXPECT_EQ(result.waiting.at("j").reason, Reason::kCannotForm);
  EXPECT_THAT(result.waiting.at("j").message,
              HasSubstr("a did not reach b at 12:00:00 UTC: a and b are not "
                        "placed together until 12:01:00 UTC"));
}

TEST_F(ApartQueueTest, WhoWaitsForANodeThatCoolsIsTold) {
  hosts_[1].ready = false;
  hosts_[1].cooling = "cools down until 12:01:00 UTC (it was late)";
  EXPECT_EQ(Run().waiting.at("j").reason, Reason::kCannotForm);
  EXPECT_EQ(Run().waiting.at("j").message,
            "b cools down until 12:01:00 UTC (it was late)");
  hosts_[0].ready = false;
  EXPECT_EQ(Run().waiting.at("j").reason, Reason::kNoNodes);
}

TEST_F(ApartQueueTest, WhoDoesNotFitAnywayWaitsForCapacity) {
  Part("a", "b", &hosts_);
  hosts_[1].allocated.cpus = 1;
  EXPECT_EQ(Run().waiting.at("j").reason, Reason::kNoCapacity);
}

TEST_F(ApartQueueTest, ItStillCanEverFit) {
  Part("a", "b", &hosts_);
  EXPECT_THAT(WhyNeverFits(job_.spec, hosts_), IsEmpty());
}

TEST_F(ApartQueueTest, NobodyIsPlacedAgainOnAPairThatIsApart) {
  size_t order = 0;
  for (const char* node : {"a", "b"}) {
    TaskStatus task;
    task.type = order == 0 ? TaskType::kChief : TaskType::kWorker;
    task.node = node;
    task.ranks.resize(1);
    job_.tasks.push_back(task);
    ++order;
  }
  job_.attempts.resize(1);
  job_.attempts[0].end_cause.reason = Reason::kRankExit;
  EXPECT_TRUE(PlaceAgain(job_, job_.spec, hosts_));
  Part("a", "b", &hosts_);
  EXPECT_FALSE(PlaceAgain(job_, job_.spec, hosts_));
}

TEST_F(ApartQueueTest, WhoWasKilledTwiceOnANodeGoesElsewhere) {
  for (int i = 0; i < 2; ++i) {
    Attempt attempt;
    attempt.end_cause.reason = Reason::kRankSignal;
    TaskStatus task;
    task.node = "a";
    task.ranks.resize(1);
    task.ranks[0].exit = Signal(9);
    attempt.tasks = {task};
    job_.attempts.push_back(attempt);
  }
  hosts_.push_back(Host("c", 4));
  const ScheduleResult result = Run();
  ASSERT_THAT(result.placed, SizeIs(1));
  EXPECT_THAT(PlacedOn(result.placed[0].placement), ElementsAre("b", "c"));
  // Rather there than nowhere.
  hosts_.pop_back();
  EXPECT_THAT(Run().placed, SizeIs(1));
}

}  // namespace
}  // namespace lockstep::server
