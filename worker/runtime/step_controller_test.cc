#include "worker/runtime/step_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace lockstep::worker::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// All ranks of a generation, stepped together; the sum is the all-reduce.
class Gang {
 public:
  explicit Gang(int size, StepControllerOptions options = {}) {
    options.world_size = size;
    for (int r = 0; r < size; ++r) {
      options.rank = r;
      StatusOr<StepController> rank = StepController::Create(options);
      EXPECT_TRUE(rank.ok()) << rank.status();
      ranks_.push_back(*std::move(rank));
      facts.emplace_back();
    }
  }
  StepController& operator[](int r) { return ranks_[r]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // One step, or a round; what each rank's Verify said.
  std::vector<StatusOr<Verdict>> Verify(bool round = false) {
    ControlWords sum{};
    for (int r = 0; r < size(); ++r) {
      StatusOr<ControlWords> words =
          round ? ranks_[r].BeginRound() : ranks_[r].Begin(facts[r]);
      EXPECT_TRUE(words.ok()) << words.status();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += (*words)[i];
    }
    std::vector<StatusOr<Verdict>> verdicts;
    for (StepController& rank : ranks_) verdicts.push_back(rank.Verify(sum));
    return verdicts;
  }
  // A whole step that all apply; the orders, which are the same for all.
  StepOrders Step(bool round = false) {
    for (const StatusOr<Verdict>& verdict : Verify(round)) {
      EXPECT_TRUE(verdict.ok()) << verdict.status();
      EXPECT_TRUE(verdict.ok() && verdict->apply == !round);
    }
    return Commit();
  }
  StepOrders Commit() {
    std::vector<StepOrders> orders;
    for (StepController& rank : ranks_) {
      StatusOr<StepOrders> order = rank.Commit();
      EXPECT_TRUE(order.ok()) << order.status();
      orders.push_back(*std::move(order));
      EXPECT_EQ(orders[0].checkpoint, orders.back().checkpoint);
      EXPECT_EQ(orders[0].settled, orders.back().settled);
      EXPECT_EQ(orders[0].stop, orders.back().stop);
      EXPECT_EQ(orders[0].drain, orders.back().drain);
    }
    return orders[0];
  }
  void VoteAll(uint64_t id) {
    for (StepController& rank : ranks_) EXPECT_TRUE(rank.Vote(id, true).ok());
  }

  std::vector<StepFacts> facts;

 private:
  std::vector<StepController> ranks_;
};

TEST(StepControllerTest, StepsAreCountedFromTheStart) {
  Gang gang(2, {.start_step = 120});
  EXPECT_EQ(gang[0].committed(), 120);
  EXPECT_EQ(gang[0].step(), 121);
  gang.Step();
  EXPECT_EQ(gang[1].committed(), 121);
}

TEST(StepControllerTest, OptionsOutOfRangeAreRefused) {
  EXPECT_FALSE(StepController::Create({.rank = 2, .world_size = 2}).ok());
  EXPECT_FALSE(StepController::Create({.world_size = 0}).ok());
  EXPECT_FALSE(
      StepController::Create({.world_size = kMaxControlRanks + 1}).ok());
  EXPECT_FALSE(StepController::Create({.start_step = -1}).ok());
}

TEST(StepControllerTest, NothingIsAppliedBeforeVerify) {
  StepController rank = *StepController::Create({});
  EXPECT_FALSE(rank.Verify({}).ok());
  EXPECT_FALSE(rank.Commit().ok());
  const ControlWords words = *rank.Begin({});
  EXPECT_FALSE(rank.Commit().ok());
  EXPECT_FALSE(rank.Begin({}).ok());
  EXPECT_TRUE(rank.Verify(words)->apply);
  EXPECT_FALSE(rank.Verify(words).ok());
  EXPECT_TRUE(rank.Commit().ok());
}

TEST(StepControllerTest, OneBadGradientMakesAllSkipAndTheStepIsCommitted) {
  Gang gang(3);
  gang.facts[1].nonfinite = true;
  for (const StatusOr<Verdict>& verdict : gang.Verify()) {
    EXPECT_FALSE(verdict->apply);
    EXPECT_TRUE(verdict->skipped);
  }
  gang.Commit();
  EXPECT_EQ(gang[0].committed(), 1);
  EXPECT_EQ(gang[2].skipped(), 1);
  gang.facts[1].nonfinite = false;
  gang.Step();
}

TEST(StepControllerTest, TheTenthSkipInARowFails) {
  Gang gang(2);
  gang.facts[0].nonfinite = true;
  for (int i = 0; i < 9; ++i) {
    EXPECT_TRUE(gang.Verify()[1]->skipped);
    gang.Commit();
  }
  for (const StatusOr<Verdict>& verdict : gang.Verify()) {
    EXPECT_EQ(ReasonOf(verdict.status()), "NOT_FINITE");
    EXPECT_THAT(Message(verdict.status()), HasSubstr("10 steps in a row"));
  }
  EXPECT_FALSE(gang[0].Begin({}).ok());
}

TEST(StepControllerTest, OneGoodStepBetweenForgivesTheSkips) {
  Gang gang(2);
  for (int i = 1; i <= 30; ++i) {
    gang.facts[0].nonfinite = i % 10 != 0;
    EXPECT_TRUE(gang.Verify()[1].ok()) << i;
    gang.Commit();
  }
  EXPECT_EQ(gang[0].skipped(), 27);
}

TEST(StepControllerTest, AutomaticCheckpointsComeEveryInterval) {
  Gang gang(2, {.start_step = 120, .checkpoint_interval = 50});
  std::vector<int64_t> at;
  for (int i = 0; i < 100; ++i) {
    const StepOrders orders = gang.Step();
    if (!orders.checkpoint) continue;
    at.push_back(orders.checkpoint->step);
    EXPECT_EQ(orders.checkpoint->step, gang[0].committed());
    gang.VoteAll(orders.checkpoint->id);
  }
  EXPECT_THAT(at, ElementsAre(150, 200));
}

TEST(StepControllerTest, CheckpointIsCompleteInTheStepOfTheLastVote) {
  Gang gang(3, {.checkpoint_interval = 10});
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(gang.Step().checkpoint);
  const CheckpointOrder order = *gang.Step().checkpoint;
  EXPECT_EQ(order, (CheckpointOrder{10, 1, {}}));
  ASSERT_TRUE(gang[0].Vote(order.id, true).ok());
  ASSERT_TRUE(gang[2].Vote(order.id, true).ok());
  EXPECT_FALSE(gang.Step().settled);
  ASSERT_TRUE(gang[1].Vote(order.id, true).ok());
  EXPECT_FALSE(gang[1].Vote(order.id, true).ok());
  EXPECT_EQ(gang.Step().settled, (CheckpointSettled{order, true}));
  EXPECT_FALSE(gang[0].in_flight());
  EXPECT_FALSE(gang[0].Vote(order.id, true).ok());
}

TEST(StepControllerTest, OneRankThatGivesUpEndsTheCheckpointForAll) {
  Gang gang(3, {.checkpoint_interval = 2});
  gang.Step();
  const CheckpointOrder order = *gang.Step().checkpoint;
  ASSERT_TRUE(gang[1].Vote(order.id, false).ok());
  EXPECT_EQ(gang.Step().settled, (CheckpointSettled{order, false}));
  // The next one is another try, and votes start anew.
  const CheckpointOrder next = *gang.Step().checkpoint;
  EXPECT_EQ(next.id, 2u);
  EXPECT_FALSE(gang[0].voted());
}

TEST(StepControllerTest, ANewCheckpointWaitsForTheOneInFlight) {
  Gang gang(2, {.checkpoint_interval = 5});
  for (int i = 0; i < 4; ++i) gang.Step();
  const CheckpointOrder first = *gang.Step().checkpoint;
  for (int i = 6; i <= 11; ++i) EXPECT_FALSE(gang.Step().checkpoint) << i;
  gang.VoteAll(first.id);
  const StepOrders orders = gang.Step();
  EXPECT_TRUE(orders.settled->complete);
  ASSERT_TRUE(orders.checkpoint.has_value());
  EXPECT_EQ(orders.checkpoint->step, 12);
  EXPECT_EQ(orders.checkpoint->id, 2u);
}

TEST(StepControllerTest, ACheckpointDirectiveTakesEffectOneStepAfterItIsHeard) {
  Gang gang(3);
  gang[0].Offer(DirectiveOp::kCheckpoint, 70000);
  EXPECT_FALSE(gang.Step().checkpoint);  // Step 1 carries it: k = 2.
  const StepOrders orders = gang.Step();
  EXPECT_EQ(orders.checkpoint, (CheckpointOrder{2, 1, {70000}}));
}

TEST(StepControllerTest, AStopDirectiveStopsAllAfterTheSameStep) {
  Gang gang(3);
  gang.Step();
  gang[0].Offer(DirectiveOp::kStop, 5);
  EXPECT_FALSE(gang.Step().stop);
  EXPECT_EQ(gang.Step().stop, StopOrder{5});
  EXPECT_EQ(gang[2].committed(), 3);
}

TEST(StepControllerTest, TheSameDirectiveTwiceIsOneDirective) {
  Gang gang(2);
  gang[0].Offer(DirectiveOp::kCheckpoint, 5);
  gang[0].Offer(DirectiveOp::kCheckpoint, 5);
  gang.Step();
  gang[0].Offer(DirectiveOp::kCheckpoint, 5);
  const CheckpointOrder order = *gang.Step().checkpoint;
  gang.VoteAll(order.id);
  EXPECT_TRUE(gang.Step().settled->complete);
  gang[0].Offer(DirectiveOp::kCheckpoint, 5);  // Done.
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(gang.Step().checkpoint);
}

TEST(StepControllerTest, ADirectiveWhoseCheckpointWasGivenUpMayComeAgain) {
  Gang gang(2);
  gang[0].Offer(DirectiveOp::kCheckpoint, 5);
  gang.Step();
  ASSERT_TRUE(gang[1].Vote(gang.Step().checkpoint->id, false).ok());
  EXPECT_FALSE(gang.Step().settled->complete);
  gang[0].Offer(DirectiveOp::kCheckpoint, 5);
  gang.Step();
  EXPECT_EQ(gang.Step().checkpoint->directives, std::vector<uint32_t>{5});
}

TEST(StepControllerTest, DirectivesQueueAndMergeWithAWaitingCheckpoint) {
  Gang gang(2);
  gang[0].Offer(DirectiveOp::kCheckpoint, 1);
  gang[0].Offer(DirectiveOp::kCheckpoint, 2);
  gang[0].Offer(DirectiveOp::kCheckpoint, 3);
  gang.Step();
  const CheckpointOrder first = *gang.Step().checkpoint;
  EXPECT_THAT(first.directives, ElementsAre(1));
  gang.Step();
  gang.Step();
  gang.VoteAll(first.id);
  EXPECT_THAT(gang.Step().checkpoint->directives, ElementsAre(2, 3));
}

TEST(StepControllerTest, TwoSpeakersBothGetThroughInTheEnd) {
  Gang gang(3);
  gang[0].Offer(DirectiveOp::kCheckpoint, 1);
  gang[2].Offer(DirectiveOp::kStop, 2);
  bool checkpoint = false;
  bool stop = false;
  for (int i = 0; i < 8 && !stop; ++i) {
    const StepOrders orders = gang.Step();
    checkpoint |= orders.checkpoint.has_value();
    stop |= orders.stop.has_value();
  }
  EXPECT_TRUE(checkpoint);
  EXPECT_TRUE(stop);
}

TEST(StepControllerTest, AnotherSpeakerForTheSameIdSaysItOnce) {
  Gang gang(2);
  gang[0].Offer(DirectiveOp::kStop, 9);
  gang.Step();
  EXPECT_TRUE(gang.Step().stop);
  gang[1].Offer(DirectiveOp::kStop, 9);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(gang.Step().stop);
}

TEST(StepControllerTest, DrainOfOneIsKnownToAll) {
  Gang gang(3);
  EXPECT_FALSE(gang.Step().drain);
  gang[2].SetDrain(true);
  EXPECT_TRUE(gang.Step().drain);
}

TEST(StepControllerTest, AWanderingCursorIsNotAppliedAndStopsAllAtTheNextStep) {
  Gang gang(3);
  gang.Step();
  gang.facts[1].cursor = 1;
  const auto verdicts = gang.Verify();
  // Whoever sees it does not apply.
  EXPECT_FALSE(verdicts[1]->apply);
  EXPECT_FALSE(verdicts[1]->skipped);
  for (int r = 0; r < 3; ++r) (void)gang[r].Commit();
  gang.facts[1].cursor = 0;
  for (const StatusOr<Verdict>& verdict : gang.Verify()) {
    EXPECT_EQ(ReasonOf(verdict.status()), "CONFIG_MISMATCH");
    EXPECT_THAT(Message(verdict.status()), HasSubstr("data cursor"));
  }
}

TEST(StepControllerTest, WhoSawNothingHearsTheAlarm) {
  Gang gang(3);
  // 0 and 2 differ from 1, and cancel each other: rank 1 sees nothing.
  gang.facts[0].cursor = 0;
  gang.facts[1].cursor = 1;
  gang.facts[2].cursor = 2;
  const auto verdicts = gang.Verify();
  EXPECT_FALSE(verdicts[0]->apply);
  EXPECT_TRUE(verdicts[1]->apply);
  for (int r = 0; r < 3; ++r) (void)gang[r].Commit();
  const auto next = gang.Verify();
  EXPECT_EQ(ReasonOf(next[0].status()), "CONFIG_MISMATCH");
  EXPECT_EQ(ReasonOf(next[1].status()), "ALARM");
  EXPECT_EQ(next[1].status().code(), StatusCode::kAborted);
}

TEST(StepControllerTest, ACheckThatFailsInTheLastStepIsToldInTheLastRound) {
  Gang gang(2);
  gang.facts[1].cursor = 1;
  EXPECT_FALSE(gang.Verify()[0]->apply);
  gang.Commit();
  for (const StatusOr<Verdict>& verdict : gang.Verify(true)) {
    EXPECT_EQ(ReasonOf(verdict.status()), "CONFIG_MISMATCH");
  }
}

TEST(StepControllerTest, ReplicasThatDifferAreFoundAtTheNextComparison) {
  Gang gang(2, {.state_hash_interval = 4});
  for (int step = 1; step < 4; ++step) {
    EXPECT_FALSE(gang[0].wants_state_hash());
    gang.Step();
  }
  EXPECT_TRUE(gang[0].wants_state_hash());
  EXPECT_FALSE(gang[0].Begin({}).ok());
  gang.facts[0].state_hash = gang.facts[1].state_hash = 77;
  gang.Step();
  gang.facts[0].state_hash.reset();
  gang.facts[1].state_hash.reset();
  for (int step = 5; step < 8; ++step) gang.Step();
  gang.facts[0].state_hash = 77;
  gang.facts[1].state_hash = 78;
  EXPECT_FALSE(gang.Verify()[0]->apply);
  gang.Commit();
  gang.facts[0].state_hash.reset();
  gang.facts[1].state_hash.reset();
  for (const StatusOr<Verdict>& verdict : gang.Verify()) {
    EXPECT_EQ(ReasonOf(verdict.status()), "DIVERGED");
    EXPECT_THAT(Message(verdict.status()), HasSubstr("replicas differ"));
  }
}

TEST(StepControllerTest, RoundsSettleWhatIsInFlightWithoutAStep) {
  Gang gang(2, {.checkpoint_interval = 2});
  gang.Step();
  const CheckpointOrder order = *gang.Step().checkpoint;
  ASSERT_TRUE(gang[0].Vote(order.id, true).ok());
  EXPECT_FALSE(gang.Step(true).settled);
  ASSERT_TRUE(gang[1].Vote(order.id, true).ok());
  EXPECT_EQ(gang.Step(true).settled, (CheckpointSettled{order, true}));
  EXPECT_EQ(gang[0].committed(), 2);
}

TEST(StepControllerTest, AWaitingCheckpointStartsInTheRoundThatMakesRoom) {
  Gang gang(2, {.checkpoint_interval = 2});
  gang.Step();
  const CheckpointOrder first = *gang.Step().checkpoint;
  gang.Step();
  EXPECT_FALSE(gang.Step().checkpoint);
  gang.VoteAll(first.id);
  EXPECT_EQ(gang.Step(true).checkpoint, (CheckpointOrder{4, 2, {}}));
}

TEST(StepControllerTest, TheLastCheckpointIsBegunByAllBetweenSteps) {
  Gang gang(2);
  gang.Step();
  CheckpointOrder order;
  for (int r = 0; r < 2; ++r) {
    StatusOr<CheckpointOrder> begun = gang[r].BeginCheckpoint();
    ASSERT_TRUE(begun.ok()) << begun.status();
    order = *begun;
    EXPECT_FALSE(gang[r].BeginCheckpoint().ok());
  }
  EXPECT_EQ(order.step, 1);
  gang.VoteAll(order.id);
  EXPECT_TRUE(gang.Step(true).settled->complete);
}

TEST(StepControllerTest, ASumThatCannotBeStopsAll) {
  Gang gang(1);
  ControlWords words = *gang[0].Begin({});
  words[3] = -1;
  EXPECT_EQ(gang[0].Verify(words).status().code(), StatusCode::kDataLoss);
  EXPECT_FALSE(gang[0].Commit().ok());
}

// Two ranks with the same steps, of which one knows more, after a recovery: all
// take the orders of `source`.
StepOrders Recover(Gang* gang, int source, int rank) {
  EXPECT_TRUE((*gang)[rank].Rewind().ok());
  const StatusOr<AgreedOrders> agreed =
      DecodeAgreedOrders(Encode((*gang)[source].Export()));
  EXPECT_TRUE(agreed.ok()) << agreed.status();
  return (*gang)[rank].Import(*agreed, 77, 88);
}

TEST(StepControllerRecoveryTest, AStepThatIsNotCommittedHasNotBegun) {
  Gang gang(2);
  gang.Step();
  gang.facts[0].nonfinite = true;
  for (int rank : {0, 1}) gang.facts[rank].cursor = 5;
  for (const auto& verdict : gang.Verify()) EXPECT_TRUE(verdict->skipped);
  for (int rank : {0, 1}) EXPECT_TRUE(gang[rank].Rewind().ok());
  EXPECT_EQ(gang[0].committed(), 1);
  // Nor has it skipped anything.
  EXPECT_EQ(gang[0].skipped(), 0);
  EXPECT_EQ(gang[0].Export().counts.skipped_in_a_row, 0);
  EXPECT_EQ(gang[0].Export().counts.cursor, 0u);
  gang.facts[0].nonfinite = false;
  for (int rank : {0, 1}) gang.facts[rank].cursor = 0;
  gang.Step();
  gang.Step(/*round=*/true);
  EXPECT_EQ(gang[1].committed(), 2);
}

TEST(StepControllerRecoveryTest, AFailedCheckIsNotRecoveredFrom) {
  Gang gang(2);
  gang.facts[1].cursor = 9;
  gang.Verify();
  gang.Commit();
  for (const auto& verdict : gang.Verify()) EXPECT_FALSE(verdict.ok());
  EXPECT_EQ(gang[0].Rewind().code(), StatusCode::kFailedPrecondition);
}

TEST(StepControllerRecoveryTest, ACheckpointInFlightIsGivenUpAndBeginsAnew) {
  Gang gang(3);
  gang[0].Offer(DirectiveOp::kCheckpoint, 6);
  gang.Step();
  const StepOrders begun = gang.Step();
  ASSERT_TRUE(begun.checkpoint.has_value());
  EXPECT_TRUE(gang[0].Vote(begun.checkpoint->id, true).ok());
  for (int rank : {2, 1, 0}) {
    const StepOrders orders = Recover(&gang, 0, rank);
    ASSERT_TRUE(orders.settled.has_value());
    EXPECT_EQ(orders.settled->order, *begun.checkpoint);
    EXPECT_FALSE(orders.settled->complete);
    EXPECT_FALSE(orders.checkpoint.has_value());
    EXPECT_FALSE(gang[rank].in_flight().has_value());
  }
  const StepOrders again = gang.Step();
  ASSERT_TRUE(again.checkpoint.has_value());
  EXPECT_EQ(again.checkpoint->step, 3);
  EXPECT_GT(again.checkpoint->id, begun.checkpoint->id);
  EXPECT_THAT(again.checkpoint->directives, ElementsAre(6));
  gang.VoteAll(again.checkpoint->id);
  // The daemon repeats what is not done; the ranks know it.
  gang[1].Offer(DirectiveOp::kCheckpoint, 6);
  EXPECT_TRUE(gang.Step().settled->complete);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(gang.Step().checkpoint.has_value());
}

// Rank 2 has all of step 2 but its end.
void StepOfTwo(Gang* gang) {
  gang->Verify();
  for (int rank : {0, 1}) EXPECT_TRUE((*gang)[rank].Commit().ok());
}

TEST(StepControllerRecoveryTest, ARankOneStepBehindLearnsWhatWasAgreedInIt) {
  Gang gang(3, {.checkpoint_interval = 1});
  const StepOrders first = gang.Step();
  gang.VoteAll(first.checkpoint->id);
  gang[2].Offer(DirectiveOp::kStop, 7);
  StepOfTwo(&gang);
  ASSERT_EQ(gang[2].committed(), 1);
  // It was the last vote: the peers know that the checkpoint is complete, and
  // have begun another one.
  StepOrders orders = Recover(&gang, 0, 2);
  EXPECT_EQ(gang[2].committed(), 2);
  ASSERT_TRUE(orders.settled.has_value());
  EXPECT_EQ(orders.settled->order, *first.checkpoint);
  EXPECT_TRUE(orders.settled->complete);
  for (int rank : {1, 0}) {
    EXPECT_FALSE(Recover(&gang, 0, rank).settled->complete);
  }
  // Rank 2 sent the stop itself, and does not send it twice.
  orders = gang.Step();
  EXPECT_TRUE(orders.stop.has_value());
  EXPECT_TRUE(orders.checkpoint.has_value());
  EXPECT_FALSE(gang.Step().stop.has_value());
}

TEST(StepControllerRecoveryTest, AStopOfTheLastStepReachesTheOthers) {
  Gang gang(3);
  gang[0].Offer(DirectiveOp::kStop, 7);
  gang[1].SetDrain(true);
  gang.Step();
  StepOfTwo(&gang);
  const StepOrders orders = Recover(&gang, 1, 2);
  ASSERT_TRUE(orders.stop.has_value());
  EXPECT_EQ(orders.stop->directive, 7u);
  EXPECT_TRUE(orders.drain);
  // One that replaces a rank learns it, too.
  StepController fresh = *StepController::Create({.rank = 2, .world_size = 3});
  EXPECT_TRUE(fresh.Import(gang[0].Export(), 1, 1).stop.has_value());
  EXPECT_EQ(fresh.committed(), 2);
}

// Whatever the ranks were doing: after a recovery all know the same, and every
// checkpoint that was asked for begins.
class AnyTime {
 public:
  explicit AnyTime(uint32_t seed) : random_(seed) {}

  void Run() {
    for (int step = 0; step < 60; ++step) {
      if (Chance(4)) {
        asked_.insert(++id_);
        gang_[Rank()].Offer(DirectiveOp::kCheckpoint, id_);
      }
      if (gang_[0].in_flight() && !gang_[0].voted() && Chance(2)) VoteAll();
      for (StepFacts& facts : gang_.facts) {
        facts.nonfinite = Chance(6);
        facts.cursor = static_cast<uint64_t>(step);
      }
      for (const auto& verdict : gang_.Verify()) ASSERT_TRUE(verdict.ok());
      Chance(5) ? Recover() : Note(gang_.Commit());
    }
    // What waits for others has time.
    for (int i = 0; i < 60; ++i) {
      if (gang_[0].in_flight()) VoteAll();
      Note((gang_.Verify(), gang_.Commit()));
    }
    EXPECT_EQ(begun_, asked_);
  }

 private:
  bool Chance(uint32_t one_in) { return random_() % one_in == 0; }
  int Rank() { return static_cast<int>(random_() % 3); }
  void VoteAll() {
    if (!gang_[0].voted()) gang_.VoteAll(gang_[0].in_flight()->id);
  }
  void Note(const StepOrders& orders) {
    if (!orders.checkpoint) return;
    const auto& ids = orders.checkpoint->directives;
    begun_.insert(ids.begin(), ids.end());
  }
  // Some have committed, rank `source` among them; or none.
  void Recover() {
    const int source = Rank();
    const bool some = Chance(2);
    for (int rank = 0; rank < 3; ++rank) {
      if (!some || (rank != source && Chance(2))) continue;
      Note(*gang_[rank].Commit());
    }
    const AgreedOrders agreed = gang_[source].Export();
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(gang_[rank].Rewind().ok());
      const StepOrders orders = gang_[rank].Import(agreed, 7, 5);
      EXPECT_EQ(orders.stop, agreed.stopped);
      EXPECT_FALSE(orders.checkpoint.has_value());
      EXPECT_FALSE(gang_[rank].in_flight().has_value());
    }
    for (int rank : {1, 2}) EXPECT_EQ(gang_[rank].Export(), gang_[0].Export());
  }

  std::mt19937 random_;
  Gang gang_{3, {.checkpoint_interval = 4, .max_skipped_in_a_row = 1000}};
  uint32_t id_ = 0;
  std::set<uint32_t> asked_;
  std::set<uint32_t> begun_;
};

TEST(StepControllerRecoveryTest, RanksAgreeAfterRecoveriesAtAnyTime) {
  for (uint32_t seed = 0; seed < 300; ++seed) AnyTime(seed).Run();
}

TEST(AgreedOrdersTest, OnlyItsOwnTextIsTaken) {
  AgreedOrders orders;
  orders.counts = {1204, 3, 2, 77};
  orders.stopped = StopOrder{9};
  orders.stop = Directive{DirectiveOp::kStop, 4, 1300};
  orders.due = {{1210, {1, 2}}, {1220, {}}};
  orders.waiting = true;
  orders.waiting_directives = {5};
  orders.started = 6;
  const std::string text = Encode(orders);
  EXPECT_EQ(*DecodeAgreedOrders(text), orders);
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(DecodeAgreedOrders(text.substr(0, size)).ok());
  }
  EXPECT_FALSE(DecodeAgreedOrders(text + "1 ").ok());
  EXPECT_FALSE(DecodeAgreedOrders("x" + text).ok());
}

}  // namespace
}  // namespace lockstep::worker::runtime
