// The parts of a session, each alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/collective/self_communicator.h"
#include "worker/collective/testing.h"
#include "worker/runtime/peer_lost.h"
#include "worker/runtime/plan_reports.h"
#include "worker/runtime/session_communicator.h"
#include "worker/runtime/session_impl.h"
#include "worker/runtime/session_orders.h"

namespace lockstep::worker::runtime {
namespace {

using ::testing::HasSubstr;

StatusCode StartCode(collective::Communicator* communicator) {
  return communicator->Start({.kind = collective::CollectiveKind::kBarrier})
      .status()
      .code();
}

TEST(SessionCommunicatorTest, AnEndWhileItFormedAbortsItAtOnce) {
  SessionCommunicator communicator;
  communicator.EndGeneration("the generation is over");
  const Status adopted = communicator.Adopt(
      collective::MakeSelfCommunicator("job"), Membership(), 0);
  EXPECT_EQ(adopted.code(), StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(adopted), kReasonPeerLost);
  ASSERT_NE(communicator.get(), nullptr);
  EXPECT_EQ(StartCode(communicator.get()), StatusCode::kAborted);
}

TEST(SessionCommunicatorTest, ANewerRecoveryAbortsTheOldOnesAtOnce) {
  SessionCommunicator communicator;
  communicator.Announce(2, {});
  const Status old = communicator.Adopt(collective::MakeSelfCommunicator("job"),
                                        Membership(), 1);
  EXPECT_EQ(ReasonOf(old), kReasonPeerLost);
  communicator.Drop();
  EXPECT_TRUE(
      communicator
          .Adopt(collective::MakeSelfCommunicator("job"), Membership(), 2)
          .ok());
  const auto start = [&] {
    return communicator.get()->Start({collective::CollectiveKind::kBarrier});
  };
  EXPECT_TRUE(start().ok());
  communicator.Announce(3, {});
  EXPECT_EQ(start().status().code(), StatusCode::kAborted);
}

// For a backend that waits for a peer where no store can end the wait.
TEST(SessionCommunicatorTest, AFormingIsCancelledByAnEndOrANewerRecovery) {
  SessionCommunicator communicator;
  const auto first = communicator.BeginForming(0);
  EXPECT_FALSE(first->load());
  communicator.Announce(1, {});
  EXPECT_TRUE(first->load());
  EXPECT_TRUE(communicator.BeginForming(0)->load()) << "it is old at once";
  const auto second = communicator.BeginForming(1);
  EXPECT_FALSE(second->load());
  communicator.EndGeneration("the generation is over");
  EXPECT_TRUE(second->load());
  EXPECT_TRUE(communicator.BeginForming(2)->load());
}

TEST(SessionCommunicatorTest, DropForgetsItAndAnAbortOfNoneIsHarmless) {
  SessionCommunicator communicator;
  communicator.Abort("there is none");
  ASSERT_TRUE(
      communicator
          .Adopt(collective::MakeSelfCommunicator("job"), Membership(), 0)
          .ok());
  EXPECT_EQ(StartCode(communicator.get()), StatusCode::kOk);
  communicator.Drop();
  EXPECT_EQ(communicator.get(), nullptr);
}

// Says what the test tells it to say.
class TellingCommunicator final : public collective::ForwardingCommunicator {
 public:
  explicit TellingCommunicator(std::optional<collective::PeerWait> wait,
                               std::string_view backend = "self")
      : ForwardingCommunicator(collective::MakeSelfCommunicator("job")),
        wait_(wait),
        backend_(backend) {}
  std::optional<collective::PeerWait> CurrentWait() const override {
    return wait_;
  }
  std::string_view backend() const override { return backend_; }

 private:
  const std::optional<collective::PeerWait> wait_;
  const std::string_view backend_;
};

TEST(SessionCommunicatorTest, AWaitNamesTheRankOfTheJob) {
  SessionCommunicator communicator;
  EXPECT_EQ(communicator.CurrentWait(), task::RankWait()) << "there is none";
  // Rank 1 of 4 is away: rank 3 has place 2.
  const Membership small = MembersWithout(std::vector<int>{1}, 4, 0);
  const auto say = [&](std::optional<collective::PeerWait> wait) {
    EXPECT_TRUE(
        communicator
            .Adopt(std::make_unique<TellingCommunicator>(wait), small, 1)
            .ok());
    return communicator.CurrentWait();
  };
  EXPECT_EQ(say(std::nullopt), task::RankWait()) << "it does not tell";
  EXPECT_EQ(say(collective::PeerWait{true, 2, 9}),
            (task::RankWait{0, true, true, 3, 9}));
  EXPECT_EQ(say(collective::PeerWait{true, -1, 9}),
            (task::RankWait{0, true, true, -1, 9}));
  EXPECT_EQ(say(collective::PeerWait{false, -1, 9}),
            (task::RankWait{0, true, false, -1, 9}));
}

// Of a rank that trains with rank 2 while rank 1 is away.
class ReturnTest : public ::testing::Test {
 protected:
  ReturnTest() {
    const Membership small = MembersWithout(std::vector<int>{1}, 3, 0);
    EXPECT_TRUE(
        communicator_.Adopt(collective::MakeSelfCommunicator("job"), small, 4)
            .ok());
    communicator_.SetTrains();
    EXPECT_TRUE(communicator_.CheckMembership().ok());
  }
  StatusCode Start() { return StartCode(communicator_.get()); }

  SessionCommunicator communicator_;
};

TEST_F(ReturnTest, TheCommunicatorLivesUntilThisRankLeaves) {
  communicator_.Announce(5, {});
  EXPECT_EQ(ReasonOf(communicator_.CheckMembership()), kReasonPeerLost);
  EXPECT_EQ(Start(), StatusCode::kOk);
  communicator_.Leave("ranks return");
  EXPECT_EQ(Start(), StatusCode::kOk) << "others may be at the end of a step";
  communicator_.Tick(MonotonicNow() + SessionCommunicator::kStepTime / 2);
  EXPECT_EQ(Start(), StatusCode::kOk);
  communicator_.Tick(MonotonicNow() + SessionCommunicator::kStepTime);
  EXPECT_EQ(Start(), StatusCode::kAborted);
}

TEST_F(ReturnTest, ALostMemberEndsItAtOnce) {
  communicator_.Announce(5, std::vector<int>{2});
  EXPECT_EQ(Start(), StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(communicator_.CheckMembership()), kReasonPeerLost);
}

TEST_F(ReturnTest, ALossAfterAReturnEndsItAtOnce) {
  communicator_.Announce(5, {});
  communicator_.Announce(6, std::vector<int>{1, 2});
  EXPECT_EQ(Start(), StatusCode::kAborted);
}

TEST_F(ReturnTest, ARecoveryThatWasMissedEndsItAtOnce) {
  communicator_.Announce(6, {});
  EXPECT_EQ(Start(), StatusCode::kAborted);
}

TEST_F(ReturnTest, OneThatDoesNotTrainYetHasNoStepToEnd) {
  communicator_.Drop();
  EXPECT_TRUE(communicator_
                  .Adopt(collective::MakeSelfCommunicator("job"),
                         MembersWithout(std::vector<int>{1}, 3, 0), 5)
                  .ok());
  communicator_.Announce(6, {});
  EXPECT_EQ(Start(), StatusCode::kAborted);
}

// A member in the next step would wait there for one that has left.
TEST(SessionCommunicatorTest, OverNcclAReturnEndsItAtOnceUnlessItsRankIsAlone) {
  for (const auto& [away, expected] :
       {std::pair(std::vector<int>{1}, StatusCode::kAborted),
        std::pair(std::vector<int>{1, 2}, StatusCode::kOk)}) {
    SessionCommunicator communicator;
    EXPECT_TRUE(
        communicator
            .Adopt(std::make_unique<TellingCommunicator>(std::nullopt, "nccl"),
                   MembersWithout(away, 3, 0), 4)
            .ok());
    communicator.SetTrains();
    communicator.Announce(5, {});
    EXPECT_EQ(StartCode(communicator.get()), expected);
  }
}

TEST_F(ReturnTest, AnErrorOfAMemberEndsItForOthers) {
  communicator_.Leave("a peer is gone");
  EXPECT_EQ(Start(), StatusCode::kAborted);
}

TEST(CheckpointRecordTest, TheLastOneThatWasTriedMustBeSaved) {
  CheckpointRecord record;
  EXPECT_TRUE(record.Check().ok());
  record.Tried(10);
  EXPECT_EQ(ReasonOf(record.Check()), kReasonCheckpointFailed);
  record.Saved(10);
  EXPECT_TRUE(record.Check().ok());
  record.Tried(20);
  // An older one does not count.
  record.Saved(5);
  EXPECT_THAT(Message(record.Check()),
              HasSubstr("the newest one is of step 10"));
  record.StoppedEarly();
  EXPECT_TRUE(record.Check().ok());
}

TEST(CheckpointRecordTest, ANewChiefAnswersForItsOwn) {
  CheckpointRecord record;
  record.Tried(10);  // The chief before published it.
  record.Forget();
  EXPECT_TRUE(record.Check().ok());
  record.Tried(20);
  EXPECT_FALSE(record.Check().ok());
}

TEST(PendingOrdersTest, OffersEachDirectiveOnce) {
  StepController controller = *StepController::Create({});
  PendingOrders orders;
  v1::RankDirective directive;
  directive.set_kind(v1::RankDirective::CHECKPOINT);
  directive.set_id(7);
  orders.Add(directive);
  orders.RequestDrain();
  orders.Offer(&controller);
  const ControlWords words = *controller.Begin({});
  ASSERT_TRUE(controller.Verify(words).ok());
  const StepOrders first = *controller.Commit();
  EXPECT_TRUE(first.drain);
  ASSERT_TRUE(controller.Verify(*controller.Begin({})).ok());
  const StepOrders second = *controller.Commit();
  ASSERT_TRUE(second.checkpoint.has_value());
  EXPECT_EQ(second.checkpoint->directives, std::vector<uint32_t>{7});

  StepController later = *StepController::Create({});
  orders.Offer(&later);
  ASSERT_TRUE(later.Verify(*later.Begin({})).ok());
  ASSERT_TRUE(later.Commit().ok());
  ASSERT_TRUE(later.Verify(*later.Begin({})).ok());
  EXPECT_FALSE(later.Commit()->checkpoint.has_value());
}

TEST(PlanReportsTest, TheChoiceIsTakenOnceAndThePlanWhenItChanges) {
  PlanReports reports;
  *reports.choice() = "backend shm: all 2 ranks are on one host";
  EXPECT_EQ(reports.TakeChoice(nullptr, "buckets of 1 MiB"),
            "backend shm: all 2 ranks are on one host; buckets of 1 MiB");
  EXPECT_EQ(reports.TakeChoice(nullptr, "buckets of 1 MiB"), "");

  EXPECT_FALSE(reports.Changes(""));
  EXPECT_TRUE(reports.Changes("a plan"));
  EXPECT_FALSE(reports.Changes("a plan"));
  reports.Forget();
  EXPECT_TRUE(reports.Changes("a plan"));
}

}  // namespace
}  // namespace lockstep::worker::runtime
