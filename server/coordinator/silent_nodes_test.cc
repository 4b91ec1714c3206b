// A program on a host that falls silent.
#include <gmock/gmock.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

// The program j runs on a; b, c and d idle.
class SilentNodesTest : public CoordinatorTest {
 protected:
  SilentNodesTest() {
    int number = 0;
    for (FakeDaemon* daemon : {&a_, &b_, &c_, &d_}) {
      daemon->info.address = fmt::format("10.0.0.{}", ++number);
      daemon->probe_port = 40000 + number;
    }
    all_ = {&a_, &b_, &c_, &d_};
    Quiet(20min);
  }
  void Start(JobSpec spec = Program()) {
    for (FakeDaemon* daemon : all_) Connect(daemon);
    MustSubmit(spec);
    Run();
    ASSERT_EQ(State("j"), JobState::kRunning);
    ASSERT_NE(a_.Find("j"), nullptr) << "of equal nodes the first is taken";
    // By then all have their lists.
    Pass(6min, 1s);
  }
  static JobSpec Program() {
    JobSpec spec = NativeSpec("j", 1);
    spec.kind = JobKind::kProgram;
    return spec;
  }
  // What the others say of a.
  void Quiet(Duration quiet) {
    for (FakeDaemon* daemon : all_) {
      daemon->reaches["a"] = false;
      daemon->quiet["a"] = quiet;
    }
  }
  std::vector<std::string> Said() {
    std::vector<std::string> said;
    for (const Event& event : Get("j").events) {
      if (event.reason == Reason::kNodeUnknown) said.push_back(event.message);
    }
    return said;
  }
  std::string Shown() {
    const auto job = coordinator_->queries()->GetJob("j");
    return job.ok() && job->waiting ? job->waiting->message : "";
  }
  bool NeedsOperator(const NodeName& node) {
    return coordinator_->queries()->GetNode(node)->needs_operator;
  }
  bool Moved() { return Get("j").generation == 2; }

  FakeDaemon c_{"c", {2, int64_t{8} << 30, 0, ""}};
  FakeDaemon d_{"d", {2, int64_t{8} << 30, 0, ""}};
};

TEST_F(SilentNodesTest, TheOnlySilentHostIsLostAfterFiveMinutes) {
  Start();
  a_.Disconnect();
  Pass(5s, 1s);
  ASSERT_THAT(Said(), ElementsAre(HasSubstr("its ranks end by themselves by")));
  EXPECT_EQ(Shown(), Said()[0]);
  EXPECT_FALSE(NeedsOperator("a"));
  Pass(294s, 1s);
  EXPECT_FALSE(Moved()) << "its ranks end after 4 min, and it moves after 5";
  EXPECT_THAT(d_.probes, IsEmpty()) << "all are asked at the end only";
  Pass(5s, 1s);
  EXPECT_TRUE(Moved());
  EXPECT_EQ(Get("j").attempts.back().end_cause.reason, Reason::kNodeLost);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(StateOf("a"), NodeState::kLost);
  EXPECT_EQ(Get("j").failures_without_progress, 0) << "it was not its fault";
}

TEST_F(SilentNodesTest, WhatASilentHostDidIsNotBilled) {
  Start();
  const double before = Get("j").bill.core_seconds +
                        coordinator_->queries()->GetJob("j")->bill.core_seconds;
  a_.Disconnect();
  Pass(200s, 1s);
  EXPECT_NEAR(coordinator_->queries()->GetJob("j")->bill.core_seconds, before,
              1.5);
  Pass(110s, 1s);
  ASSERT_TRUE(Moved());
  EXPECT_NEAR(Get("j").bill.core_seconds, before, 1.5);
}

TEST_F(SilentNodesTest, AHostThatANeighbourHasAnsweredIsWaitedFor) {
  Start();
  Quiet(20min);
  c_.quiet["a"] = 10s;
  a_.Disconnect();
  Pass(30min, 1s);
  EXPECT_FALSE(Moved());
  EXPECT_TRUE(NeedsOperator("a"));
  EXPECT_THAT(Shown(), HasSubstr("c has answered it since"));
  EXPECT_THAT(Shown(), HasSubstr("lockstep nodes forget a --yes"));
  EXPECT_EQ(Said().size(), 2u) << "each turn is said once";
  // Then it dies.
  c_.quiet["a"] = 5min;
  Pass(10s, 1s);
  EXPECT_TRUE(Moved());
}

TEST_F(SilentNodesTest, AllThatAreReadyAreAskedAndMustAnswer) {
  Start();
  d_.reaches.erase("a");
  a_.Disconnect();
  Pass(10min, 1s);
  EXPECT_FALSE(Moved());
  EXPECT_THAT(d_.probes, Not(IsEmpty()));
  d_.reaches["a"] = false;
  Pass(10s, 1s);
  EXPECT_TRUE(Moved());
}

TEST_F(SilentNodesTest, HostsThatFallSilentTogetherWaitForAnOperator) {
  Start();
  a_.Disconnect();
  Pass(60s, 1s);
  d_.Disconnect();
  Pass(5s, 1s);
  EXPECT_THAT(Said().back(), HasSubstr("d fell silent at about the same time"));
  EXPECT_TRUE(NeedsOperator("a"));
  EXPECT_FALSE(NeedsOperator("d")) << "nothing runs there";
  Pass(60min, 1s);
  EXPECT_FALSE(Moved());
  // It may still be an answering neighbour of a.
  ASSERT_TRUE(ForgetNode("d").ok());
  Pass(10min, 1s);
  EXPECT_FALSE(Moved());
  ASSERT_TRUE(ForgetNode("a").ok());
  Pass(10s, 1s);
  EXPECT_TRUE(Moved());
}

TEST_F(SilentNodesTest, OneThatFellSilentLongBeforeDoesNotCount) {
  Start();
  d_.Disconnect();
  Pass(6min, 1s);
  a_.Disconnect();
  Pass(5min + 5s, 1s);
  EXPECT_TRUE(Moved());
}

TEST_F(SilentNodesTest, DaemonsOfOneHostFallSilentTogether) {
  d_.info.address = a_.info.address;
  Start();
  a_.Disconnect();
  d_.Disconnect();
  Pass(5min + 5s, 1s);
  EXPECT_TRUE(Moved());
}

TEST_F(SilentNodesTest, AClusterOfOneHostWaits) {
  all_ = {&a_};
  Connect(&a_);
  MustSubmit(Program());
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(a_.Find("j")->status.fence, std::nullopt) << "it may sleep";
  a_.Disconnect();
  Pass(60min, 1s);
  EXPECT_FALSE(Moved());
  EXPECT_THAT(Shown(), HasSubstr("no other host is connected"));
}

TEST_F(SilentNodesTest, ADaemonThatDoesNotConfirmIsWaitedFor) {
  a_.habits.fences = false;
  Start();
  a_.Disconnect();
  Pass(60min, 1s);
  EXPECT_FALSE(Moved());
  EXPECT_THAT(Shown(), HasSubstr("has not confirmed"));
}

TEST_F(SilentNodesTest, ARestartedCoordinatorCountsAnew) {
  Start();
  a_.Disconnect();
  Pass(280s, 1s);
  Restart();
  for (FakeDaemon* daemon : {&b_, &c_, &d_}) Connect(daemon);
  Pass(295s, 1s);
  EXPECT_FALSE(Moved());
  // That it ends its ranks is in the store, and its port is not needed.
  Pass(12s, 1s);
  EXPECT_TRUE(Moved());
}

TEST_F(SilentNodesTest, ACoordinatorThatStoodStillGivesThatTimeAgain) {
  Start();
  a_.Disconnect();
  Pass(280s, 1s);
  clock_.Advance(60s);
  Run();
  Pass(15s, 1s);
  EXPECT_FALSE(Moved());
  Pass(15s, 1s);
  EXPECT_TRUE(Moved());
}

TEST_F(SilentNodesTest, AHostThatIsBackGoesOn) {
  Start();
  a_.Disconnect();
  Pass(200s, 1s);
  Connect(&a_);
  Pass(20min, 1s);
  EXPECT_FALSE(Moved());
  EXPECT_THAT(Said().back(), HasSubstr("goes on"));
  EXPECT_EQ(Said().size(), 2u);
}

TEST_F(SilentNodesTest, ATimeOfTheJobHoldsInAnyCase) {
  JobSpec spec = Program();
  spec.node_lost_timeout = 60s;
  Start(spec);
  EXPECT_EQ(a_.Find("j")->status.fence, (Fence{48s, false}));
  Quiet(0s);
  a_.Disconnect();
  d_.Disconnect();
  Pass(59s, 1s);
  EXPECT_FALSE(Moved());
  Pass(4s, 1s);
  EXPECT_TRUE(Moved());
}

TEST_F(SilentNodesTest, NeverWaitsForAnOperator) {
  JobSpec spec = Program();
  spec.node_loss = NodeLoss::kNever;
  Start(spec);
  EXPECT_EQ(a_.Find("j")->status.fence, std::nullopt);
  a_.Disconnect();
  Pass(60min, 1s);
  EXPECT_FALSE(Moved());
  EXPECT_THAT(Shown(), HasSubstr("--node-lost-timeout never"));
  EXPECT_THAT(d_.probes, IsEmpty());
}

// Each job of a node has its own time.
TEST_F(SilentNodesTest, AnotherJobOfTheNodeMayWait) {
  JobSpec never = Program();
  never.name = "k";
  never.node_loss = NodeLoss::kNever;
  // Of equal nodes the first is taken, and so a is for both.
  for (FakeDaemon* daemon : {&b_, &c_, &d_}) daemon->info.capacity.cpus = 1;
  for (FakeDaemon* daemon : all_) Connect(daemon);
  for (const char* other : {"b", "c", "d"}) ASSERT_TRUE(DrainNode(other).ok());
  MustSubmit(Program());
  MustSubmit(never);
  Run();
  for (const char* other : {"b", "c", "d"}) {
    ASSERT_TRUE(UndrainNode(other).ok());
  }
  Pass(6min, 1s);
  ASSERT_EQ(State("k"), JobState::kRunning);
  ASSERT_NE(a_.Find("k"), nullptr);
  a_.Disconnect();
  Pass(5min + 10s, 1s);
  EXPECT_TRUE(Moved());
  EXPECT_EQ(Get("k").generation, 1u);
  EXPECT_EQ(StateOf("a"), NodeState::kUnknown);
}

TEST_F(SilentNodesTest, NodesAreToldTheirNeighboursThatAreReady) {
  Start();
  EXPECT_THAT(a_.neighbours(), UnorderedElementsAre("b", "c", "d"));
  b_.Disconnect();
  Pass(10s, 1s);
  EXPECT_THAT(a_.neighbours(), Not(Contains("b")));
  Connect(&b_);
  Pass(10s, 1s);
  EXPECT_THAT(a_.neighbours(), Contains("b"));
}

TEST_F(SilentNodesTest, ADrainedHostThatIsSwitchedOffNeedsNoOperator) {
  Start();
  ASSERT_TRUE(DrainNode("d").ok());
  d_.Disconnect();
  Pass(10min, 1s);
  EXPECT_EQ(StateOf("d"), NodeState::kDrained);
  EXPECT_FALSE(NeedsOperator("d"));
}

}  // namespace
}  // namespace lockstep::server
