#include "server/core/report_pace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/core/testing.h"

namespace lockstep::server {
namespace {

class ReportPaceTest : public testing::Test {
 protected:
  void Place(int nodes) {
    scene_ = Scene(NativeSpec("j", nodes));
    names_.clear();
    for (int i = 0; i < nodes; ++i) names_.push_back(fmt::format("n{:03}", i));
    scene_.Put(names_);
    pace_.Reset(scene_.job.generation, names_.size());
  }
  bool Says(size_t node, GangPhase phase, RankState state) {
    GangStatus& gang = scene_.Gang(names_[node]);
    gang.phase = phase;
    for (RankStatus& rank : gang.ranks) rank.state = state;
    return pace_.Take(scene_.job, names_[node], gang);
  }
  // All but rank 0's node, in order, with a decision whenever there is one;
  // how many there were, and whether the last report was one.
  std::pair<int, bool> AllSay(GangPhase phase, RankState state) {
    int decisions = 0;
    bool last = false;
    for (size_t i = 1; i < names_.size(); ++i) {
      last = Says(i, phase, state);
      if (!last) continue;
      ++decisions;
      pace_.Decided();
    }
    return {decisions, last};
  }

  Scene scene_{NativeSpec("j", 1)};
  std::vector<NodeName> names_;
  ReportPace pace_;
};

TEST_F(ReportPaceTest, SmallGangsNeverWait) {
  Place(31);
  EXPECT_EQ(AllSay(GangPhase::kPrepared, RankState::kPrepared).first, 30);
}

TEST_F(ReportPaceTest, APhaseOfAWideGangTakesFewDecisions) {
  for (const int nodes : {64, 512, 4096}) {
    Place(nodes);
    EXPECT_TRUE(Says(0, GangPhase::kPrepared, RankState::kPrepared));
    EXPECT_LE(AllSay(GangPhase::kPrepared, RankState::kPrepared).first, 17);
  }
}

TEST_F(ReportPaceTest, TheLastNodeOfAPhaseNeverWaits) {
  Place(70);
  const auto all = [&](GangPhase phase, RankState state) {
    Says(0, phase, state);
    pace_.Decided();
    return AllSay(phase, state).second;
  };
  EXPECT_TRUE(all(GangPhase::kPreparing, RankState::kPrepared));
  EXPECT_TRUE(all(GangPhase::kPrepared, RankState::kPrepared));
  EXPECT_TRUE(all(GangPhase::kLaunched, RankState::kStarted));
  EXPECT_TRUE(all(GangPhase::kLaunched, RankState::kJoined));
  EXPECT_TRUE(all(GangPhase::kStopped, RankState::kExited));
  // The next generation begins anew.
  pace_.Reset(scene_.job.generation + 1, names_.size());
  EXPECT_TRUE(all(GangPhase::kPreparing, RankState::kPrepared));
}

TEST_F(ReportPaceTest, WhatMayChangeTheCourseOfTheJobNeverWaits) {
  Place(512);
  EXPECT_TRUE(Says(0, GangPhase::kPreparing, RankState::kPrepared));
  pace_.Decided();
  EXPECT_FALSE(Says(1, GangPhase::kPreparing, RankState::kPrepared));
  EXPECT_TRUE(Says(2, GangPhase::kRefused, RankState::kPrepared));
  pace_.Decided();
  GangStatus& gang = scene_.Gang(names_[3]);
  gang.phase = GangPhase::kLaunched;
  gang.ranks[0].state = RankState::kExited;
  gang.ranks[0].exit = Code(0);
  EXPECT_FALSE(pace_.Take(scene_.job, names_[3], gang));
  gang.ranks[0].exit = Code(1);
  EXPECT_TRUE(pace_.Take(scene_.job, names_[3], gang));
  pace_.Decided();
  // It is being stopped: so do the others.
  scene_.job.failing = Cause{Reason::kRankExit, "rank 3"};
  EXPECT_FALSE(pace_.Take(scene_.job, names_[4], gang));
}

}  // namespace
}  // namespace lockstep::server
