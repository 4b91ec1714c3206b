// Half of a cluster is drained at once, and one of its hosts dies meanwhile.
#include <signal.h>

#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"

namespace lockstep::cli {
namespace {

using std::chrono::seconds;
using ::testing::AnyOf;

constexpr int64_t kSteps = 2000;
constexpr seconds kGrace(60);
// From the end of one attempt to RUNNING in the next (F2 of a dead host).
constexpr seconds kResume(6);

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
    options.grace = kGrace;
    const auto begun = std::chrono::steady_clock::now();
    for (const std::string& node : nodes) {
      const auto drained = client()->DrainNode(node, options);
      ASSERT_TRUE(drained.ok()) << drained.status();
    }
    EXPECT_LE(std::chrono::steady_clock::now() - begun, seconds(1))
        << "one storm";
  }
  static Duration Since(const google::protobuf::Timestamp& from,
                        const google::protobuf::Timestamp& to) {
    return seconds(to.seconds() - from.seconds()) +
           std::chrono::nanoseconds(to.nanos() - from.nanos());
  }
  // The hosts are left while their grace lasts, and each attempt follows the
  // one before it soon, by the coordinator's clock. Returns how many ran.
  static int ExpectInTime(const v1::Job& job) {
    int ran = 0;
    const google::protobuf::Timestamp* drained = nullptr;
    for (const v1::Event& event : job.events()) {
      if (event.reason() == v1::REASON_NODE_DRAINED && drained == nullptr) {
        drained = &event.time();
      }
      if (event.reason() != v1::REASON_RUNNING) continue;
      ++ran;
      for (const v1::Attempt& attempt : job.attempts()) {
        if (attempt.generation() + 1 != event.generation()) continue;
        EXPECT_LE(Since(attempt.end_time(), event.time()), kResume)
            << "generation " << event.generation();
        if (drained != nullptr) {
          EXPECT_LE(Since(*drained, event.time()), kGrace);
        }
      }
    }
    return ran;
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
  EXPECT_EQ(ExpectInTime(job), 2);
  // It was told to save: no step was computed again.
  EXPECT_EQ(job.attempts(1).resumed_step(),
            job.attempts(0).tasks(0).ranks(0).progress().committed_step());
}

TEST_F(DrainStormTest, AHostThatDiesMeanwhileCostsAtMostOneMoreStart) {
  const std::set<std::string> nodes = NodesOf(StartStorm());
  ASSERT_EQ(nodes.size(), 3u);
  const std::string victim = *std::next(nodes.begin());
  const int64_t saved = client()->GetJob("storm")->last_checkpoint().step();
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
  EXPECT_GE(ExpectInTime(job), 2);
  for (int i = 1; i < job.attempts_size(); ++i) {
    EXPECT_GE(job.attempts(i).resumed_step(), saved) << "it was on the disk";
  }
  EXPECT_THAT(job.attempts(0).end_cause().reason(),
              AnyOf(v1::REASON_NODE_DRAINED, v1::REASON_NODE_LOST,
                    v1::REASON_RANK_SIGNAL));
}

}  // namespace
}  // namespace lockstep::cli
