// A drained node is replaced by another one, and the ranks elsewhere stay.
#include <signal.h>

#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"

namespace lockstep::worker {
namespace {

constexpr int64_t kMovingBatch = 12;
constexpr int64_t kMovingSteps = 400;

// Four nodes with one core each.
class ReplacingTest : public ClusterTest {
 protected:
  ReplacingTest() {
    options_.workers = 4;
    options_.cpus = 4;
  }

  // Three ranks that recover.
  v1::Job Begin(const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> flags = {
        "--steps",     fmt::format("{}", kMovingSteps),
        "--batch",     fmt::format("{}", kMovingBatch),
        "--step_ms",   "20",
        "--state_mib", "8",
        "--recover",   "1"};
    flags.insert(flags.end(), more.begin(), more.end());
    job_ = name;
    Submit(Steps(name, 3, flags));
    return WaitUntil(name, "step 20", [&](const v1::Job& job) {
      return job.state() == v1::JOB_STATE_RUNNING &&
             CommittedOnPage(job, 0) >= 20;
    });
  }

  void TearDown() override {
    if (HasFailure()) {
      for (int rank = 0; rank < 3; ++rank) {
        for (const std::string& line : Output(job_, rank)) {
          printf("rank %d: %s\n", rank, line.c_str());
        }
      }
    }
    ClusterTest::TearDown();
  }

  std::string job_;

  static std::string NodeOf(const v1::Job& job, int rank) {
    for (const v1::TaskStatus& task : job.tasks()) {
      for (const v1::RankStatus& status : task.ranks()) {
        if (status.rank() == rank) return task.node();
      }
    }
    return "";
  }

  void DrainNode(const std::string& node, Duration grace) {
    cli::DrainOptions options;
    options.reason = "new switch";
    options.grace = grace;
    const auto drained = client()->DrainNode(node, options);
    ASSERT_TRUE(drained.ok()) << drained.status();
  }

  void CheckEnd(const std::string& name) {
    const v1::Job job = WaitEnd(name, v1::JOB_STATE_SUCCEEDED);
    const std::string end =
        fmt::format("done {} skipped 0 hash {}", kMovingSteps,
                    HashWeights(ExpectedWeights(kMovingSteps, kMovingBatch)));
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(HasLine(name, rank, end)) << Line(name, rank, "done");
    }
    EXPECT_EQ(job.generation(), 1u);
    EXPECT_EQ(job.restarts(), 0);
    EXPECT_EQ(job.failures_without_progress(), 0);
  }

  // The rank moves to the free node, and the others keep their processes.
  void MoveRank(const std::string& name, int lost) {
    const v1::Job before = Begin(name);
    const std::string node = NodeOf(before, lost);
    DrainNode(node, std::chrono::minutes(10));
    const v1::Job after = AwaitRecovered(name, 1);
    EXPECT_NE(NodeOf(after, lost), node);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost) continue;
      EXPECT_EQ(PidOf(after, rank), PidOf(before, rank));
      EXPECT_EQ(NodeOf(after, rank), NodeOf(before, rank));
    }
    EXPECT_NE(kill(static_cast<pid_t>(PidOf(before, lost)), 0), 0)
        << "its old process is gone";
    EXPECT_TRUE(Eventually([&] {
      const auto now = client()->GetNode(node);
      return now.ok() && now->state() == v1::NODE_STATE_DRAINED &&
             now->jobs().empty();
    })) << "nothing of the job is left there";
    CheckEnd(name);
    EXPECT_TRUE(HasLine(name, lost, "start 0")) << "from its first node";
  }
};

TEST_F(ReplacingTest, AWorkerLeavesADrainedNode) { MoveRank("worker", 2); }

TEST_F(ReplacingTest, TheChiefLeavesADrainedNode) { MoveRank("chief", 0); }

// Two nodes are drained, and one is free: the second one waits for a node, and
// leaves when another takes work again.
TEST_F(ReplacingTest, ANodeThatFindsNoOtherTrainsOn) {
  const v1::Job before = Begin("two", {"--step_ms", "30"});
  DrainNode(NodeOf(before, 1), std::chrono::minutes(10));
  AwaitRecovered("two", 1);
  DrainNode(NodeOf(before, 2), std::chrono::minutes(10));
  const v1::Job waiting = WaitUntil("two", "the drain", [](const v1::Job& job) {
    return std::count_if(job.events().begin(), job.events().end(),
                         [](const v1::Event& event) {
                           return event.message().find("moves as soon as") !=
                                  std::string::npos;
                         }) == 2;
  });
  const int64_t step = CommittedOnPage(waiting, 0);
  EXPECT_TRUE(Eventually([&] {
    return CommittedOnPage(waiting, 0) > step + 10;
  })) << "it trains";
  const auto undrained = client()->UndrainNode(NodeOf(before, 1));
  ASSERT_TRUE(undrained.ok()) << undrained.status();
  const v1::Job after = AwaitRecovered("two", 2);
  EXPECT_EQ(NodeOf(after, 2), NodeOf(before, 1));
  EXPECT_EQ(PidOf(after, 0), PidOf(before, 0));
  CheckEnd("two");
}

// The new rank is killed as soon as it runs, and starts again where it is now.
TEST_F(ReplacingTest, ARankThatHasMovedIsReplacedWhereItIs) {
  const v1::Job before = Begin("moved");
  DrainNode(NodeOf(before, 1), std::chrono::minutes(10));
  const v1::Job moved =
      WaitUntil("moved", "a new process", [&](const v1::Job& job) {
        return PidOf(job, 1) != 0 && PidOf(job, 1) != PidOf(before, 1);
      });
  ASSERT_EQ(kill(static_cast<pid_t>(PidOf(moved, 1)), SIGKILL), 0);
  const v1::Job after = AwaitRecovered("moved", 2);
  EXPECT_EQ(NodeOf(after, 1), NodeOf(moved, 1));
  EXPECT_EQ(PidOf(after, 0), PidOf(before, 0));
  WaitEnd("moved", v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace lockstep::worker
