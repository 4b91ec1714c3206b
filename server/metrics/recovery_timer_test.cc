#include "server/metrics/recovery_timer.h"

#include <gtest/gtest.h>

#include <csignal>

#include "server/core/replacing.h"
#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

// Two ranks on a and b, which recover.
class RecoveryTimerTest : public testing::Test {
 protected:
  RecoveryTimerTest() : scene_(NativeSpec("j", 2)), seen_(scene_.job) {
    scene_.Run({"a", "b"});
    for (int32_t rank : {0, 1}) scene_.Rank(rank).recoverable = true;
    Settle();
  }
  void Settle() {
    scene_.Settle();
    Tell();
  }
  void Tell() {
    if (scene_.job == seen_) return;
    timer_.OnJob(seen_, scene_.job, scene_.now.mono, &timings_);
    seen_ = scene_.job;
  }
  void Is(int32_t rank, RankState state, Duration after) {
    scene_.Advance(after);
    RankStatus& status = scene_.Rank(rank);
    status = RankStatus();
    status.rank = rank;
    status.recoverable = true;
    status.restarts = RanksOf(scene_.job)[static_cast<size_t>(rank)]->restarts;
    status.state = state;
    if (state == RankState::kJoined) status.recovery = scene_.job.recovery;
    Settle();
  }
  double Sum(const char* phase) const {
    return timings_.phases.at(phase).sum();
  }

  Scene scene_;
  Job seen_;
  RecoveryTimer timer_;
  RecoveryTimings timings_;
};

TEST_F(RecoveryTimerTest, AReplacedRank) {
  scene_.Exited(1, Code(1));
  Settle();
  Is(1, RankState::kStarted, 200ms);
  Is(1, RankState::kJoined, 300ms);
  EXPECT_EQ(timings_.kinds.at("rank"), 0) << "rank 0 has not joined";
  Is(0, RankState::kJoined, 100ms);
  EXPECT_EQ(timings_.kinds.at("rank"), 1);
  EXPECT_NEAR(Sum("start"), 0.2, 1e-6);
  EXPECT_NEAR(Sum("form"), 0.4, 1e-6);
  EXPECT_NEAR(Sum("total"), 0.6, 1e-6);
  EXPECT_EQ(Sum("node"), 0);
}

TEST_F(RecoveryTimerTest, ARankOnAnotherNode) {
  scene_.view.nodes["b"].state = NodeState::kLost;
  Settle();
  scene_.Advance(2s);
  std::vector<HostCapacity> hosts = {Host("e", 8)};
  PlaceReplacements(&scene_.job, {}, &hosts, scene_.now);
  Tell();
  JobView::Node& node = scene_.view.nodes["e"];
  node.state = NodeState::kReady;
  node.reported = true;
  GangStatus gang;
  gang.job = "j";
  gang.job_uid = "uid";
  gang.generation = 1;
  gang.phase = GangPhase::kPrepared;
  gang.ports = {1};
  gang.ranks.resize(1);
  gang.ranks[0].rank = 1;
  node.gangs[1] = gang;
  scene_.Advance(1s);
  Settle();
  ASSERT_EQ(scene_.job.recovery, 1u);
  Is(1, RankState::kStarted, 500ms);
  Is(1, RankState::kJoined, 100ms);
  Is(0, RankState::kJoined, 0s);
  EXPECT_EQ(timings_.kinds.at("node"), 1);
  EXPECT_EQ(timings_.kinds.at("rank"), 0);
  EXPECT_NEAR(Sum("node"), 3, 1e-6);
  EXPECT_NEAR(Sum("start"), 0.5, 1e-6);
  EXPECT_NEAR(Sum("total"), 3.6, 1e-6);
}

TEST_F(RecoveryTimerTest, ARestartOfTheGangIsNone) {
  scene_.Exited(1, Code(1));
  Settle();
  scene_.Exited(0, Code(127));
  Settle();
  ASSERT_TRUE(scene_.job.failing);
  EXPECT_EQ(timings_.kinds.at("rank"), 0);
  EXPECT_EQ(Sum("total"), 0);
}

}  // namespace
}  // namespace lockstep::server
