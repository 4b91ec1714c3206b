#include "server/metrics/job_account.h"

#include <gtest/gtest.h>

#include "server/core/testing.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

// One job through its life, with an account that sees what the coordinator
// would tell it.
class JobAccountTest : public testing::Test {
 protected:
  explicit JobAccountTest(JobSpec spec = NativeSpec("j", 2))
      : scene_(std::move(spec)),
        seen_(scene_.job),
        account_(seen_, scene_.now) {}

  // Tells the account of what changed.
  void Tell() {
    if (scene_.job == seen_) return;
    scene_.job.resource_version = ++version_;
    account_.OnJob(seen_, scene_.job, pools_, scene_.now, &timings_);
    seen_ = scene_.job;
  }
  void Pass(Duration time) {
    scene_.Advance(time);
    Tell();
  }
  void Look(int64_t committed, std::optional<Duration> step_ago = 0s,
            double straggler_0 = 0, double straggler_1 = 0) {
    CoordinatorView::JobEntry entry;
    entry.snapshot.job = std::make_shared<const Job>(scene_.job);
    entry.snapshot.time = scene_.now.wall;
    if (step_ago) entry.last_step = scene_.now.mono - *step_ago;
    entry.snapshot.stall = stall_;
    entry.snapshot.waiting = trouble_;
    for (int32_t rank : {0, 1}) {
      RankStatus& live = entry.snapshot.live[rank];
      live.rank = rank;
      live.progress.committed_step = committed;
      live.progress.samples = committed * 32;
      live.progress.phases.straggler_wait =
          rank == 0 ? straggler_0 : straggler_1;
      live.progress.phases.compute = ToSeconds(scene_.now.mono - began_) -
                                     live.progress.phases.straggler_wait;
      live.progress.phases.checkpoint = static_cast<double>(committed) / 100;
    }
    account_.Look(entry, pools_, scene_.now, &timings_);
  }
  // To RUNNING on hosts a and b: 3 s in the queue, 1 s of forming.
  void Launch() {
    Pass(3s);
    scene_.Put({"a", "b"});
    Tell();
    scene_.Prepared();
    scene_.Settle();
    Tell();
    scene_.Started();
    Pass(1s);
    scene_.Joined();
    scene_.Settle();
    Tell();
    ASSERT_EQ(scene_.job.state, JobState::kRunning);
  }
  double Seconds(TimeState state) const { return account_.seconds(state); }
  static uint64_t Count(const Histogram& histogram) {
    uint64_t count = 0;
    for (const uint64_t n : histogram.counts()) count += n;
    return count;
  }

  Scene scene_;
  Job seen_;
  JobTimings timings_;
  JobAccount::Pools pools_ = {{"a", "p"}, {"b", "q"}};
  JobAccount account_;
  int64_t version_ = 0;
  std::optional<Stall> stall_;
  std::optional<Cause> trouble_;
  MonoTime began_ = scene_.now.mono;
};

TEST_F(JobAccountTest, EverySecondGoesSomewhere) {
  Launch();
  Pass(2s);
  Look(0, std::nullopt);  // Loads its data.
  EXPECT_EQ(account_.state(), TimeState::kLaunching);
  Pass(1s);
  Look(10);
  Pass(5s);
  Look(60);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kQueued), 3);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kLaunching), 4);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kProductive), 5);
  EXPECT_EQ(account_.state(), TimeState::kProductive);
  Pass(31s);
  Look(60, 31s);
  EXPECT_EQ(account_.state(), TimeState::kStalled);
  Pass(4s);
  Look(61);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kStalled), 4);
  double sum = 0;
  for (size_t i = 0; i < kTimeStates; ++i) {
    sum += Seconds(static_cast<TimeState>(i));
  }
  EXPECT_DOUBLE_EQ(sum, ToSeconds(scene_.now.mono - began_));
}

TEST_F(JobAccountTest, ARecoveryIsNeitherAStallNorProductive) {
  Launch();
  for (int32_t rank : {0, 1}) scene_.Rank(rank).recoverable = true;
  scene_.Settle();
  Tell();
  Look(10);
  scene_.Exited(1, Signal(9));
  scene_.Settle();
  Tell();
  EXPECT_EQ(account_.state(), TimeState::kRecovering);
  Pass(40s);
  Look(10, 40s);
  EXPECT_EQ(account_.state(), TimeState::kRecovering);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kRecovering), 40);
  scene_.Rank(1) = scene_.job.tasks[1].ranks[0];
  for (int32_t rank : {0, 1}) {
    scene_.Rank(rank).state = RankState::kJoined;
    scene_.Rank(rank).recovery = 1;
  }
  scene_.Settle();
  Tell();
  Look(11);
  EXPECT_EQ(account_.state(), TimeState::kProductive);
}

class ProgramAccountTest : public JobAccountTest {
 protected:
  ProgramAccountTest() : JobAccountTest(MakeSpec()) {}
  static JobSpec MakeSpec() {
    JobSpec spec = NativeSpec("j", 2);
    spec.kind = JobKind::kProgram;
    return spec;
  }
};

TEST_F(ProgramAccountTest, WhatDoesNotJoinIsUnknown) {
  Launch();
  Look(-1, std::nullopt);
  Pass(100s);
  Look(-1, std::nullopt);
  EXPECT_EQ(account_.state(), TimeState::kUnknown);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kUnknown), 100);
}

TEST_F(ProgramAccountTest, WhatMakesStepsIsProductiveUntilItsLimit) {
  Launch();
  Look(-1, std::nullopt);
  EXPECT_EQ(account_.state(), TimeState::kUnknown);
  Look(10);
  Pass(5s);
  Look(60);
  EXPECT_EQ(account_.state(), TimeState::kProductive);
  Pass(31s);
  Look(60, 31s);
  EXPECT_EQ(account_.state(), TimeState::kProductive) << "its limit is longer";
  stall_ = Stall();
  Look(60, 31s);
  EXPECT_EQ(account_.state(), TimeState::kStalled);
  Pass(10s);
  Look(60, 41s);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kStalled), 10);
}

TEST_F(ProgramAccountTest, OnASilentHostNothingIsKnown) {
  Launch();
  Look(60);
  trouble_ = Cause{Reason::kNodeUnknown, "node a is silent"};
  Look(60);
  EXPECT_EQ(account_.state(), TimeState::kUnknown);
  Pass(10s);
  trouble_.reset();
  Look(60, 10s);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kUnknown), 10);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kProductive), 0);
  EXPECT_EQ(account_.state(), TimeState::kProductive) << "it has gone on";
}

TEST_F(ProgramAccountTest, WhatDoesNotJoinStandsStillAllTheSame) {
  Launch();
  stall_ = Stall();
  Look(-1, std::nullopt);
  Pass(10s);
  Look(-1, std::nullopt);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kStalled), 10);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kProductive), 0);
}

TEST_F(JobAccountTest, LaunchIsSplitAndAddsUp) {
  Launch();
  Pass(2s);
  Look(5, 500ms);
  EXPECT_NEAR(timings_.launch.at("queue").sum(), 3, 1e-6);
  EXPECT_NEAR(timings_.launch.at("stage").sum(), 0, 1e-6);
  EXPECT_NEAR(timings_.launch.at("rendezvous").sum(), 1, 1e-6);
  EXPECT_NEAR(timings_.launch.at("first_step").sum(), 1.5, 1e-6);
  EXPECT_NEAR(timings_.launch.at("total").sum(), 5.5, 1e-6);
  Pass(1s);
  Look(50);
  EXPECT_EQ(Count(timings_.launch.at("total")), 1u);
}

TEST_F(JobAccountTest, StepsDoneAgainAreTold) {
  Launch();
  Look(0, std::nullopt);
  Pass(10s);
  Look(100);
  EXPECT_DOUBLE_EQ(account_.training().steps(), 100);
  EXPECT_DOUBLE_EQ(account_.training().samples(), 6400);
  EXPECT_DOUBLE_EQ(account_.training().checkpoint_stall_seconds(), 1);
  // Rank 1 dies; the generation is stopped within 2 s, forms within 3.
  scene_.Exited(1, Code(3));
  scene_.Settle();
  Tell();
  EXPECT_EQ(account_.state(), TimeState::kRecovering);
  Pass(2s);
  scene_.AllStopped();
  scene_.Settle();
  Tell();
  for (int i = 0; i < 20 && scene_.job.state != JobState::kPreparing; ++i) {
    Pass(1s);
    if (scene_.job.state == JobState::kPlacing) scene_.Put({"a", "b"});
    scene_.Settle();
    Tell();
  }
  ASSERT_EQ(scene_.job.state, JobState::kPreparing);
  scene_.Prepared();
  scene_.Settle();
  Tell();
  scene_.Started();
  Pass(3s);
  scene_.Joined();
  scene_.Settle();
  Tell();
  ASSERT_EQ(scene_.job.state, JobState::kRunning);
  EXPECT_NEAR(timings_.recovery.at("teardown").sum(), 2, 1e-6);
  EXPECT_NEAR(timings_.recovery.at("rendezvous").sum(), 3, 1e-6);
  EXPECT_EQ(Count(timings_.recovery.at("total")), 0u);
  const double recovering = Seconds(TimeState::kRecovering);
  // It goes on from step 80.
  scene_.job.lineage.back().start_step = 80;
  Tell();
  Pass(1s);
  Look(90);
  EXPECT_EQ(account_.state(), TimeState::kRecomputed);
  EXPECT_EQ(Count(timings_.recovery.at("total")), 1u);
  EXPECT_NEAR(timings_.recovery.at("total").sum(), recovering + 1, 1e-6);
  Pass(2s);
  Look(110);
  EXPECT_EQ(account_.state(), TimeState::kProductive);
  EXPECT_DOUBLE_EQ(Seconds(TimeState::kRecomputed), 2);
  EXPECT_DOUBLE_EQ(account_.training().steps(), 130);
  const auto restarts = RestartsOf(scene_.job);
  EXPECT_EQ(restarts[static_cast<size_t>(RestartReason::kRankExit)], 1);
}

TEST_F(JobAccountTest, ACoordinatorThatCameLaterCountsFromThere) {
  Launch();
  Pass(10s);
  JobAccount late(scene_.job, scene_.now);
  account_ = late;
  Look(1000);
  EXPECT_DOUBLE_EQ(account_.training().steps(), 0);
  EXPECT_DOUBLE_EQ(account_.training().samples(), 0);
  EXPECT_EQ(account_.state(), TimeState::kProductive);
  Pass(1s);
  Look(1010);
  EXPECT_DOUBLE_EQ(account_.training().steps(), 10);
}

TEST_F(JobAccountTest, HoldsAreCountedByPool) {
  Launch();
  Pass(10s);
  ASSERT_EQ(account_.held().size(), 2u);
  Look(0);
  EXPECT_DOUBLE_EQ(account_.held().at("p").core_seconds, 11);
  EXPECT_DOUBLE_EQ(account_.held().at("q").core_seconds, 11);
}

// The late rank waits least: its peers wait for it.
TEST_F(JobAccountTest, TheLateRankIsTheOneThatNeverWaits) {
  Launch();
  Look(0, std::nullopt);
  ASSERT_EQ(account_.stragglers().events().size(), 2u);
  Pass(25s);
  Look(100, 0s, 6, 0.1);
  EXPECT_EQ(account_.stragglers().late_rank(), 1);
  EXPECT_EQ(account_.stragglers().events().at("b"), 1);
  EXPECT_EQ(account_.stragglers().events().at("a"), 0);
  ASSERT_TRUE(account_.stragglers().wait_ratio());
  EXPECT_GT(*account_.stragglers().wait_ratio(), 0.05);
  // Both wait the same from here on: nobody is late.
  Pass(25s);
  Look(200, 0s, 7, 1.1);
  EXPECT_EQ(account_.stragglers().late_rank(), std::nullopt);
  EXPECT_EQ(account_.stragglers().events().at("b"), 1);
}

TEST_F(JobAccountTest, CheckpointsAreCounted) {
  Launch();
  scene_.job.last_checkpoint = Checkpoint{10, 1, "p", scene_.now.wall, 1000};
  Tell();
  Tell();
  scene_.job.last_checkpoint = Checkpoint{20, 1, "q", scene_.now.wall, 500};
  Tell();
  EXPECT_EQ(account_.checkpoints().count, 2);
  EXPECT_DOUBLE_EQ(account_.checkpoints().bytes, 1500);
}

TEST(RestartsTest, WhatIsNoLongerKeptIsOther) {
  Job job;
  job.restarts = 5;
  for (const Reason reason :
       {Reason::kNodeLost, Reason::kStalled, Reason::kRankSignal}) {
    job.attempts.emplace_back();
    job.attempts.back().end_cause.reason = reason;
  }
  const auto restarts = RestartsOf(job);
  EXPECT_EQ(restarts[static_cast<size_t>(RestartReason::kNodeLost)], 1);
  EXPECT_EQ(restarts[static_cast<size_t>(RestartReason::kHang)], 1);
  EXPECT_EQ(restarts[static_cast<size_t>(RestartReason::kRankExit)], 1);
  EXPECT_EQ(restarts[static_cast<size_t>(RestartReason::kOther)], 2);
  // An end that no attempt followed is no restart.
  job.restarts = 2;
  EXPECT_EQ(RestartsOf(job)[static_cast<size_t>(RestartReason::kRankExit)], 0);
}

}  // namespace
}  // namespace lockstep::server
