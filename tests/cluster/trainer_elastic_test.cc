// An elastic job of lockstep-train loses a rank, then its chief: the others
// train on, and the result is that of an undisturbed job.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <string>

#include "tests/cluster/fixture.h"

namespace lockstep::worker {
namespace {

// LibTorch is slow under load.
constexpr Duration kElasticTrainingTime = std::chrono::seconds(120);

class TrainerElasticTest : public ClusterTest {
 protected:
  // One core each, so that each task has a node of its own.
  TrainerElasticTest() {
    options_.workers = 3;
    options_.cpus = 3;
  }
  void SetUp() override {
    if (!RealFileSystem()->Exists(Binary("lockstep-train"))) {
      manual_start_ = true;
      GTEST_SKIP() << "lockstep-train was not built (no LibTorch)";
    }
    ClusterTest::SetUp();
  }

  // 5 epochs of 20 steps.
  v1::JobSpec Train(const std::string& name, int step_ms) {
    v1::JobSpec spec = Spec(
        name, v1::JOB_KIND_NATIVE, 3,
        {"lockstep-train", "--elastic", "--train", Path("train"), "--eval",
         Path("eval"), "--epochs", "5", "--batch-size", "20", "--param-hash",
         "--allow-faults", "--step-delay-ms", fmt::format("{}", step_ms)});
    spec.set_output_directory(OutputOf(name));
    spec.set_elastic_min_tasks(1);
    spec.mutable_checkpoint()->set_interval_steps(10);
    return spec;
  }

  // Kills `rank`; the job, once all train together again.
  v1::Job LoseRank(const v1::Job& before, int rank) {
    const int32_t recoveries = before.recoveries();
    EXPECT_GT(PidOf(before, rank), 0);
    EXPECT_EQ(kill(static_cast<pid_t>(PidOf(before, rank)), SIGKILL), 0);
    // One without the rank, and one with it.
    const v1::Job after = WaitUntil(
        before.name(), fmt::format("the return of rank {}", rank),
        [&](const v1::Job& job) {
          const auto ranks = Ranks(job);
          return job.recoveries() >= recoveries + 2 &&
                 std::all_of(ranks.begin(), ranks.end(), [&](const auto& each) {
                   return !each.second.away() &&
                          static_cast<int32_t>(each.second.recovery()) ==
                              job.recoveries();
                 });
        },
        kElasticTrainingTime);
    for (int each = 0; each < 3; ++each) {
      EXPECT_EQ(PidOf(after, each) != PidOf(before, each), each == rank);
    }
    return after;
  }

  // "step=100 0123456789abcdef".
  std::string HashOf(const std::string& job, int rank) {
    const std::string start = fmt::format("param_hash rank={} ", rank);
    const std::string line = Line(job, rank, start);
    return line.empty() ? "" : line.substr(start.size());
  }
};

TEST_F(TrainerElasticTest, ItLosesARankAndThenTheChief) {
  PackImages("train", 1200, 1000);
  PackImages("eval", 200, 1000);
  const v1::Job calm =
      RunJob(Train("calm", 0), v1::JOB_STATE_SUCCEEDED, kElasticTrainingTime);
  const std::string hash = HashOf("calm", 0);
  EXPECT_THAT(hash, testing::StartsWith("step=100 "));
  const std::string evaluated = Line("calm", 0, "step 100/100  accuracy ");
  EXPECT_FALSE(evaluated.empty());

  // Two new processes load LibTorch meanwhile.
  Submit(Train("disturbed", 250));
  const v1::Job whole = WaitUntil(
      "disturbed", "step 5",
      [&](const v1::Job& job) {
        return job.state() == v1::JOB_STATE_RUNNING &&
               CommittedOnPage(job, 0) >= 5;
      },
      kElasticTrainingTime);
  const v1::Job again = LoseRank(whole, 1);
  EXPECT_TRUE(HasLine("disturbed", 0, "recovery 1: "));
  LoseRank(again, 0);
  EXPECT_TRUE(HasLine("disturbed", 1, "recovery 3: "));

  const v1::Job job =
      WaitEnd("disturbed", v1::JOB_STATE_SUCCEEDED, kElasticTrainingTime);
  EXPECT_EQ(job.generation(), 1u);
  EXPECT_EQ(job.restarts(), 0);
  EXPECT_EQ(job.attempts_size(), 1);
  EXPECT_EQ(job.committed_step(), 100);
  EXPECT_EQ(job.last_checkpoint().step(), 100);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(HashOf("disturbed", rank), hash) << rank;
  }
  EXPECT_TRUE(HasLine("disturbed", 0, evaluated));
}

}  // namespace
}  // namespace lockstep::worker
