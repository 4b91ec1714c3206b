// Half of a cluster is drained at once, and one of its hosts dies meanwhile.
#include <signal.h>

#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"

namespace lockstep {
namespace {

using std::chrono::seconds;
using ::testing::AnyOf;

constexpr int64_t kSteps = 2000;

class DrainStormTest : public ClusterTest {
 protected:
  // One core on each of six nodes.
  DrainStormTest() {
    options_.workers = 6;
    options_.cpus = 6;
  }

  static std::set<std::string> NodesOf(const v1::Job& job) {
    std::set<std::string> nodes;
    for (const v1::TaskStatus& task : job.tasks()) nodes.insert(task.node());
    return nodes;
  }
  v1::Job StartStorm() {
    v1::JobSpec spec = Steps(
        "storm", 3, {"--steps", std::to_string(kSteps), "--step_ms", "5"});
    spec.mutable_checkpoint()->set_interval_steps(50);
    Submit(spec);
    return WaitUntil("storm", "a checkpoint", [](const v1::Job& job) {
      return job.last_checkpoint().step() >= 50;
    });
  }
  void DrainAll(const std::set<std::string>& nodes) {
    DrainOptions options;
    options.reason = "new switch";
    options.grace = seconds(60);
    for (const std::string& node : nodes) {
      const auto drained = client()->DrainNode(node, options);
      ASSERT_TRUE(drained.ok()) << drained.status();
    }
  }
  // It ends on nodes that were not drained, and nothing is lost or added.
  v1::Job ExpectMoved(const std::set<std::string>& drained) {
    const v1::Job job = WaitEnd("storm", v1::JOB_STATE_SUCCEEDED, seconds(120));
    EXPECT_GE(job.attempts_size(), 2);
    if (job.attempts_size() < 2) return job;
    const v1::Attempt& last = job.attempts(job.attempts_size() - 1);
    EXPECT_GE(last.resumed_step(), 50);
    for (const v1::TaskStatus& task : last.tasks()) {
      EXPECT_FALSE(drained.contains(task.node())) << task.node();
    }
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(Line("storm", rank, "done ", job.attempt()),
                fmt::format("done {} skipped 0 hash {}", kSteps,
                            HashWeights(ExpectedWeights(kSteps, 8))));
    }
    for (const std::string& node : drained) {
      EXPECT_TRUE(Eventually([&] {
        const auto now = client()->GetNode(node);
        return now.ok() && now->state() == v1::NODE_STATE_DRAINED;
      })) << node;
    }
    return job;
  }
};

TEST_F(DrainStormTest, ThreeDrainsAreOneMove) {
  const std::set<std::string> nodes = NodesOf(StartStorm());
  ASSERT_EQ(nodes.size(), 3u);
  DrainAll(nodes);
  const v1::Job job = ExpectMoved(nodes);
  EXPECT_EQ(job.generation(), 2u);
  EXPECT_EQ(job.failures_without_progress(), 0);
  ASSERT_EQ(job.attempts_size(), 2);
  EXPECT_EQ(job.attempts(0).end_cause().reason(), v1::REASON_NODE_DRAINED);
  // It was told to save: no step was computed again.
  EXPECT_EQ(job.attempts(1).resumed_step(),
            job.attempts(0).tasks(0).ranks(0).progress().committed_step());
}

TEST_F(DrainStormTest, AHostThatDiesMeanwhileCostsAtMostOneMoreStart) {
  const std::set<std::string> nodes = NodesOf(StartStorm());
  ASSERT_EQ(nodes.size(), 3u);
  const std::string victim = *std::next(nodes.begin());
  DrainAll(nodes);
  // The host is off, and is started again.
  KillDaemon(victim);
  EXPECT_TRUE(Eventually([&] {
    const auto left = ProcessesUnder({cluster()->layout().DaemonDir(victim)});
    for (const std::string& process : left) {
      kill(static_cast<pid_t>(std::stol(process)), SIGKILL);
    }
    return left.empty();
  }));
  StartDaemon(victim);
  const v1::Job job = ExpectMoved(nodes);
  EXPECT_LE(job.generation(), 3u);
  EXPECT_LE(job.failures_without_progress(), 1);
  EXPECT_THAT(job.attempts(0).end_cause().reason(),
              AnyOf(v1::REASON_NODE_DRAINED, v1::REASON_NODE_LOST,
                    v1::REASON_RANK_SIGNAL));
}

}  // namespace
}  // namespace lockstep
