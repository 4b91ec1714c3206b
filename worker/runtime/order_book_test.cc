#include "worker/runtime/order_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "worker/runtime/order_book_test_util.h"
#include "worker/runtime/order_text.h"

namespace lockstep::worker::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(OrderTextTest, KeysAndValuesComeBack) {
  const auto answer = ParseOrderKey(AnswerKey(12, 3));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->kind, OrderKey::Kind::kAnswer);
  EXPECT_EQ(answer->number, 12);
  EXPECT_EQ(answer->rank, 3);
  EXPECT_EQ(ParseOrderKey(ProposalKey(7))->kind, OrderKey::Kind::kProposal);
  EXPECT_EQ(ParseOrderKey(DecisionKey(7))->kind, OrderKey::Kind::kDecision);
  EXPECT_EQ(ParseOrderKey(HereKey(5))->rank, 5);
  for (const char* bad : {"", "order/", "order/x/p", "order/1", "order/1/a",
                          "order/1/a/-1", "order/1/p/2", "order/here/x",
                          "shm/1", "order/99999999999999999999/p"}) {
    EXPECT_FALSE(ParseOrderKey(bad)) << bad;
  }
  const auto proposal =
      ParseProposal(FormatProposal({"tok", {OrderKind::kStop, 99, 4, false}}));
  ASSERT_TRUE(proposal);
  EXPECT_EQ(proposal->token, "tok");
  EXPECT_EQ(proposal->order.kind, OrderKind::kStop);
  EXPECT_EQ(proposal->order.step, 99);
  EXPECT_EQ(proposal->order.directive, 4u);
  for (const char* bad : {"", "t stop 1", "t halt 1 1", "t stop -1 1",
                          "t stop 1 1 1", "t stop x 1"}) {
    EXPECT_FALSE(ParseProposal(bad)) << bad;
  }
  EXPECT_EQ(ParseAnswer("t late 7")->late, 7);
  EXPECT_EQ(ParseAnswer("t ok u")->by, "u");
  EXPECT_FALSE(ParseAnswer("t no u"));
  EXPECT_FALSE(ParseAnswer("t late"));
}

TEST(OrderBookTest, AllRanksSaveOnceAtOneStep) {
  OrderCluster cluster(4, 1, milliseconds(20));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Direct(1, OrderKind::kCheckpoint);
  const auto obeyed =
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 40, milliseconds(100));
  ASSERT_EQ(obeyed[0].size(), 1u);
  for (const auto& steps : obeyed) EXPECT_EQ(steps, obeyed[0]);
  // About a second ahead.
  EXPECT_LE(*obeyed[0].begin(), 25);
  EXPECT_EQ(cluster.done(), 0u);
  cluster.Saved(*obeyed[0].begin());
  EXPECT_EQ(cluster.done(), 1u);
  EXPECT_THAT(cluster.events(), IsEmpty());
}

TEST(OrderBookTest, AStopStaysAndMakesACheckpointDue) {
  OrderCluster cluster(3, 2, milliseconds(20));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Direct(1, OrderKind::kStop);
  const auto stops =
      Obeyed(&cluster, OrderKind::kStop, 1, 40, milliseconds(100));
  ASSERT_FALSE(stops[0].empty());
  for (const auto& steps : stops) EXPECT_EQ(steps, stops[0]);
  EXPECT_EQ(*stops[0].rbegin(), 40);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(cluster.Ask(rank, OrderKind::kCheckpoint), OrderAnswer::kYes);
    EXPECT_EQ(cluster.Ask(rank, OrderKind::kCheckpoint), OrderAnswer::kNo);
  }
  EXPECT_EQ(cluster.done(), 1u);
}

TEST(OrderBookTest, AloneItIsTheNextStep) {
  OrderCluster cluster(1, 1, milliseconds(20));
  cluster.JoinAll();
  cluster.Step(0, 5);
  EXPECT_EQ(cluster.Ask(0, OrderKind::kCheckpoint), OrderAnswer::kNo);
  cluster.Direct(1, OrderKind::kCheckpoint);
  EXPECT_EQ(cluster.Ask(0, OrderKind::kCheckpoint), OrderAnswer::kNo);
  cluster.Step(0, 6);
  EXPECT_EQ(cluster.Ask(0, OrderKind::kCheckpoint), OrderAnswer::kYes);
  EXPECT_EQ(cluster.Ask(0, OrderKind::kCheckpoint), OrderAnswer::kNo);
  EXPECT_THAT(cluster.table(), IsEmpty());
}

TEST(OrderBookTest, ARepeatedDirectiveIsOneOrder) {
  OrderCluster cluster(2, 1, milliseconds(5));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Direct(1, OrderKind::kCheckpoint);
  cluster.Direct(1, OrderKind::kCheckpoint);
  const auto obeyed =
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 20, milliseconds(200));
  cluster.Direct(1, OrderKind::kCheckpoint);
  const auto later =
      Obeyed(&cluster, OrderKind::kCheckpoint, 21, 20, milliseconds(200));
  EXPECT_EQ(obeyed[1].size(), 1u);
  EXPECT_THAT(later, ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(OrderBookTest, ARankWaitsForTheDecisionAtItsStep) {
  OrderCluster cluster(3, 1, milliseconds(1));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.StepAll(1);
  cluster.Pass(seconds(1));
  cluster.Break(2);  // Its answer does not come.
  cluster.Direct(1, OrderKind::kCheckpoint);
  cluster.Pass(milliseconds(500));
  cluster.Step(1, 1000);
  EXPECT_EQ(cluster.Ask(1, OrderKind::kCheckpoint), OrderAnswer::kWait);
  // A stop is not in question.
  EXPECT_EQ(cluster.Ask(1, OrderKind::kStop), OrderAnswer::kNo);
  // Rank 0 arrives there, and drops it.
  cluster.Step(0, 1000);
  EXPECT_EQ(cluster.Ask(0, OrderKind::kCheckpoint), OrderAnswer::kNo);
  cluster.Pass(milliseconds(500));
  EXPECT_EQ(cluster.Ask(1, OrderKind::kCheckpoint), OrderAnswer::kNo);
}

TEST(OrderBookTest, GivesUpWhereARankDoesNotJoin) {
  OrderCluster cluster(3, 1, milliseconds(5));
  cluster.Join(0);
  cluster.Join(1);
  cluster.AskAll();
  cluster.Direct(2, OrderKind::kCheckpoint);
  const auto obeyed =
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 50, milliseconds(500));
  EXPECT_THAT(obeyed, ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  EXPECT_THAT(cluster.events(), ElementsAre(HasSubstr("by rank 2;")));
  EXPECT_EQ(cluster.done(), 2u);
  // Nothing was proposed, so no rank waited.
  EXPECT_FALSE(cluster.table().contains(ProposalKey(1)));
}

TEST(OrderBookTest, GivesUpWhereTheProgramDoesNotAsk) {
  OrderCluster cluster(2, 1, milliseconds(5));
  cluster.JoinAll();
  cluster.Direct(1, OrderKind::kStop);
  for (int i = 0; i < 7; ++i) cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.events(),
              ElementsAre(HasSubstr("does not ask session.should_stop()")));
  EXPECT_EQ(cluster.done(), 0u) << "not agreed";
  // A checkpoint waits for the first step.
  cluster.Direct(2, OrderKind::kCheckpoint);
  for (int i = 0; i < 60; ++i) cluster.Pass(seconds(1));
  EXPECT_EQ(cluster.done(), 0u);
  cluster.StepAll(1);
  for (int i = 0; i < 2; ++i) cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.events().back(), HasSubstr("checkpoint_due()"));
  EXPECT_EQ(cluster.done(), 2u);
}

TEST(OrderBookTest, GivesUpWhereARankIsSilent) {
  OrderCluster cluster(3, 1, milliseconds(5));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Pass(seconds(1));
  cluster.Break(2);
  cluster.Direct(1, OrderKind::kCheckpoint);
  for (int i = 0; i < 60; ++i) cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.events(),
              ElementsAre(HasSubstr("no answer came from rank 2")));
  EXPECT_EQ(cluster.done(), 1u);
  // Back again, it answers.
  cluster.Mend(2);
  cluster.Direct(2, OrderKind::kCheckpoint);
  const auto obeyed =
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 30, milliseconds(100));
  EXPECT_EQ(obeyed[0].size(), 1u);
  EXPECT_EQ(obeyed[0], obeyed[2]);
}

TEST(OrderBookTest, ClosingDropsWhatIsNotAgreed) {
  OrderCluster cluster(2, 1, milliseconds(5));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Pass(seconds(1));
  cluster.Break(1);
  cluster.Direct(1, OrderKind::kStop);
  cluster.Pass(milliseconds(100));
  cluster.Close(0);
  EXPECT_THAT(cluster.events(), ElementsAre(HasSubstr("closes its session")));
  cluster.Mend(1);
  const auto stops =
      Obeyed(&cluster, OrderKind::kStop, 1, 20, milliseconds(100));
  EXPECT_THAT(stops, ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(OrderBookTest, ASecondProcessOfARankTakesNoPartInOldOrders) {
  OrderCluster cluster(2, 1, milliseconds(5));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Direct(1, OrderKind::kCheckpoint);
  EXPECT_EQ(
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 30, milliseconds(100))[1]
          .size(),
      1u);
  // Both begin anew, at step 1.
  cluster.Rejoin(1);
  cluster.Rejoin(0);
  cluster.AskAll();
  cluster.Pass(seconds(1));
  EXPECT_THAT(
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 30, milliseconds(100)),
      ElementsAre(IsEmpty(), IsEmpty()));
  cluster.Direct(2, OrderKind::kCheckpoint);
  const auto obeyed =
      Obeyed(&cluster, OrderKind::kCheckpoint, 31, 30, milliseconds(100));
  EXPECT_EQ(obeyed[0].size(), 1u);
  EXPECT_EQ(obeyed[0], obeyed[1]);
}

TEST(OrderBookTest, ManyOrdersCostLittle) {
  OrderCluster cluster(3, 1, milliseconds(2));
  cluster.JoinAll();
  cluster.AskAll();
  int64_t step = 1;
  for (uint32_t id = 1; id <= 200; ++id) {
    cluster.Direct(id, OrderKind::kCheckpoint);
    const auto obeyed =
        Obeyed(&cluster, OrderKind::kCheckpoint, step, 15, milliseconds(200));
    step += 15;
    ASSERT_EQ(obeyed[2].size(), 1u) << id;
    cluster.Saved(step);
  }
  EXPECT_EQ(cluster.done(), 200u);
  EXPECT_LE(cluster.Kept(0), 140u);
  EXPECT_LE(cluster.Kept(1), 4u);
  size_t bytes = 0;
  for (const auto& [key, value] : cluster.table()) {
    bytes += key.size() + value.size();
  }
  // Of three ranks; tokens of 16 bytes add 30.
  EXPECT_LE(bytes / 200, 90u);
}

}  // namespace
}  // namespace lockstep::worker::runtime
