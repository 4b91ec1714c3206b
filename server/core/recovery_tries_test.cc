// What failures that are recovered from cost: tries of the job's budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "server/core/recovery_fixture.h"
#include "server/core/replacing_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using testing::HasSubstr;

TEST(RecoveryTriesTest, RanksThatFailTogetherAreOneFailure) {
  Scene s = Recoverable();
  s.Exited(1, Signal(SIGKILL));
  s.Exited(3, Signal(SIGKILL));
  s.Settle();
  EXPECT_EQ(s.job.recovery, 1u);
  EXPECT_EQ(s.job.failures_without_progress, 1);
  EXPECT_THAT(s.job.events.back().message,
              HasSubstr("ranks 1, 3 are replaced while 2 ranks hold"));
  // One that had died as well, and whose node was slower to say so.
  ExitStatus exit = Signal(SIGKILL);
  exit.end_time = s.now.wall - 1ms;
  s.Advance(300ms);
  s.Exited(2, exit);
  s.Settle();
  EXPECT_EQ(s.job.recovery, 2u);
  EXPECT_EQ(s.job.recoveries, 2);
  EXPECT_EQ(s.job.failures_without_progress, 1);
  EXPECT_EQ(Stored(s, 2).restarts, 1);
  EXPECT_EQ(Stored(s, 1).restarts, 1);
  EXPECT_THAT(s.job.events.back().message,
              HasSubstr("it is replaced while 1 rank holds its state "
                        "(recovery 2)"));
}

// The first replacement fails before it has joined.
TEST(RecoveryTriesTest, AFailureDuringARecoveryIsTheNextOne) {
  Scene s = Recoverable();
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  ComeBack(&s, 1);
  s.Exited(1, Code(3));
  s.Settle();
  EXPECT_EQ(s.job.recovery, 1u) << "it waits, as it is the second failure";
  EXPECT_TRUE(IsRecovering(s.job));
  EXPECT_EQ(s.job.cause.message, "rank 1 is replaced after 2.0 s");
  s.Advance(2s);
  s.Settle();
  EXPECT_EQ(s.job.recovery, 2u);
  EXPECT_EQ(s.job.failures_without_progress, 2);
  EXPECT_EQ(Stored(s, 1).restarts, 2);
  ComeBack(&s, 1);
  Join(&s);
  EXPECT_FALSE(IsRecovering(s.job));
}

// The node reported one after the other, and now none has the state.
TEST(RecoveryTriesTest, AGangThatIsLostPieceByPieceIsOneFailure) {
  Scene s(NativeSpec("j", 2));
  s.job.spec.restart_budget = 1;
  s.Run({"a", "b"});
  for (int32_t rank = 0; rank < 2; ++rank) s.Rank(rank).recoverable = true;
  s.Settle();
  s.Exited(0, Signal(SIGKILL));
  s.Settle();
  ASSERT_EQ(s.job.recovery, 1u);
  EXPECT_EQ(s.job.failures_without_progress, 1);
  ExitStatus exit = Signal(SIGKILL);
  exit.end_time = s.now.wall;
  s.Advance(5ms);
  s.Exited(1, exit);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.generation, 2u);
  EXPECT_EQ(s.job.failures_without_progress, 1);
}

TEST(RecoveryTriesTest, TheBudgetIsThatOfAllFailures) {
  Scene s = Recoverable();
  s.job.spec.restart_budget = 2;
  LoseOne(&s);
  s.Exited(1, Code(1));
  s.Advance(2s);
  s.Settle();
  ComeBack(&s, 1);
  Join(&s);
  EXPECT_EQ(s.job.failures_without_progress, 2);
  s.Exited(1, Code(7));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kRestartBudget);
  EXPECT_EQ(s.job.exit_code, 7);
}

TEST(RecoveryTriesTest, ACommittedStepRefillsTheBudget) {
  Scene s = Recoverable();
  s.job.spec.restart_budget = 1;
  for (int i = 1; i <= 4; ++i) {
    Commit(&s, 10 * i);
    LoseOne(&s);
    ASSERT_FALSE(s.job.failing) << i;
    EXPECT_EQ(s.job.failures_without_progress, 1);
    EXPECT_EQ(s.job.recovery, static_cast<uint32_t>(i));
  }
  // Not the step of before.
  s.Exited(1, Code(1));
  s.Settle();
  EXPECT_TRUE(s.job.failing);
}

TEST(RecoveryTriesTest, AnExitThatComesLateIsWhatParkedThem) {
  Scene s = Recoverable();
  s.Rank(0).parked = 1;
  s.Settle();
  s.Settle();
  s.Advance(1s);
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  EXPECT_EQ(s.job.recovery, 1u);
  EXPECT_EQ(Stored(s, 1).restarts, 1);
  s.Advance(5s);
  s.Settle();
  EXPECT_EQ(s.job.recovery, 1u);
}

// The program's own mistake. It does not help to start it again.
ExitStatus KeyError() { return Raised("KeyError: 'a'", "train.py:12"); }

TEST(RecoveryTriesTest, TheSameExceptionTwiceIsNotTriedAgain) {
  Scene s = Recoverable();
  s.job.spec.restart_budget = 10;
  s.Exited(1, KeyError());
  s.Settle();
  ASSERT_EQ(s.job.recovery, 1u);
  ComeBack(&s, 1);
  Join(&s);
  s.Advance(5s);
  s.Exited(1, KeyError());
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kRepeatedFailure);
  EXPECT_THAT(s.job.cause.message, HasSubstr("KeyError: 'a'"));
}

TEST(RecoveryTriesTest, TheSameExceptionAfterProgressIsTriedAgain) {
  Scene s = Recoverable();
  for (int i = 1; i <= 4; ++i) {
    Commit(&s, 10 * i);
    s.Exited(1, KeyError());
    s.Settle();
    ASSERT_FALSE(s.job.failing) << i;
    ComeBack(&s, 1);
    Join(&s);
    s.Advance(5s);
  }
}

// Each rank comes to the same line, some later than others: that is no second
// failure.
TEST(RecoveryTriesTest, RanksThatRaiseTheSameOneAfterTheOtherAreOneFailure) {
  Scene s = Recoverable();
  s.job.spec.restart_budget = 1;
  s.Exited(0, KeyError());
  s.Settle();
  ASSERT_EQ(s.job.recovery, 1u);
  s.Advance(4s);
  s.Exited(2, KeyError());
  s.Settle();
  ASSERT_FALSE(s.job.failing);
  EXPECT_EQ(s.job.recovery, 2u);
  EXPECT_EQ(s.job.failures_without_progress, 1);
  // A new process has been at that line since then.
  ComeBack(&s, 0);
  s.Advance(4s);
  s.Exited(0, KeyError());
  s.Settle();
  EXPECT_TRUE(s.job.failing);
}

// With the last one the gang restarts, which is the first try.
TEST(RecoveryTriesTest, RanksThatAllRaiseTheSameAreOneFailure) {
  for (const Duration apart : {Duration(5ms), Duration(4s)}) {
    Scene s(NativeSpec("j", 2));
    s.Run({"a", "b"});
    for (int32_t rank = 0; rank < 2; ++rank) s.Rank(rank).recoverable = true;
    s.Settle();
    s.Exited(0, KeyError());
    s.Settle();
    ASSERT_EQ(s.job.recovery, 1u);
    s.Advance(apart);
    s.Exited(1, KeyError());
    s.Settle();
    ASSERT_TRUE(s.job.failing);
    s.AllStopped();
    s.Settle();
    EXPECT_EQ(s.job.generation, 2u);
    EXPECT_EQ(s.job.failures_without_progress, 1);
  }
}

// The second one is later reported than the loss of the first one's new
// process.
TEST(RecoveryTriesTest, ALateRankOfTheLastFailureIsNoRepetition) {
  Scene s = Recoverable();
  s.Exited(0, KeyError());
  s.Settle();
  ComeBack(&s, 0);
  s.Advance(4s);
  s.Exited(2, KeyError());
  s.Advance(1s);
  s.Exited(0, Signal(SIGKILL));
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(5s);
  s.Settle();
  EXPECT_EQ(s.job.recovery, 2u);
  EXPECT_EQ(s.job.failures_without_progress, 2);
}

// A move uses up no try, and counts steps anew.
class MovedTriesTest : public ReplacingFixture {};

TEST_F(MovedTriesTest, StepsBeforeAMoveAreProgress) {
  s_.Exited(3, KeyError());
  s_.Settle();
  ASSERT_EQ(s_.job.recovery, 1u);
  Join();
  for (int32_t rank = 0; rank < 4; ++rank) {
    s_.Rank(rank).progress.committed_step = 1000;
  }
  s_.Settle();
  DrainNode("d", 10min);
  Place();
  Prepare("e", {3});
  ASSERT_EQ(s_.job.recovery, 2u);
  Join();
  s_.Exited(3, KeyError());
  s_.Settle();
  EXPECT_FALSE(s_.job.failing);
  EXPECT_EQ(s_.job.recovery, 3u);
  EXPECT_EQ(s_.job.failures_without_progress, 1);
}

}  // namespace
}  // namespace lockstep::server
