// Native ranks of an elastic job go away, the others train on, and the result
// is that of an undisturbed run.
#include <signal.h>

#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"

namespace lockstep::worker {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElasticBatch = 12;

class NativeElasticTest : public ClusterTest {
 protected:
  // One core each, so that each task has a node of its own.
  NativeElasticTest() {
    options_.workers = 3;
    options_.cpus = 3;
  }

  v1::JobSpec Elastic(const std::string& name, int64_t steps,
                      std::vector<std::string> more = {}) {
    std::vector<std::string> flags = {
        "--steps",     fmt::format("{}", steps),
        "--batch",     fmt::format("{}", kElasticBatch),
        "--step_ms",   "20",
        "--state_mib", "8",
        "--elastic",   "1"};
    flags.insert(flags.end(), more.begin(), more.end());
    v1::JobSpec spec = Steps(name, 3, flags);
    spec.set_elastic_min_tasks(1);
    return spec;
  }

  v1::Job Await(const std::string& name, const std::string& what, int64_t step,
                const std::set<int>& away) {
    return WaitUntil(name, what, [&](const v1::Job& job) {
      if (job.state() != v1::JOB_STATE_RUNNING) return false;
      for (const auto& [rank, status] : Ranks(job)) {
        if (status.away() != away.contains(rank)) return false;
        if (!status.away() &&
            (static_cast<int32_t>(status.recovery()) < job.recoveries() ||
             status.progress().committed_step() < step)) {
          return false;
        }
      }
      return true;
    });
  }
  static int64_t StepOf(const v1::Job& job) {
    int64_t step = 0;
    for (const auto& [rank, status] : Ranks(job)) {
      step = std::max<int64_t>(step, status.progress().committed_step());
    }
    return step;
  }
  static void Kill(const v1::Job& job, int rank) {
    ASSERT_GT(PidOf(job, rank), 0);
    ASSERT_EQ(kill(static_cast<pid_t>(PidOf(job, rank)), SIGKILL), 0);
  }
  void CheckEnd(const std::string& name, int64_t steps) {
    const v1::Job job = WaitEnd(name, v1::JOB_STATE_SUCCEEDED);
    const std::string end =
        fmt::format("done {} skipped 0 hash {}", steps,
                    HashWeights(ExpectedWeights(steps, kElasticBatch)));
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(HasLine(name, rank, end)) << Line(name, rank, "done");
    }
    EXPECT_EQ(job.generation(), 1u);
    EXPECT_EQ(job.restarts(), 0);
  }
};

TEST_F(NativeElasticTest, TheOthersTrainOnWhileARankStartsAgain) {
  Submit(Elastic("lost", 250));
  const v1::Job before = Await("lost", "20 steps", 20, {});
  Kill(before, 1);
  const v1::Job after = WaitUntil("lost", "its return", [](const v1::Job& job) {
    const auto ranks = Ranks(job);
    return job.recoveries() >= 2 &&
           std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) {
             return static_cast<int32_t>(rank.second.recovery()) ==
                    job.recoveries();
           });
  });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(PidOf(after, rank), PidOf(before, rank));
  }
  EXPECT_TRUE(HasLine("lost", 0, "computes 0,1 as the chief"));
  EXPECT_TRUE(HasLine("lost", 2, "computes 2"));
  EXPECT_TRUE(HasLine("lost", 1, "computes 1"));
  CheckEnd("lost", 250);
}

// Its node drains: nothing is lost, and it comes back when the node does. The
// next rank saves meanwhile.
TEST_F(NativeElasticTest, TheChiefsNodeIsDrainedAndTakesWorkAgain) {
  Submit(Elastic("drained", 500));
  const v1::Job before = Await("drained", "20 steps", 20, {});
  const std::string node = before.tasks(0).node();
  cli::DrainOptions options;
  options.reason = "new disk";
  options.grace = std::chrono::seconds(2);
  ASSERT_TRUE(client()->DrainNode(node, options).ok());
  const v1::Job small = Await("drained", "training without rank 0", 0, {0});
  EXPECT_THAT(small.cause().message(), HasSubstr("rank 0 is away"));
  EXPECT_TRUE(HasLine("drained", 1, "computes 1,0 as the chief"));
  const CommandResult saved =
      Lockstep({"jobs", "checkpoint", "drained", "--wait"});
  EXPECT_EQ(saved.code, 0) << saved.err;
  Await("drained", "steps without it", StepOf(small) + 5, {0});

  ASSERT_TRUE(client()->UndrainNode(node).ok());
  const v1::Job whole = Await("drained", "its return", 0, {});
  EXPECT_EQ(PidOf(whole, 1), PidOf(before, 1));
  EXPECT_EQ(PidOf(whole, 2), PidOf(before, 2));
  CheckEnd("drained", 500);
}

TEST_F(NativeElasticTest, ItIsResizedInPlace) {
  Submit(Elastic("resized", 500));
  const v1::Job before = Await("resized", "20 steps", 20, {});
  const CommandResult less =
      Lockstep({"jobs", "resize", "resized", "--tasks", "1"});
  EXPECT_EQ(less.code, 0) << less.err;
  const v1::Job alone = Await("resized", "one rank", 0, {1, 2});
  EXPECT_TRUE(HasLine("resized", 0, "computes 0,1,2 as the chief"));
  Await("resized", "steps alone", StepOf(alone) + 5, {1, 2});
  const CommandResult more =
      Lockstep({"jobs", "resize", "resized", "--tasks", "3"});
  EXPECT_EQ(more.code, 0) << more.err;
  const v1::Job whole = Await("resized", "its return", 0, {});
  EXPECT_EQ(PidOf(whole, 0), PidOf(before, 0));
  CheckEnd("resized", 500);
}

}  // namespace
}  // namespace lockstep::worker
