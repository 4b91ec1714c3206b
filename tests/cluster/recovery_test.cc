// Native ranks are killed, stopped and lost, and the others stay.
#include <signal.h>

#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"

namespace lockstep::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

constexpr int64_t kBatch = 12;
constexpr int64_t kSteps = 150;

class RecoveryTest : public ClusterTest {
 protected:
  // `tasks` ranks that recover, with steps of 20 ms and 8 MiB of state.
  v1::JobSpec Recovering(const std::string& name, int tasks,
                         std::vector<std::string> more = {}) {
    std::vector<std::string> flags = {"--steps",     fmt::format("{}", kSteps),
                                      "--batch",     fmt::format("{}", kBatch),
                                      "--step_ms",   "20",
                                      "--state_mib", "8",
                                      "--recover",   "1"};
    flags.insert(flags.end(), more.begin(), more.end());
    v1::JobSpec spec = Steps(name, tasks, flags);
    for (v1::RoleSpec& role : *spec.mutable_roles()) {
      role.mutable_resources()->set_cpus(0.25);
    }
    return spec;
  }

  v1::Job AwaitStep(const std::string& name, int64_t step) {
    return WaitUntil(name, fmt::format("step {}", step),
                     [&](const v1::Job& job) {
                       return job.state() == v1::JOB_STATE_RUNNING &&
                              CommittedOnPage(job, 0) >= step;
                     });
  }

  static void Kill(const v1::Job& job, int rank, int how = SIGKILL) {
    ASSERT_GT(PidOf(job, rank), 0);
    ASSERT_EQ(kill(static_cast<pid_t>(PidOf(job, rank)), how), 0);
  }

  // The job's end: the weights are those of an undisturbed run, on every rank,
  // and one generation has made all steps.
  void CheckEnd(const std::string& name, int ranks, int64_t steps = kSteps) {
    const v1::Job job = WaitEnd(name, v1::JOB_STATE_SUCCEEDED);
    const std::string end =
        fmt::format("done {} skipped 0 hash {}", steps,
                    HashWeights(ExpectedWeights(steps, kBatch)));
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(HasLine(name, rank, end)) << Line(name, rank, "done");
    }
    EXPECT_EQ(job.generation(), 1u);
    EXPECT_EQ(job.restarts(), 0);
  }

  // All ranks but `lost` have the pids that they had.
  static void ExpectStayed(const v1::Job& before, const v1::Job& after,
                           const std::set<int>& lost) {
    for (const auto& [rank, status] : Ranks(before)) {
      if (lost.contains(rank)) {
        EXPECT_NE(PidOf(after, rank), status.pid());
      } else {
        EXPECT_EQ(PidOf(after, rank), status.pid()) << "rank " << rank;
      }
    }
  }

  static std::vector<std::string> EventsOf(const v1::Job& job,
                                           v1::Reason reason) {
    std::vector<std::string> texts;
    for (const v1::Event& event : job.events()) {
      if (event.reason() == reason) texts.push_back(event.message());
    }
    return texts;
  }
};

TEST_F(RecoveryTest, AKilledRankIsReplacedAndTheOthersStay) {
  Submit(Recovering("one", 2));
  const v1::Job before = AwaitStep("one", 20);
  Kill(before, 1);
  const v1::Job after = AwaitRecovered("one", 1);
  ExpectStayed(before, after, {1});
  const auto lost = EventsOf(after, v1::REASON_RECOVERING);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_THAT(lost[0], HasSubstr("killed by SIGKILL"));
  CheckEnd("one", 2);
  const auto back = EventsOf(Get("one"), v1::REASON_RECOVERED);
  ASSERT_EQ(back.size(), 1u);
  EXPECT_THAT(back[0], HasSubstr("recovery 1"));
}

TEST_F(RecoveryTest, TheChiefIsReplaced) {
  Submit(Recovering("chief", 3));
  const v1::Job before = AwaitStep("chief", 20);
  Kill(before, 0);
  ExpectStayed(before, AwaitRecovered("chief", 1), {0});
  CheckEnd("chief", 3);
}

TEST_F(RecoveryTest, OverTcp) {
  Submit(Recovering("tcp", 3, {"--backend", "tcp"}));
  const v1::Job before = AwaitStep("tcp", 20);
  Kill(before, 2);
  ExpectStayed(before, AwaitRecovered("tcp", 1), {2});
  CheckEnd("tcp", 3);
}

TEST_F(RecoveryTest, TwoAtOnce) {
  Submit(Recovering("two", 4));
  const v1::Job before = AwaitStep("two", 20);
  Kill(before, 1);
  Kill(before, 2);
  // One recovery, or a second one that overtakes the first.
  const v1::Job after = AwaitRecovered("two", 1);
  WaitUntil("two", "two new ranks", [&](const v1::Job& job) {
    return PidOf(job, 1) != PidOf(before, 1) &&
           PidOf(job, 2) != PidOf(before, 2);
  });
  ExpectStayed(before, Get("two"), {1, 2});
  CheckEnd("two", 4);
}

TEST_F(RecoveryTest, TheReplacementIsKilledToo) {
  v1::JobSpec spec = Recovering("again", 2);
  spec.set_restart_budget(10);
  Submit(spec);
  v1::Job job = AwaitStep("again", 10);
  const int64_t survivor = PidOf(job, 0);
  for (int kills = 1; kills <= 3; ++kills) {
    const int64_t last = PidOf(job, 1);
    Kill(job, 1);
    // As soon as it runs: it may be about to form, or to receive the state.
    job = WaitUntil("again", "a new process", [&](const v1::Job& now) {
      return PidOf(now, 1) != 0 && PidOf(now, 1) != last;
    });
  }
  AwaitRecovered("again", 3);
  EXPECT_EQ(PidOf(Get("again"), 0), survivor);
  CheckEnd("again", 2);
}

// The stall deadline is five seconds once the coordinator has seen ten steps.
TEST_F(RecoveryTest, AFrozenRankIsReplaced) {
  constexpr int64_t kLong = 600;
  Submit(Recovering("frozen", 2, {"--steps", fmt::format("{}", kLong)}));
  const v1::Job before = AwaitStep("frozen", 450);
  Kill(before, 1, SIGSTOP);
  ExpectStayed(before, AwaitRecovered("frozen", 1), {1});
  CheckEnd("frozen", 2, kLong);
}

// Rank 0 is slow, so that the others wait for it. Rank 1 is stopped there. Over
// tcp rank 0 comes to the same all-reduce, and all ranks wait. Over shared
// memory the others need it no more for that step, and wait in the next one.
class FrozenInAllReduceTest : public RecoveryTest,
                              public testing::WithParamInterface<std::string> {
 protected:
  static constexpr int64_t kFrozenSteps = 60;

  v1::Job Start(const std::string& name) {
    Submit(Recovering(name, 3,
                      {"--steps", fmt::format("{}", kFrozenSteps), "--backend",
                       GetParam(), "--slow_rank", "0", "--slow_ms", "150"}));
    // The coordinator has seen ten steps: the deadline is five seconds.
    return AwaitStep(name, 30);
  }

  // The step in whose all-reduce the rank is; -1: it is elsewhere.
  int64_t AllReduceOf(const v1::Job& job, int rank) const {
    const auto page = PageOf(job, rank);
    return page && page->progress.phase == task::RankPhase::kAllReduce
               ? static_cast<int64_t>(page->progress.step)
               : -1;
  }

  // Stops rank 1 when it has just come to an all-reduce. False, and it goes on:
  // this came too late.
  bool StopRankOne(const v1::Job& job) {
    EXPECT_TRUE(Eventually([&] { return AllReduceOf(job, 1) < 0; }));
    int64_t step = -1;
    const MonoTime deadline = MonotonicNow() + kPatience;
    while (step < 0 && MonotonicNow() < deadline) step = AllReduceOf(job, 1);
    Kill(job, 1, SIGSTOP);
    const bool waits = Eventually(
        [&] {
          const int64_t others = step + (GetParam() == "shm" ? 1 : 0);
          return AllReduceOf(job, 0) == others && AllReduceOf(job, 1) == step &&
                 AllReduceOf(job, 2) == others;
        },
        std::chrono::seconds(2));
    if (!waits) Kill(job, 1, SIGCONT);
    return waits;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, FrozenInAllReduceTest,
                         testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(FrozenInAllReduceTest, TheRankIsNamedAndReplaced) {
  std::string name = "waits";
  v1::Job before = Start(name);
  // Anew: the time that a try took counts for the deadline.
  for (int tries = 1; !StopRankOne(before) && tries < 5; ++tries) {
    EXPECT_TRUE(client()->CancelJob(name).ok());
    name = fmt::format("waits-{}", tries);
    before = Start(name);
  }
  const MonoTime stopped = MonotonicNow();
  const v1::Job after = AwaitRecovered(name, 1);
  const Duration took = MonotonicNow() - stopped;
  RecordProperty("seconds", fmt::format("{:.1f}", ToSeconds(took)));
  // All ranks together would have 30 s.
  EXPECT_LT(took, std::chrono::seconds(20));
  ExpectStayed(before, after, {1});
  const auto events = EventsOf(after, v1::REASON_RECOVERING);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0], HasSubstr("rank 1"));
  EXPECT_THAT(events[0], HasSubstr("stalled in allreduce of step"));
  EXPECT_THAT(events[0], HasSubstr("while 2 other ranks wait for it"));
  CheckEnd(name, 3, kFrozenSteps);
}

TEST_F(RecoveryTest, SurvivorsHoldWhileTheCoordinatorIsAway) {
  Submit(Recovering("away", 2));
  const v1::Job before = AwaitStep("away", 20);
  KillDaemon("coordinator");
  Kill(before, 1);
  ASSERT_TRUE(Eventually(
      [&] { return kill(static_cast<pid_t>(PidOf(before, 1)), 0) != 0; }));
  StartDaemon("coordinator");
  ExpectStayed(before, AwaitRecovered("away", 1), {1});
  CheckEnd("away", 2);
}

TEST_F(RecoveryTest, ADaemonThatWasAwayFindsItsRankDead) {
  Submit(Recovering("daemon", 2));
  const v1::Job before = AwaitStep("daemon", 20);
  std::string node;
  for (const v1::TaskStatus& task : before.tasks()) {
    for (const v1::RankStatus& rank : task.ranks()) {
      if (rank.rank() == 1) node = task.node();
    }
  }
  KillDaemon(node);
  Kill(before, 1);
  StartDaemon(node);
  ExpectStayed(before, AwaitRecovered("daemon", 1), {1});
  CheckEnd("daemon", 2);
}

// The checkpoint that is in flight begins anew; the next one is complete.
TEST_F(RecoveryTest, ACheckpointInFlightBeginsAnew) {
  v1::JobSpec spec = Recovering("saving", 2, {"--vote_ms", "700"});
  spec.mutable_checkpoint()->set_interval_steps(40);
  Submit(spec);
  Kill(AwaitStep("saving", 45), 1);
  AwaitRecovered("saving", 1);
  CheckEnd("saving", 2);
  const v1::Job job = Get("saving");
  EXPECT_GE(job.last_checkpoint().step(), 120);
  EXPECT_EQ(job.last_checkpoint().generation(), 1u);
}

TEST_F(RecoveryTest, WithoutTheOptionTheGangRestarts) {
  v1::JobSpec spec = Recovering("gang", 2, {"--recover", "0"});
  Submit(spec);
  const v1::Job before = AwaitStep("gang", 20);
  Kill(before, 1);
  const v1::Job after =
      WaitUntil("gang", "the next generation",
                [](const v1::Job& job) { return job.generation() == 2; });
  EXPECT_EQ(after.recoveries(), 0);
  WaitEnd("gang", v1::JOB_STATE_SUCCEEDED);
}

// A rank that always fails uses up the tries, as it does without recovery.
TEST_F(RecoveryTest, ARankThatAlwaysFailsEndsTheJob) {
  v1::JobSpec spec = Recovering(
      "always", 2,
      {"--fail_step", "30", "--fail_rank", "1", "--fail_attempts", "100"});
  spec.set_restart_budget(2);
  const v1::Job job = RunJob(spec, v1::JOB_STATE_FAILED);
  EXPECT_GE(job.recoveries(), 1);
}

}  // namespace
}  // namespace lockstep::worker
