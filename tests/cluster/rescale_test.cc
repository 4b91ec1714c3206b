// A gang that runs with fewer tasks than its job asks for: real processes, of
// which each one sees the size that it has.
#include <algorithm>

#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class RescaleTest : public ClusterTest {
 protected:
  // Three nodes with one core each.
  RescaleTest() {
    options_.workers = 3;
    options_.cpus = 3;
  }

  v1::JobSpec Rescale(const std::string& name, const std::string& program) {
    v1::JobSpec spec = Shell(
        name, 3,
        "echo \"world $WORLD_SIZE of $LOCKSTEP_FULL_SIZE\"; exec " + program);
    spec.set_restart_budget(0);
    spec.set_elastic_min_tasks(2);
    spec.set_rescale(true);
    return spec;
  }
  std::string Joined() const {
    return TestBinary("light_rank") + " --orders " + Path("saved") +
           " --until " + Path("go");
  }
  void AwaitNode(const std::string& node, bool ready) {
    EXPECT_TRUE(Eventually([&] {
      const auto nodes = client()->ListNodes();
      if (!nodes.ok()) return false;
      for (const v1::Node& each : *nodes) {
        if (each.name() == node) {
          return (each.state() == v1::NODE_STATE_READY) == ready;
        }
      }
      return false;
    })) << node;
  }
  v1::Job AwaitGeneration(const std::string& name, uint64_t generation,
                          int tasks) {
    return WaitUntil(
        name, "a generation with so many tasks",
        [&](const v1::Job& job) {
          return job.generation() == generation &&
                 job.state() == v1::JOB_STATE_RUNNING &&
                 job.tasks_size() == tasks;
        },
        std::chrono::seconds(120));
  }
  void AwaitSteps(const std::string& name, size_t ranks) {
    WaitUntil(name, "steps of all ranks", [&](const v1::Job& job) {
      const auto all = Ranks(job);
      return all.size() == ranks &&
             std::all_of(all.begin(), all.end(), [](const auto& rank) {
               return rank.second.progress().committed_step() > 5;
             });
    });
  }
};

TEST_F(RescaleTest, StartsWithTheNodesThatAreThereAndGrows) {
  StopDaemon("worker-2");
  AwaitNode("worker-2", false);
  Submit(Rescale("grows", Joined()));
  AwaitGeneration("grows", 1, 2);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(HasLine("grows", rank, "world 2 of 3"));
    EXPECT_TRUE(HasLine("grows", rank, "joined "));
  }
  AwaitSteps("grows", 2);
  const CommandResult small = Lockstep({"jobs", "describe", "grows"});
  EXPECT_THAT(small.out, HasSubstr("2 of 3 tasks; may run with 2 to 3"));

  StartDaemon("worker-2");
  AwaitNode("worker-2", true);
  const CommandResult resized =
      Lockstep({"jobs", "resize", "grows", "--tasks", "3"});
  EXPECT_EQ(resized.code, 0) << resized.err;
  const v1::Job job = AwaitGeneration("grows", 2, 3);
  ASSERT_THAT(job.attempts(), SizeIs(1)) << "those that have ended";
  EXPECT_EQ(job.attempts(0).end_cause().reason(), v1::REASON_RESIZED);
  EXPECT_THAT(job.attempts(0).end_cause().message(),
              HasSubstr("saved and stopped after step"));
  EXPECT_EQ(job.failures_without_progress(), 0);
  ASSERT_TRUE(HasLine("grows", 2, "world 3 of 3"));
  // All resume from what two of them have saved.
  std::string stop;
  ASSERT_TRUE(Eventually([&] {
    stop = Line("grows", 0, "stop ", 1);
    return !stop.empty();
  })) << "the last lines of a rank arrive after its end";
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(Eventually([&] {
      return Line("grows", rank, "start ", 2) == "start " + stop.substr(5);
    })) << Line("grows", rank, "start ", 2);
    EXPECT_EQ(Line("grows", rank, "world ", 2), "world 3 of 3");
  }
  const CommandResult refused =
      Lockstep({"jobs", "resize", "grows", "--tasks", "1"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("may have 2 to 3 tasks"));
  WriteFile(Path("go"), "");
  WaitEnd("grows", v1::JOB_STATE_SUCCEEDED);
}

// A program that knows nothing of lockstep.
TEST_F(RescaleTest, GoesOnSmallerWhenANodeIsGone) {
  Submit(Rescale("shrinks", "sh -c 'while [ ! -e " + Path("go") +
                                " ]; do sleep 0.05; done'"));
  const v1::Job before = AwaitGeneration("shrinks", 1, 3);
  cli::DrainOptions options;
  options.reason = "new disk";
  options.grace = std::chrono::seconds(1);
  ASSERT_TRUE(client()->DrainNode(before.tasks(2).node(), options).ok());
  const v1::Job waits =
      WaitUntil("shrinks", "a wait for its size", [](const v1::Job& job) {
        return job.cause().reason() == v1::REASON_FEWER_TASKS;
      });
  EXPECT_EQ(waits.cause().message(),
            "waits 30.0 s for all 3 tasks, then starts with 2");
  AwaitGeneration("shrinks", 2, 2);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(Eventually(
        [&] { return Line("shrinks", rank, "world ", 2) == "world 2 of 3"; }));
  }
  WriteFile(Path("go"), "");
  WaitEnd("shrinks", v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace lockstep
