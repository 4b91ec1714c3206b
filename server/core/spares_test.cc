// Spare nodes: found for a job that can recover in place, kept ready, and used
// for the tasks of whichever node is lost or left.
#include "server/core/spares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/replacing_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

JobSpec WithSpares(JobSpec spec, int32_t spares) {
  spec.spares = spares;
  return spec;
}

class SparesTest : public ReplacingFixture {
 protected:
  explicit SparesTest(JobSpec spec = WithSpares(NativeSpec("j", 4), 1))
      : ReplacingFixture(std::move(spec)) {}

  // e is held and has prepared for the tasks of d.
  void HaveSpare() {
    Place();
    Prepare("e", {3});
  }
  std::vector<NodeName> Nodes() {
    std::vector<NodeName> nodes;
    for (const Spare& spare : s_.job.spares) nodes.push_back(spare.node);
    return nodes;
  }
  void Forget(const NodeName& node) {
    s_.view.nodes[node].gangs.clear();
    std::erase_if(s_.job.holds,
                  [&](const Hold& hold) { return hold.node == node; });
  }
};

TEST_F(SparesTest, ANodeIsHeldAndPreparesForTheTasksOfATypicalOne) {
  EXPECT_TRUE(WantsSpares(s_.job));
  Place();
  EXPECT_FALSE(WantsSpares(s_.job));
  EXPECT_THAT(Nodes(), ElementsAre("e"));
  EXPECT_TRUE(Holds("e"));
  EXPECT_EQ(s_.job.events.back().reason, Reason::kSpare);
  EXPECT_EQ(s_.job.events.back().message, "node e is held as a spare");
  const Assignment told = Told("e");
  EXPECT_EQ(told.goal, Goal::kPrepare);
  ASSERT_EQ(told.spec->tasks.size(), 1u);
  EXPECT_EQ(told.spec->tasks[0].ranks[0].rank, 3) << "not rank 0's node";
  s_.Settle();
  EXPECT_THAT(Nodes(), ElementsAre("e"));
  EXPECT_EQ(s_.job.recovery, 0u) << "nothing moves";
  EXPECT_EQ(Told("d").goal, Goal::kGo);
}

TEST_F(SparesTest, AJobThatCannotRecoverInPlaceHasNone) {
  s_.job.tasks[2].ranks[0].recoverable = false;
  EXPECT_FALSE(WantsSpares(s_.job));
}

TEST_F(SparesTest, TheSpareTakesTheTasksItHasPreparedForAtOnce) {
  HaveSpare();
  Lose("d");
  EXPECT_EQ(s_.job.recovery, 1u) << "in the same decision";
  EXPECT_EQ(s_.job.tasks[3].node, "e");
  EXPECT_THAT(s_.job.replacements, IsEmpty());
  EXPECT_TRUE(WantsSpares(s_.job)) << "another one";
}

TEST_F(SparesTest, ForOtherTasksItPreparesAgain) {
  HaveSpare();
  Lose("b");
  ASSERT_EQ(s_.job.replacements.size(), 1u);
  EXPECT_EQ(s_.job.replacements[0].to, "e");
  EXPECT_EQ(s_.job.recovery, 0u) << "e has prepared for rank 3";
  const Assignment told = Told("e");
  EXPECT_EQ(told.goal, Goal::kPrepare);
  EXPECT_EQ(told.spec->tasks[0].ranks[0].rank, 1);
  Prepare("e", {1});
  EXPECT_EQ(s_.job.recovery, 1u);
  EXPECT_EQ(s_.job.tasks[1].node, "e");
  EXPECT_EQ(s_.job.tasks[3].node, "d");
  EXPECT_EQ(Told("e").goal, Goal::kGo);
}

// A chief and a worker need the same.
TEST_F(SparesTest, ItTakesTheTasksOfRankZerosNodeToo) {
  HaveSpare();
  Lose("a");
  ASSERT_EQ(s_.job.replacements.size(), 1u);
  EXPECT_EQ(s_.job.replacements[0].to, "e");
  Prepare("e", {0});
  EXPECT_EQ(s_.job.tasks[0].node, "e");
  EXPECT_EQ(s_.job.recovery, 1u);
}

TEST_F(SparesTest, ADrainedNodeIsLeftForTheSpare) {
  HaveSpare();
  DrainNode("d", 10min);
  EXPECT_EQ(s_.job.tasks[3].node, "e");
  EXPECT_EQ(s_.job.recovery, 1u);
}

TEST_F(SparesTest, OneThatIsUnfitIsGivenUpAndAnotherFound) {
  HaveSpare();
  Lose("e");
  EXPECT_THAT(Nodes(), IsEmpty());
  EXPECT_THAT(s_.job.events.back().message, HasSubstr("no spare any more"));
  EXPECT_EQ(s_.job.recovery, 0u);
  hosts_ = {Host("f", 8)};
  Place();
  EXPECT_THAT(Nodes(), ElementsAre("f"));
}

TEST_F(SparesTest, OneThatRefusesIsNotAskedAgain) {
  Place();
  Prepare("e", {3});
  s_.view.nodes["e"].gangs[s_.job.generation].phase = GangPhase::kRefused;
  s_.view.nodes["e"].gangs[s_.job.generation].refusal = {
      Reason::kPrepareRefused, "python3 is not there"};
  s_.Settle();
  EXPECT_THAT(Nodes(), IsEmpty());
  EXPECT_THAT(s_.job.events.back().message, HasSubstr("python3 is not there"));
  Forget("e");
  Place();
  EXPECT_TRUE(WantsSpares(s_.job));
  EXPECT_FALSE(s_.job.failing);
}

TEST_F(SparesTest, ItResemblesAnotherNodeWhenItsOwnIsReplaced) {
  HaveSpare();
  hosts_ = {Host("f", 8)};
  s_.job.spec.spares = 2;
  Place();
  ASSERT_THAT(Nodes(), ElementsAre("e", "f"));
  Lose("d");
  ASSERT_EQ(s_.job.tasks[3].node, "e");
  ASSERT_EQ(s_.job.spares.size(), 1u);
  EXPECT_EQ(s_.job.spares[0].like, "e");
  EXPECT_EQ(Told("f").spec->tasks[0].ranks[0].rank, 3);
}

TEST_F(SparesTest, ANodeThatATaskLeftMayBeItsSpare) {
  HaveSpare();
  DrainNode("d", 10min);
  Join();
  s_.view.nodes["d"].drain.reset();
  Forget("d");
  hosts_ = {Host("d", 8)};
  Place();
  ASSERT_THAT(Nodes(), ElementsAre("d"));
  EXPECT_EQ(s_.job.spares[0].like, "e");
  Prepare("d", {3});
  Lose("e");
  EXPECT_EQ(s_.job.tasks[3].node, "d");
}

// As after the failure of a switch.
TEST_F(SparesTest, ASilentSpareIsNotUsed) {
  HaveSpare();
  s_.view.nodes["e"].state = NodeState::kUnknown;
  hosts_ = {Host("f", 8)};
  Lose("d");
  ASSERT_EQ(s_.job.replacements.size(), 1u);
  EXPECT_EQ(s_.job.replacements[0].to, "");
  Place();
  EXPECT_EQ(s_.job.replacements[0].to, "f");
  EXPECT_THAT(Nodes(), ElementsAre("e")) << "it may come back";
}

TEST_F(SparesTest, ANewNodeThatStaysSilentIsFollowedByAnother) {
  HaveSpare();
  Lose("b");
  ASSERT_EQ(s_.job.replacements[0].to, "e");
  s_.Advance(40s);
  s_.view.nodes["e"].gangs.clear();
  s_.view.nodes["e"].state = NodeState::kUnknown;
  s_.view.nodes["e"].last_sign = s_.now.wall;
  s_.Settle();
  EXPECT_EQ(s_.job.replacements[0].to, "e") << "its stream has just ended";
  s_.Advance(31s);
  s_.Settle();
  EXPECT_EQ(s_.job.replacements[0].to, "");
}

TEST_F(SparesTest, ADaemonThatDoesNotPrepareAgainIsFollowedByAnother) {
  HaveSpare();
  s_.view.nodes["b"].last_sign = s_.now.wall - 5min;
  Lose("b");
  ASSERT_EQ(s_.job.replacements[0].to, "e") << "it was asked just now";
  s_.Advance(20s);
  s_.Settle();
  EXPECT_EQ(s_.job.replacements[0].to, "e");
  s_.Advance(20s);
  s_.Settle();
  EXPECT_EQ(s_.job.replacements[0].to, "");
  EXPECT_FALSE(s_.job.failing);
}

TEST_F(SparesTest, AReadySpareIsUsedHoweverLateTheLossIsSeen) {
  HaveSpare();
  s_.job.spec.hold = 1min;
  s_.view.nodes["d"].last_sign = s_.now.wall - 5min;
  Lose("d");
  EXPECT_FALSE(s_.job.failing);
  EXPECT_EQ(s_.job.tasks[3].node, "e");
}

TEST_F(SparesTest, AReportWithoutAllPortsIsNotReady) {
  HaveSpare();
  s_.view.nodes["e"].gangs[s_.job.generation].ports.clear();
  Lose("d");
  EXPECT_EQ(s_.job.recovery, 0u);
  EXPECT_EQ(s_.job.tasks[3].node, "d");
}

TEST_F(SparesTest, OneThatNeedsAnEngineResemblesOnlyItsLike) {
  s_.job.spec.roles.Edit()[0].container.emplace();  // The chief's.
  HaveSpare();
  Lose("a");
  ASSERT_EQ(s_.job.replacements.size(), 1u);
  EXPECT_EQ(s_.job.replacements[0].to, "");
}

TEST_F(SparesTest, TheyGoWithTheGeneration) {
  HaveSpare();
  s_.Exited(1, Code(42));  // Asks for a restart of the gang.
  s_.Settle();
  EXPECT_TRUE(s_.job.failing);
  EXPECT_THAT(Nodes(), IsEmpty());
  EXPECT_EQ(Told("e").goal, Goal::kStop);
}

}  // namespace
}  // namespace lockstep::server
