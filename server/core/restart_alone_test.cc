// Workers that are started again alone: restart.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server/core/restart.h"
#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ns;
using testing::SizeIs;

ExitStatus PortTaken() {
  ExitStatus exit = Code(1);
  exit.reason = Reason::kPortTaken;
  return exit;
}

Scene WithWorkers() {
  JobSpec spec =
      ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kWorker, 2),
                        Role(TaskType::kPs, 1)});
  spec.restart_worker_alone = true;
  Scene s(spec);
  s.Run({"a", "b", "c", "d"});
  return s;
}

// The node does as it is told.
void StartAgain(Scene* s, int32_t rank) {
  RankStatus fresh;
  fresh.rank = rank;
  fresh.state = RankState::kStarted;
  fresh.restarts = s->Rank(rank).restarts + 1;
  s->Rank(rank) = fresh;
}

TEST(RestartAloneTest, TwoWorkersThatFailAlikeAreNotOneThatFailsTwice) {
  Scene s = WithWorkers();
  ExitStatus exit = Code(1);
  exit.message = "KeyError: 1";
  exit.location = "train.py:12";
  s.Exited(1, exit);
  s.Settle();
  s.Exited(2, exit);
  s.Settle();
  s.Advance(2s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  EXPECT_EQ(s.job.tasks[1].ranks[0].restarts, 1);
  EXPECT_EQ(s.job.tasks[2].ranks[0].restarts, 1);
}

TEST(RestartAloneTest, AWorkerIsStartedAgainAlone) {
  Scene s = WithWorkers();
  s.Rank(1).usage.cpu_seconds = 5;
  s.Exited(1, Signal(SIGKILL));
  s.Gang("b").phase = GangPhase::kStopped;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  EXPECT_FALSE(s.job.failing);
  EXPECT_EQ(s.job.generation, 1u);
  EXPECT_THAT(s.job.holds, SizeIs(4));
  EXPECT_EQ(s.job.failures_without_progress, 1);
  const RankStatus& rank = s.job.tasks[1].ranks[0];
  EXPECT_EQ(rank.restarts, 1);
  EXPECT_FALSE(rank.exit);
  EXPECT_EQ(rank.state, RankState::kPrepared);
  EXPECT_EQ(s.job.events.back().reason, Reason::kWorkerRestarted);
  EXPECT_EQ(s.job.events.back().message,
            "rank 1 (worker 0 on b): killed by SIGKILL; restarted alone (1 of "
            "3 failures without progress)");
  // What is said of the old process is over.
  const Job before = s.job;
  s.Advance(1s);
  s.Settle();
  EXPECT_EQ(s.job, before);
  StartAgain(&s, 1);
  s.Settle();
  EXPECT_EQ(s.job.tasks[1].ranks[0].state, RankState::kStarted);
  s.Rank(1).usage.cpu_seconds = 2;
  s.Exited(1, Code(0));
  s.Exited(0, Code(0));
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
  EXPECT_EQ(s.job.tasks[1].ranks[0].usage.cpu_seconds, 7);
}

TEST(RestartAloneTest, UseOfAllProcessesIsTheRanks) {
  Scene s = WithWorkers();
  Usage& first = s.Rank(1).usage;
  first.cpu_seconds = 5;
  first.seconds = 10;
  first.gpu_utilization = 0.5;
  first.memory_peak_bytes = 900;
  first.cpu_peak_cores = 1;
  first.gpu_utilization_peak = 0.9;
  first.network_sent_bytes = 100;
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  const RankStatus& rank = s.job.tasks[1].ranks[0];
  ASSERT_EQ(rank.restarts, 1);
  EXPECT_EQ(rank.usage.cpu_seconds, 5);
  EXPECT_EQ(UsageOf(s.job, s.Rank(1)).cpu_seconds, 5)
      << "the first one's is not counted twice";
  StartAgain(&s, 1);
  Usage& second = s.Rank(1).usage;
  second.cpu_seconds = 2;
  second.seconds = 30;
  second.gpu_utilization = 0.9;
  second.memory_peak_bytes = 300;
  second.cpu_peak_cores = 2;
  second.gpu_memory_peak_bytes = 70;
  second.network_sent_bytes = 30;
  second.network_received_bytes = 8;
  s.Settle();
  EXPECT_EQ(UsageOf(s.job, s.Rank(1)).cpu_seconds, 7) << "while it runs";
  EXPECT_EQ(UsageOf(s.job, s.Rank(1)).network_sent_bytes, 130);
  EXPECT_EQ(UsageOf(s.job, s.Rank(1)).network_received_bytes, 8);
  s.Advance(10min);
  s.Exited(1, Signal(SIGKILL));
  s.Settle();
  ASSERT_EQ(rank.restarts, 2);
  EXPECT_EQ(rank.usage.cpu_seconds, 7);
  EXPECT_EQ(rank.usage.seconds, 40);
  EXPECT_DOUBLE_EQ(rank.usage.gpu_utilization.value_or(0), 0.8);
  EXPECT_EQ(rank.usage.memory_peak_bytes, 900);
  EXPECT_EQ(rank.usage.cpu_peak_cores, 2);
  EXPECT_EQ(rank.usage.gpu_utilization_peak, 0.9);
  EXPECT_EQ(rank.usage.gpu_memory_peak_bytes, 70);
  // The next generation begins anew.
  s.Exited(0, Code(1));
  s.Settle();
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.generation, 2u);
  EXPECT_EQ(s.job.tasks[1].ranks[0].usage.cpu_seconds, 0);
  EXPECT_EQ(UsageOf(s.job, s.Rank(1)).cpu_seconds, 0);
}

TEST(RestartAloneTest, OthersRestartTheGang) {
  for (const int32_t rank : {0, 3}) {
    Scene s = WithWorkers();
    s.Exited(rank, Signal(SIGKILL));
    s.Settle();
    EXPECT_TRUE(s.job.failing) << rank;
  }
  Scene fatal = WithWorkers();
  fatal.Exited(1, Code(127));
  fatal.Settle();
  EXPECT_TRUE(fatal.job.failing);
  Scene lost = WithWorkers();
  lost.view.nodes["b"].state = NodeState::kLost;
  lost.Exited(1, Code(1));
  lost.Settle();
  ASSERT_TRUE(lost.job.failing);
  EXPECT_EQ(lost.job.failing->reason, Reason::kNodeLost);
  Scene unasked = WithWorkers();
  unasked.job.spec.restart_worker_alone = false;
  unasked.Exited(1, Code(1));
  unasked.Settle();
  EXPECT_TRUE(unasked.job.failing);
  Scene ports = WithWorkers();
  ports.Exited(1, PortTaken());
  ports.Settle();
  EXPECT_TRUE(ports.job.failing);
}

TEST(RestartAloneTest, AWorkerAloneHasTheJobsBudgetAndBackoff) {
  Scene s = WithWorkers();
  s.job.spec.restart_budget = 2;
  s.Exited(1, Code(1));
  s.Settle();
  ASSERT_EQ(s.job.tasks[1].ranks[0].restarts, 1) << "the first one at once";
  StartAgain(&s, 1);
  s.Settle();
  // The other worker's failure is the job's second.
  s.Exited(2, Code(1));
  s.Advance(2s - 1ns);
  s.Settle();
  EXPECT_EQ(s.job.tasks[2].ranks[0].restarts, 0);
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  EXPECT_EQ(s.job.tasks[2].ranks[0].restarts, 1);
  EXPECT_EQ(s.job.failures_without_progress, 2);
  StartAgain(&s, 2);
  s.Settle();
  s.Exited(1, Code(7));
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kRestartBudget);
  EXPECT_EQ(s.job.exit_code, 7) << "the last cause's";
}

TEST(RestartAloneTest, TenMinutesWithoutAFailureGiveTheBudgetBack) {
  Scene s = WithWorkers();
  s.job.spec.restart_budget = 1;
  for (int i = 1; i <= 4; ++i) {
    s.Advance(10min);
    s.Exited(1, Code(1));
    s.Settle();
    ASSERT_EQ(s.job.tasks[1].ranks[0].restarts, i);
    EXPECT_EQ(s.job.failures_without_progress, 1);
    StartAgain(&s, 1);
    s.Settle();
  }
  s.Advance(10min - 1ns);
  s.Exited(1, Code(1));
  s.Settle();
  EXPECT_TRUE(s.job.failing);
}

TEST(RestartAloneTest, AWorkersProgressIsItsOwn) {
  Scene s = WithWorkers();
  s.job.spec.restart_budget = 1;
  s.Advance(9min);
  s.Exited(2, Code(1));
  s.Settle();
  StartAgain(&s, 2);
  s.Settle();
  // That the other one was started again a minute ago is nothing to it.
  s.Advance(1min);
  s.Exited(1, Code(1));
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  ASSERT_EQ(s.job.tasks[1].ranks[0].restarts, 1);
  EXPECT_EQ(s.job.failures_without_progress, 1);
  StartAgain(&s, 1);
  s.Advance(8min);
  // Nine minutes after its own start.
  s.Exited(2, Code(1));
  s.Settle();
  EXPECT_TRUE(s.job.failing);
}

// What waits for its turn does not hide why the gang fails.
TEST(RestartAloneTest, AWorkerThatWaitsIsNotTheCauseOfAGangsFailure) {
  Scene s = WithWorkers();
  s.Exited(1, Code(1));
  s.Settle();
  StartAgain(&s, 1);
  s.Settle();
  s.Exited(1, Code(1));
  s.Settle();
  ASSERT_EQ(s.job.tasks[1].ranks[0].restarts, 1) << "it waits for 2 s";
  s.Advance(1s);
  ExitStatus killed = Signal(SIGKILL);
  killed.out_of_memory = true;
  s.Exited(0, killed);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kOutOfMemory);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
  EXPECT_EQ(s.job.cause.reason, Reason::kOutOfMemory);
  const std::vector<TaskStatus>& tasks = s.job.attempts.back().tasks;
  EXPECT_FALSE(tasks[0].ranks[0].exit->victim);
  EXPECT_FALSE(tasks[1].ranks[0].exit->victim) << "it failed by itself";
}

// One that waits, and may not any more: it is the cause.
TEST(RestartAloneTest, AWorkerWhoseTurnNeverComesFailsTheGang) {
  Scene s = WithWorkers();
  s.job.spec.restart_budget = 2;
  s.Exited(1, Code(1));
  s.Settle();
  StartAgain(&s, 1);
  s.Settle();
  s.Exited(1, Code(1));
  s.Exited(2, Code(5));
  s.Settle();
  ASSERT_FALSE(s.job.failing) << "both wait";
  s.Advance(2s);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->message, "rank 2 (worker 1 on c): exit code 5");
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kFailed);
}

TEST(RestartAloneTest, AllRanksOfTheWorkersTaskGoTogether) {
  JobSpec spec = ProgramSpec("p", {Role(TaskType::kChief, 1),
                                   Role(TaskType::kWorker, 1, {1, 0, 0, ""}, 2),
                                   Role(TaskType::kPs, 1)});
  spec.restart_worker_alone = true;
  Scene s(spec);
  s.Run({"a", "b", "c"});
  s.Rank(1).usage.cpu_seconds = 3;
  s.Exited(2, Code(1));
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  EXPECT_EQ(s.job.tasks[1].ranks[0].usage.cpu_seconds, 3)
      << "of one that had not ended";
  for (const RankStatus& rank : s.job.tasks[1].ranks) {
    EXPECT_EQ(rank.restarts, 1);
    EXPECT_EQ(rank.state, RankState::kPrepared);
  }
  // The node stops the other one; that is no failure.
  s.Exited(1, Signal(SIGTERM));
  s.Settle();
  EXPECT_EQ(s.job.failures_without_progress, 1);
  StartAgain(&s, 1);
  StartAgain(&s, 2);
  s.Settle();
  EXPECT_EQ(s.job.tasks[1].ranks[1].state, RankState::kStarted);
  EXPECT_FALSE(s.job.failing);
}

TEST(RestartAloneTest, AWorkerThatDoesNotComeBackFailsTheGeneration) {
  Scene s = WithWorkers();
  s.Exited(1, Code(1));
  s.Settle();
  s.Advance(120s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->message,
            "rank 1 (worker 0 on b) did not restart within 2 m 00 s");
}

// Nor do the daemon's restart and the coordinator's, whose view begins anew.
TEST(RestartAloneTest, ANodeThatIsNotHeardOfIsNotLateWithItsWorker) {
  Scene s = WithWorkers();
  s.Exited(1, Code(1));
  s.Settle();
  s.Advance(100s);
  s.view.nodes["b"].state = NodeState::kUnknown;
  s.Settle();
  s.Advance(10min);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.view.nodes["b"].state = NodeState::kReady;
  s.view.nodes["b"].reported = false;
  s.Settle();
  s.Advance(10min);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.view.nodes["b"].reported = true;
  s.Settle();
  s.Advance(120s);
  s.Settle();
  EXPECT_FALSE(s.job.failing);
  s.Advance(1ns);
  s.Settle();
  EXPECT_TRUE(s.job.failing);
}

}  // namespace
}  // namespace lockstep::server
