// Silent nodes, and what their neighbours say of them.
#include <gmock/gmock.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// The job j runs on a and b; c and d idle. Of b the others say what the test
// says.
class InquiriesTest : public CoordinatorTest {
 protected:
  InquiriesTest() {
    int number = 0;
    for (FakeDaemon* daemon : {&a_, &b_, &c_, &d_}) {
      daemon->info.address = fmt::format("10.0.0.{}", ++number);
      daemon->probe_port = 40000 + number;
    }
    all_ = {&a_, &b_, &c_, &d_};
  }
  void RunJob(const JobSpec& spec) {
    Connect(&a_);
    Connect(&b_);
    MustSubmit(spec);
    Run();
    Connect(&c_);
    Connect(&d_);
    Run();
    ASSERT_EQ(State("j"), JobState::kRunning);
    StepFast("j");
  }
  void AllSayOfB(bool reached) {
    for (FakeDaemon* daemon : all_) daemon->reaches["b"] = reached;
  }
  // Until it is LOST; nullopt: it is not within `limit`.
  std::optional<Duration> LostAfter(Duration limit) {
    const MonoTime begun = clock_.Now().mono;
    while (clock_.Now().mono - begun < limit) {
      Pass(100ms, 100ms);
      if (StateOf("b") == NodeState::kLost) return clock_.Now().mono - begun;
    }
    return std::nullopt;
  }
  std::vector<std::string> Unreachable() {
    std::vector<std::string> said;
    const auto node = coordinator_->queries()->GetNode("b");
    for (const Event& event : node->member.events) {
      if (event.reason == Reason::kNodeUnreachable) {
        said.push_back(event.message);
      }
    }
    return said;
  }
  FakeDaemon c_{"c", {2, int64_t{8} << 30, 0, ""}};
  FakeDaemon d_{"d", {2, int64_t{8} << 30, 0, ""}};
};

TEST_F(InquiriesTest, AHostThatNoNeighbourReachesIsLostAtOnce) {
  RunJob(Wide("j"));
  AllSayOfB(false);
  b_.Disconnect();
  const auto lost = LostAfter(10s);
  ASSERT_TRUE(lost);
  EXPECT_LE(*lost, 4s);
  EXPECT_GT(*lost, 3s) << "its lease comes first";
  EXPECT_THAT(Unreachable(),
              ElementsAre("silent, and not reached by a (Connection timed out) "
                          "and c (Connection timed out)"));
  ASSERT_THAT(a_.probes, testing::Not(IsEmpty()));
  EXPECT_THAT(a_.probes[0].targets,
              ElementsAre(ProbeTarget{"b", "10.0.0.2", 40002}));
  EXPECT_EQ(a_.probes[0].timeout, 500ms);
  EXPECT_THAT(d_.probes, IsEmpty()) << "two are asked";
  Pass(3s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 2u);
}

TEST_F(InquiriesTest, AHostThatOneNeighbourReachesIsWaitedFor) {
  RunJob(Wide("j"));
  AllSayOfB(false);
  c_.reaches["b"] = true;
  b_.Disconnect();
  EXPECT_FALSE(LostAfter(60s));
  EXPECT_THAT(Unreachable(), IsEmpty());
  EXPECT_EQ(Get("j").generation, 1u);
  // It dies meanwhile: it is asked about again.
  c_.reaches["b"] = false;
  const auto lost = LostAfter(10s);
  ASSERT_TRUE(lost);
  EXPECT_LE(*lost, 6s);
}

TEST_F(InquiriesTest, AStepSinceThenProvesThatItLives) {
  RunJob(Wide("j"));
  AllSayOfB(false);
  b_.Disconnect();
  for (int64_t step = 101; step <= 200; ++step) {
    ASSERT_TRUE(a_.Progress("j", 1, step).ok());
    Pass(100ms, 100ms);
  }
  EXPECT_EQ(StateOf("b"), NodeState::kUnknown);
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_THAT(Unreachable(), SizeIs(1)) << "said once";
  const auto lost = LostAfter(10s);
  ASSERT_TRUE(lost);
  EXPECT_LE(*lost, 4s);
}

TEST_F(InquiriesTest, TheOnlyNeighbourThatIsThereDecides) {
  RunJob(Wide("j"));
  AllSayOfB(false);
  c_.Disconnect();
  d_.Disconnect();
  Pass(1s);
  b_.Disconnect();
  const auto lost = LostAfter(10s);
  ASSERT_TRUE(lost);
  EXPECT_LE(*lost, 6s);
  EXPECT_THAT(
      Unreachable(),
      ElementsAre("silent, and not reached by a (Connection timed out)"));
}

TEST_F(InquiriesTest, InAClusterOfTwoHostsTimeDecides) {
  all_ = {&a_, &b_};
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  StepFast("j");
  AllSayOfB(false);
  b_.Disconnect();
  EXPECT_FALSE(LostAfter(50s));
  EXPECT_THAT(a_.probes, IsEmpty());
  EXPECT_TRUE(LostAfter(20s));
}

// What runs beside a native job on its host changes nothing for it.
TEST_F(InquiriesTest, ANativeJobBesideAProgramGoesOnElsewhereAsSoon) {
  Connect(&a_);
  Connect(&b_);
  JobSpec spec = Wide("j");
  spec.roles.Edit()[0].resources.cpus = 2;
  spec.roles.Edit()[1].resources.cpus = 1;
  MustSubmit(spec);
  MustSubmit(ProgramSpec("p", {Role(TaskType::kChief, 1)}));
  Run();
  Connect(&c_);
  Connect(&d_);
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  ASSERT_EQ(State("p"), JobState::kRunning);
  ASSERT_EQ(Get("j").tasks[1].node, "b");
  ASSERT_EQ(Get("p").tasks[0].node, "b");
  StepFast("j");
  AllSayOfB(false);
  b_.Disconnect();
  const MonoTime begun = clock_.Now().mono;
  while (Get("j").generation == 1 && clock_.Now().mono - begun < 30s) {
    Pass(100ms, 100ms);
  }
  EXPECT_LE(clock_.Now().mono - begun, 6s);
  ASSERT_THAT(Get("j").attempts, SizeIs(1));
  EXPECT_EQ(Get("j").attempts[0].end_cause.reason, Reason::kNodeLost);
  Pass(3s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_FALSE(NodesOf(Get("j")).contains("b"));
  EXPECT_EQ(StateOf("b"), NodeState::kUnknown);
  EXPECT_EQ(State("p"), JobState::kRunning) << "it may live there";
  EXPECT_EQ(Get("p").generation, 1u);
}

TEST_F(InquiriesTest, WithoutAnAnswerTimeDecides) {
  RunJob(Wide("j"));
  a_.reaches["b"] = false;
  b_.Disconnect();
  EXPECT_FALSE(LostAfter(50s));
  EXPECT_TRUE(LostAfter(20s));
}

TEST_F(InquiriesTest, ADaemonFromBeforeIsNotAskedAbout) {
  b_.probe_port = 0;
  RunJob(Wide("j"));
  AllSayOfB(false);
  b_.Disconnect();
  EXPECT_FALSE(LostAfter(50s));
  EXPECT_THAT(a_.probes, IsEmpty());
}

TEST_F(InquiriesTest, AProgramIsHeldForEver) {
  RunJob(ProgramSpec("j",
                     {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 1)}));
  const NodeName where = Get("j").tasks[0].node;
  AllSayOfB(false);
  a_.reaches = c_.reaches = d_.reaches =
      b_.reaches = {{"a", false}, {"b", false}};
  (where == "a" ? a_ : b_).Disconnect();
  Pass(5min, 1s);
  EXPECT_EQ(StateOf(where), NodeState::kUnknown);
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(InquiriesTest, WhatWasNotAskedChangesNothing) {
  RunJob(Wide("j"));
  b_.Disconnect();
  Pass(3200ms, 100ms);
  ASSERT_THAT(a_.probes, SizeIs(1));
  const uint64_t id = a_.probes[0].id;
  const ProbeAnswer forged{id, {{"b", false, ""}, {"c", false, ""}}};
  EXPECT_TRUE(coordinator_->sessions()->OnProbed(d_.session(), forged).ok());
  EXPECT_TRUE(coordinator_->sessions()->OnProbed(a_.session(), forged).ok());
  EXPECT_TRUE(coordinator_->sessions()->OnProbed(a_.session(), forged).ok());
  EXPECT_TRUE(coordinator_->sessions()
                  ->OnProbed(c_.session(), {id + 1, {{"b", false, ""}}})
                  .ok());
  Pass(400ms, 100ms);
  EXPECT_EQ(StateOf("b"), NodeState::kUnknown);
  EXPECT_EQ(StateOf("c"), NodeState::kReady);
}

}  // namespace
}  // namespace lockstep::server
