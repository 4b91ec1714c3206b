// A drained node of a job that recovers in place is replaced by another one.
#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;

class ReplacedNodeTest : public CoordinatorTest {
 protected:
  ReplacedNodeTest() { all_.push_back(&c_); }

  // Its ranks recover, and have joined what the daemon was told last.
  void Join(FakeDaemon* daemon) {
    FakeDaemon::Gang* const gang = daemon->Find("j");
    ASSERT_NE(gang, nullptr);
    for (RankStatus& rank : gang->status.ranks) {
      rank.recoverable = true;
      rank.recovery = gang->assignment.recovery;
    }
    gang->dirty = true;
    Run();
  }
  void Begin() {
    Connect(&a_);
    Connect(&b_);
    MustSubmit(Wide("j"));
    Run();
    Join(&a_);
    Join(&b_);
    ASSERT_EQ(State("j"), JobState::kRunning);
  }
  StatusCode CheckLog(FakeDaemon& from, NodeSessions::LogPlace* place) {
    return coordinator_->sessions()
        ->CheckLog(from.session(), "j", Get("j").uid, 1, 1, place)
        .code();
  }

  FakeDaemon c_{"c", {2, int64_t{8} << 30, 0, ""}};
};

TEST_F(ReplacedNodeTest, WaitsForANodeThatComesLater) {
  Begin();
  ASSERT_TRUE(DrainNode("b", 10min).ok());
  Run();
  EXPECT_EQ(Get("j").recovery, 0u);
  ASSERT_EQ(Get("j").replacements.size(), 1u);
  EXPECT_EQ(Get("j").replacements[0].to, "");
  Connect(&c_);
  Run();
  const Job job = Get("j");
  EXPECT_EQ(job.state, JobState::kRunning);
  EXPECT_EQ(job.recovery, 1u);
  EXPECT_EQ(job.tasks[1].node, "c");
  EXPECT_EQ(job.tasks[1].former_nodes, std::vector<NodeName>{"b"});
  const FakeDaemon::Gang* const old = b_.Find("j");
  EXPECT_TRUE(old == nullptr || !FakeDaemon::Alive(*old));
  const Assignment& told = c_.Find("j")->assignment;
  EXPECT_EQ(told.goal, Goal::kGo);
  EXPECT_EQ(told.recovery, 1u);
  EXPECT_EQ(told.cluster->tasks[1].node, "c");
  EXPECT_EQ(a_.Find("j")->assignment.cluster->tasks[1].node, "c")
      << "all are told the same";
  CheckBooking();
}

// Also after a coordinator's restart in between.
TEST_F(ReplacedNodeTest, IsStored) {
  Begin();
  Connect(&c_);
  c_.habits.prepares = false;
  ASSERT_TRUE(DrainNode("b", 10min).ok());
  Run();
  ASSERT_EQ(Get("j").replacements[0].to, "c");
  Restart();
  for (FakeDaemon* daemon : all_) Connect(daemon);
  Run();
  ASSERT_EQ(Get("j").replacements[0].to, "c");
  c_.habits.prepares = true;
  Pass(std::chrono::seconds(1));
  EXPECT_EQ(Get("j").tasks[1].node, "c");
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(ReplacedNodeTest, LogsAreTakenFromBothNodes) {
  Begin();
  Connect(&c_);
  ASSERT_TRUE(DrainNode("b", 10min).ok());
  Run();
  ASSERT_EQ(Get("j").tasks[1].node, "c");
  NodeSessions::LogPlace place;
  EXPECT_EQ(CheckLog(b_, &place), StatusCode::kOk);
  EXPECT_EQ(place.moves, 0);
  EXPECT_EQ(CheckLog(c_, &place), StatusCode::kOk);
  EXPECT_EQ(place.moves, 1);
  EXPECT_EQ(CheckLog(a_, &place), StatusCode::kPermissionDenied);
}

// What the old process says to its peers comes too late, and is no error.
TEST_F(ReplacedNodeTest, TheOldNodeMeetsTheOthersNoMore) {
  Begin();
  Connect(&c_);
  ASSERT_TRUE(DrainNode("b", 10min).ok());
  Run();
  ASSERT_EQ(Get("j").recovery, 1u);
  EXPECT_TRUE(coordinator_->sessions()
                  ->OnRendezvousPut(b_.session(), "j", 1, "recovery/1/x", "b")
                  .ok());
  EXPECT_TRUE(coordinator_->sessions()
                  ->OnRendezvousPut(c_.session(), "j", 1, "recovery/1/x", "c")
                  .ok());
  EXPECT_TRUE(coordinator_->sessions()
                  ->OnRendezvousGet(a_.session(), "j", 1, "recovery/1/x")
                  .ok());
  ASSERT_FALSE(a_.rendezvous.empty());
  EXPECT_NE(a_.rendezvous.back().find("c"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::server
