#include "server/core/stall.h"

#include <gtest/gtest.h>

#include "server/core/stall_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

TEST_F(StallTest, FrozenRankIsNamedAfterTheDeadline) {
  Steps(50);
  EXPECT_EQ(watch_.Deadline(), 5s);
  Freeze("compute");
  EXPECT_EQ(After(60s), 5500ms);
  const auto stall = Stalled();
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->rank, 1);
  EXPECT_EQ(stall->phase, "compute");
  EXPECT_EQ(stall->step, 51);
  EXPECT_EQ(stall->waiting, 2);
}

// Its process waits to be a member again, and the others do not wait for it.
TEST_F(StallTest, ARankThatIsAwayNeitherStallsNorHidesAStall) {
  Steps(50);
  ranks_[2].progress.phase = "forming";
  away_ = {2};
  for (int i = 0; i < 40; ++i) {
    ++step_;
    for (int32_t rank = 0; rank < 2; ++rank) Put(rank, "compute");
    Beat();
    ASSERT_FALSE(Stalled()) << "the others make steps";
  }
  Put(0, "allreduce");
  Beat();
  EXPECT_TRUE(After(60s));
  const auto stall = Stalled();
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->rank, 1);
  EXPECT_EQ(stall->waiting, 1);
  away_ = {1, 2};
  EXPECT_FALSE(Stalled()) << "one that is alone waits for no other";
}

// A report comes late: the page says since when it stands.
TEST_F(StallTest, APageThatSaysWhenItChangedCountsFromThere) {
  RankStatus rank;
  const auto page = [&](int64_t step, std::optional<MonoTime> changed) {
    rank.progress.step = step;
    rank.progress.committed_step = step - 1;
    now_ += 500ms;
    // Rank 1 waits for rank 0.
    for (rank.rank = 0; rank.rank < 2; ++rank.rank) {
      rank.progress.phase = rank.rank == 0 ? "compute" : "allreduce";
      watch_.Take(rank, now_, changed);
    }
  };
  watch_.Reset(2);  // Of two ranks.
  for (int64_t step = 1; step <= 30; ++step) page(step, now_ + 500ms);
  const MonoTime changed = now_ + 100ms;
  page(31, changed);
  while (!watch_.StalledRank({2, {}}, now_) && now_ - changed < 10s) {
    page(31, changed);
  }
  auto stall = watch_.StalledRank({2, {}}, now_);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->still, now_ - changed);
  // A clock that is wrong moves it at most to the reports around the change.
  const MonoTime before = now_;
  page(32, now_ - 1h);
  while (!watch_.StalledRank({2, {}}, now_) && now_ - before < 10s) {
    page(32, now_ - 1h);
  }
  stall = watch_.StalledRank({2, {}}, now_);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->still, now_ - before);
}

// People hear of it at half the deadline, with the limit that counts.
TEST_F(StallTest, ItIsSeenLongBeforeItIsGivenUp) {
  Steps(20);
  Freeze("compute");
  const MonoTime began = now_;
  while (!watch_.StalledRank({3, {}}, now_) && now_ - began < 10s) Beat();
  const auto seen = watch_.StalledRank({3, {}}, now_);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->rank, 1);
  EXPECT_EQ(seen->waiting, 2);
  EXPECT_GE(seen->limit, 5s);
  EXPECT_LE(seen->limit, 6s) << "the last of the others came later";
  EXPECT_LE(seen->still, 3500ms);
  EXPECT_FALSE(Stalled());
  ++step_;
  for (int32_t rank = 0; rank < 3; ++rank) Put(rank, "compute");
  Beat();
  EXPECT_FALSE(watch_.StalledRank({3, {}}, now_));
}

// What a rank used before it stopped says nothing of it now.
TEST_F(StallTest, BurstOfCpuBeforeTheStopBuysNoTime) {
  Steps(20);
  Freeze("compute");
  ranks_[1].usage.cpu_seconds += 0.15;
  const MonoTime began = now_;
  while (!watch_.StalledRank({3, {}}, now_) && now_ - began < 10s) Beat();
  const auto seen = watch_.StalledRank({3, {}}, now_);
  ASSERT_TRUE(seen);
  EXPECT_LE(seen->limit, 6s);
  const auto after = After(60s);
  ASSERT_TRUE(after);
  EXPECT_LE(*after + (now_ - began), 8s);
}

TEST_F(StallTest, WhatPeopleWereToldIsKept) {
  Steps(20);
  busy_ = 1;
  Freeze("compute");
  const MonoTime since = now_;
  while (!watch_.StalledRank({3, {}}, now_) && now_ - since < 10s) Beat();
  const auto told = watch_.StalledRank({3, {}}, now_);
  ASSERT_TRUE(told);
  ASSERT_EQ(told->limit, 1min);
  watch_.RecordAnnounced(*told);
  // It uses no CPU any more.
  busy_ = -1;
  while (!Stalled() && now_ - since < 5min) Beat();
  EXPECT_GE(now_ - since, 1min);
  EXPECT_LE(now_ - since, 1min + 2s);
}

TEST_F(StallTest, WhatPeopleWereToldCountsUntilItMoves) {
  Steps(20);
  busy_ = 1;
  Freeze("compute");
  while (!watch_.StalledRank({3, {}}, now_)) Beat();
  watch_.RecordAnnounced(*watch_.StalledRank({3, {}}, now_));
  busy_ = -1;
  Steps(1);
  Freeze("compute");
  EXPECT_LT(watch_.Deadline(), 30s);
  EXPECT_TRUE(After(watch_.Deadline() + 1s));
}

// What was said when rank 1 was named holds for the gang: rank 2 stands, too,
// and uses no CPU any more.
TEST_F(StallTest, WhatPeopleWereToldCountsForAnotherFrozenRank) {
  Steps(20);
  also_busy_ = true;
  busy_ = 1;
  Freeze("compute");
  Put(2, "compute");
  Beat();
  const MonoTime since = now_;
  while (!watch_.StalledRank({3, {}}, now_) && now_ - since < 10s) Beat();
  const auto told = watch_.StalledRank({3, {}}, now_);
  ASSERT_TRUE(told);
  ASSERT_EQ(told->rank, 1);
  ASSERT_EQ(told->limit, 1min);
  watch_.RecordAnnounced(*told);
  also_busy_ = false;
  while (!Stalled() && now_ - since < 5min) Beat();
  EXPECT_GE(now_ - since, 59s);
  EXPECT_LE(now_ - since, 1min + 2s);
}

TEST_F(StallTest, DeadlineFollowsTheSlowestSteps) {
  Steps(98);
  Steps(2, 10);
  EXPECT_EQ(watch_.Deadline(), 20s) << "4 x the 99th of a hundred";
  Freeze("other");
  EXPECT_EQ(After(60s), 20500ms);
}

TEST_F(StallTest, FirstStepMayTakeTenMinutes) {
  Freeze("compute");
  EXPECT_EQ(After(20min), 10min + 500ms);
}

TEST_F(StallTest, EarlyStepsMayTakeAMinute) {
  Steps(5);
  Freeze("compute");
  EXPECT_EQ(After(20min), 60500ms);
}

TEST_F(StallTest, LegalPausesAreNoStall) {
  for (const char* phase : {"checkpoint", "evaluation", "forming", "finished",
                            "", "something new"}) {
    Steps(50);
    Freeze(phase);
    EXPECT_FALSE(After(20min)) << phase;
  }
}

TEST_F(StallTest, PauseOfAnyRankIsEnough) {
  Steps(50);
  Freeze("compute");
  Put(2, "checkpoint");
  EXPECT_FALSE(After(20min));
}

TEST_F(StallTest, RankThatComputesIsGivenMoreTime) {
  Steps(50);
  busy_ = 1;
  Freeze("compute");
  EXPECT_EQ(After(20min), 60s) << "its page stood half a second before";
}

TEST_F(StallTest, RankThatReadsIsGivenMoreTime) {
  Steps(50);
  Freeze("input");
  EXPECT_EQ(After(20min), 60500ms);
}

TEST_F(StallTest, AllSlowAlikeIsNoStall) {
  Steps(50);
  EXPECT_FALSE(After(20min));
}

TEST_F(StallTest, AllWaitingIsNobodysAndTakesLonger) {
  Steps(50);
  for (int32_t rank = 0; rank < 3; ++rank) Put(rank, "allreduce");
  Beat();
  EXPECT_EQ(After(20min), 30500ms);
  EXPECT_EQ(Stalled()->rank, -1);
  EXPECT_EQ(Stalled()->waiting, 3);
}

// Stopped while it was woken: its peers have gone on to the next step.
TEST_F(StallTest, RankThatNeverLeftTheLastStep) {
  Steps(50);
  Put(1, "allreduce");
  ++step_;
  Put(0, "allreduce");
  Put(2, "allreduce");
  Beat();
  EXPECT_EQ(After(60s), 5500ms);
  EXPECT_EQ(Stalled()->rank, 1);
  EXPECT_EQ(Stalled()->phase, "allreduce");
  EXPECT_EQ(Stalled()->step, 51);
  EXPECT_EQ(Stalled()->waiting, 2);
}

TEST_F(StallTest, LastStepIsDone) {
  Steps(50);
  for (RankStatus& rank : ranks_) rank.progress.total_steps = step_ - 1;
  for (int32_t rank = 0; rank < 3; ++rank) {
    Put(rank, rank == 0 ? "other" : "allreduce");
  }
  EXPECT_FALSE(After(20min));
}

// The coordinator was away or asleep: what was late is no evidence.
TEST_F(StallTest, GapOfReportsIsNoStandstill) {
  Steps(50);
  Freeze("compute");
  now_ += 1min;
  EXPECT_FALSE(Stalled()) << "nothing was heard";
  Beat();
  EXPECT_FALSE(Stalled()) << "seen once";
  EXPECT_EQ(After(60s), 5500ms) << "seen to stand still since";
}

TEST_F(StallTest, SilentHostIsNotOurs) {
  Steps(50);
  Freeze("compute");
  for (int i = 0; i < 100; ++i) {
    now_ += 500ms;
    watch_.Take(ranks_[0], now_);
    watch_.Take(ranks_[2], now_);
    EXPECT_FALSE(Stalled());
  }
}

TEST_F(StallTest, RestoredStepIsNoStep) {
  watch_.Reset(2);
  RankStatus rank;
  watch_.Take(rank, now_ += 500ms);
  rank.progress.committed_step = 60;
  watch_.Take(rank, now_ += 500ms);
  EXPECT_EQ(watch_.Deadline(), 10min);
  rank.progress.committed_step = 61;
  watch_.Take(rank, now_ += 500ms);
  EXPECT_EQ(watch_.Deadline(), 1min);
}

TEST_F(StallTest, LoneRankIsNeverStalled) {
  EXPECT_FALSE(watch_.Check({1, {}}, now_ + 1min));
  EXPECT_FALSE(watch_.Check({4, {}}, now_)) << "one was never heard of";
}

// A program, whose daemons judge each rank by its signs.
class ProgramStallTest : public testing::Test {
 protected:
  ProgramStallTest() {
    watch_.Reset(2, JobKind::kProgram);
    for (int32_t rank = 0; rank < 3; ++rank) {
      ranks_[rank].rank = rank;
      ranks_[rank].progress.signs = ProgressSigns();
      ranks_[rank].progress.signs->limit = 10min;
    }
  }

  void Set(int32_t rank, SignSource source, Duration still, Duration limit) {
    ProgressSigns& signs = *ranks_[rank].progress.signs;
    signs.source = source;
    signs.still = still;
    signs.limit = limit;
  }
  void Beat(int ranks = 3) {
    now_ += 500ms;
    for (int i = 0; i < ranks; ++i) watch_.Take(ranks_[i], now_);
  }
  std::optional<Stall> Stalled(std::set<int32_t> ended = {}) {
    return watch_.Check({3, std::move(ended)}, now_);
  }

  StallWatch watch_;
  MonoTime now_ = MonoTime(std::chrono::hours(1));
  RankStatus ranks_[3];
};

TEST_F(ProgramStallTest, TheRankThatPrintsStepsSpeaksForTheRest) {
  Set(0, SignSource::kLog, 59s, 60s);
  ranks_[0].progress.signs->log_step = 120;
  Beat();
  EXPECT_FALSE(Stalled());
  Set(0, SignSource::kLog, 61s, 60s);
  Beat();
  const auto stall = Stalled();
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->rank, 0);
  EXPECT_EQ(stall->source, SignSource::kLog);
  EXPECT_EQ(stall->still, 61s);
  EXPECT_EQ(stall->limit, 60s);
  EXPECT_EQ(stall->log_step, 120);
}

TEST_F(ProgramStallTest, RanksWithWorseSignsMayStand) {
  Set(0, SignSource::kLog, 1s, 60s);
  Set(1, SignSource::kActivity, 1h, 60s);
  Beat();
  EXPECT_FALSE(Stalled());
}

TEST_F(ProgramStallTest, AllThatSpeakMustStand) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    Set(rank, SignSource::kSession, 30s, 10s);
  }
  // It saves, and the others wait for it.
  Set(2, SignSource::kSession, 0s, 10s);
  Beat();
  EXPECT_FALSE(Stalled());
  Set(2, SignSource::kSession, 11s, 10s);
  Beat();
  EXPECT_TRUE(Stalled());
}

TEST_F(ProgramStallTest, TheOneThatDoesNotWaitIsNamed) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    Set(rank, SignSource::kSession, 30s, 10s);
    ranks_[rank].progress.step = 7;
    ranks_[rank].progress.phase = rank == 1 ? "compute" : "allreduce";
  }
  Beat();
  const auto stall = Stalled();
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->rank, 1);
  EXPECT_EQ(stall->phase, "compute");
  EXPECT_EQ(stall->step, 7);
  EXPECT_EQ(stall->waiting, 2);
  ranks_[0].progress.step = 6;
  Beat();
  EXPECT_EQ(Stalled()->rank, 0) << "it is behind";
}

TEST_F(ProgramStallTest, TheOneThatIsStoppedIsNamed) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    Set(rank, SignSource::kSession, 30s, 10s);
    ranks_[rank].progress.step = 7;
    ranks_[rank].progress.phase = "compute";
    ranks_[rank].progress.collective_wait.emplace();
    ranks_[rank].progress.collective_wait->responsive = rank != 2;
  }
  Set(0, SignSource::kSession, 31s, 10s);
  Beat();
  ASSERT_TRUE(Stalled());
  EXPECT_EQ(Stalled()->rank, 2);
  ranks_[2].progress.phase = "finished";
  Beat();
  EXPECT_EQ(Stalled()->rank, 0) << "one that left its session says no more";
}

TEST_F(ProgramStallTest, TimePassesBetweenReports) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    Set(rank, SignSource::kLog, 2500ms, 3s);
  }
  Beat();
  EXPECT_FALSE(Stalled());
  now_ += 600ms;
  EXPECT_TRUE(Stalled());
  now_ += 3s;
  EXPECT_FALSE(Stalled()) << "of a silent host nothing is known";
}

TEST_F(ProgramStallTest, EveryRankMustBeKnown) {
  Set(0, SignSource::kLog, 61s, 60s);
  Beat(2);
  EXPECT_FALSE(Stalled()) << "rank 2 may be the one that prints";
  EXPECT_TRUE(Stalled({2})) << "it has ended";
}

TEST_F(ProgramStallTest, ARankThatHasEndedSaysNoMore) {
  Set(0, SignSource::kSession, 1s, 10s);
  Set(1, SignSource::kLog, 61s, 60s);
  Beat();
  EXPECT_FALSE(Stalled());
  EXPECT_TRUE(Stalled({0}));
}

TEST_F(ProgramStallTest, ADaemonOfBeforeSaysNothing) {
  for (RankStatus& rank : ranks_) rank.progress.signs.reset();
  Beat();
  EXPECT_FALSE(Stalled());
}

TEST_F(ProgramStallTest, APlannedEndIsNoStall) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    Set(rank, SignSource::kSession, 1h, 10s);
    ranks_[rank].progress.committed_step = 100;
    ranks_[rank].progress.total_steps = 100;
  }
  Beat();
  EXPECT_FALSE(Stalled());
}

// The survivors stood for as long as the recovery took.
TEST_F(StallTest, ARecoveryBeginsAnew) {
  Steps(20);
  Freeze("compute");
  for (int beat = 0; beat < 60; ++beat) {
    Beat();
    watch_.Restart(now_);
  }
  // The first step may be slow, as that of a generation's.
  EXPECT_FALSE(After(59s));
  EXPECT_TRUE(After(5s));
}

TEST(StallTextTest, SaysWhatIsMissingAndWhatFollows) {
  Job job;
  job.spec.kind = JobKind::kProgram;
  job.tasks.resize(1);
  job.tasks[0].node = "a";
  job.tasks[0].ranks.resize(1);
  Stall stall;
  stall.source = SignSource::kLog;
  stall.log_step = 120;
  stall.still = 63s;
  stall.limit = 60s;
  EXPECT_EQ(Describe(job, stall),
            RankLabel(job, 0) + " shows no progress for " +
                FormatDuration(63s) +
                ": its log names no new step after 120; the limit is " +
                FormatDuration(60s) + "; it runs on, as its --hang warn says");
  job.spec.hang = HangPolicy::kRestart;
  EXPECT_NE(Describe(job, stall).find("--hang restart"), std::string::npos);
  EXPECT_EQ(CauseOf(job, stall).reason, Reason::kStalled);
}

TEST(HangPolicyTest, TheDefaultIsOfTheKind) {
  JobSpec spec;
  spec.kind = JobKind::kNative;
  EXPECT_EQ(HangPolicyOf(spec), HangPolicy::kRestart);
  spec.kind = JobKind::kProgram;
  EXPECT_EQ(HangPolicyOf(spec), HangPolicy::kWarn);
  spec.hang = HangPolicy::kOff;
  EXPECT_EQ(HangPolicyOf(spec), HangPolicy::kOff);
}

}  // namespace
}  // namespace lockstep::server
