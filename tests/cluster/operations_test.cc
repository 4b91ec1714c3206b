// What operators do to nodes: drain, undrain, forget, by the API and by the
// command line.
#include <signal.h>

#include "common/os/procfs.h"
#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"

namespace lockstep::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

WallTime Wall(const google::protobuf::Timestamp& time) {
  return WallTime(seconds(time.seconds()) +
                  std::chrono::nanoseconds(time.nanos()));
}

// "REASON_X: sentence" of each event, a line each.
template <typename Thing>
std::string Story(const Thing& thing) {
  std::string text;
  for (const v1::Event& event : thing.events()) {
    text += v1::Reason_Name(event.reason()) + ": " + event.message() + "\n";
  }
  return text;
}

class OperationsTest : public ClusterTest {
 protected:
  // Two tasks fit each node; where both are free worker-0 comes first.
  OperationsTest() { options_.cpus = 4; }

  v1::Node Node(const std::string& name) {
    const auto node = client()->GetNode(name);
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? *node : v1::Node();
  }
  void WaitNode(const std::string& name, v1::NodeState state) {
    v1::Node node;
    EXPECT_TRUE(Eventually([&] {
      node = Node(name);
      return node.state() == state;
    })) << node.DebugString();
  }
  void Drain(const std::string& name, const std::string& reason,
             std::optional<Duration> grace = std::nullopt) {
    DrainOptions options;
    options.reason = reason;
    options.grace = grace;
    const auto node = client()->DrainNode(name, options);
    ASSERT_TRUE(node.ok()) << node.status();
  }
  static std::set<std::string> NodesOf(const v1::Job& job) {
    std::set<std::string> nodes;
    for (const v1::TaskStatus& task : job.tasks()) nodes.insert(task.node());
    return nodes;
  }
  // A program that runs until `go` is there, and fails for good where another
  // copy of it lives: that one, or what it started, still holds its lock.
  v1::JobSpec Alone(const std::string& name, const std::string& first = "") {
    return Shell(name, 1,
                 fmt::format("exec 9>>{0}/{1}.lock; flock -n 9 || exit 2; {2}"
                             "echo up; while [ ! -e {0}/go ]; do sleep 0.02; "
                             "done; echo down",
                             root(), name, first));
  }
  v1::Job StartAlone(const std::string& name, const std::string& first = "") {
    Submit(Alone(name, first));
    const v1::Job job = WaitFor(name, v1::JOB_STATE_RUNNING);
    EXPECT_TRUE(HasLine(name, 0, "up"));
    EXPECT_THAT(NodesOf(job), ElementsAre("worker-0"));
    return job;
  }
  // The daemon and all that it started: the host is off.
  void KillHost(const std::string& node) {
    KillDaemon(node);
    EXPECT_TRUE(Eventually([&] {
      const auto left = ProcessesUnder({cluster()->layout().DaemonDir(node)});
      for (const std::string& process : left) {
        kill(static_cast<pid_t>(std::stol(process)), SIGKILL);
      }
      return left.empty();
    }));
  }
  v1::Job WaitGeneration(const std::string& name, uint64_t generation) {
    return WaitUntil(name, fmt::format("generation {} RUNNING", generation),
                     [&](const v1::Job& job) {
                       return job.generation() == generation &&
                              job.state() == v1::JOB_STATE_RUNNING;
                     });
  }
};

TEST_F(OperationsTest, ADrainMovesANativeJobAndLosesNoStep) {
  v1::JobSpec spec = Steps("moved", 2, {"--steps", "1500", "--step_ms", "5"});
  spec.mutable_checkpoint()->set_interval_steps(1000);
  spec.set_restart_budget(0);  // A move uses none of it.
  Submit(spec);
  const v1::Job before = WaitUntil("moved", "step 20", [](const v1::Job& job) {
    return job.progress().chief().committed_step() >= 20;
  });
  ASSERT_THAT(NodesOf(before), ElementsAre("worker-0"));
  Drain("worker-0", "new disk", seconds(60));
  const v1::Job job = WaitEnd("moved", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.generation(), 2u);
  EXPECT_EQ(job.failures_without_progress(), 0);
  ASSERT_EQ(job.attempts_size(), 2);
  const v1::Attempt& first = job.attempts(0);
  const v1::Attempt& second = job.attempts(1);
  const int64_t step = second.resumed_step();
  EXPECT_GE(step, 20);
  EXPECT_EQ(first.end_cause().reason(), v1::REASON_NODE_DRAINED);
  EXPECT_EQ(first.end_cause().message(),
            fmt::format("saved and stopped after step {}, as requested: node "
                        "worker-0 is drained by user/local: new disk",
                        step));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(first.tasks(rank).ranks(0).exit().code(), 0);
    EXPECT_EQ(first.tasks(rank).ranks(0).progress().committed_step(), step);
    EXPECT_EQ(second.tasks(rank).node(), "worker-1");
    EXPECT_EQ(Line("moved", rank, "start ", 2), fmt::format("start {}", step));
    EXPECT_EQ(
        Line("moved", rank, "done ", 2),
        "done 1500 skipped 0 hash " + HashWeights(ExpectedWeights(1500, 8)));
  }
  EXPECT_THAT(Story(job),
              HasSubstr("REASON_NODE_DRAINED: node worker-0 is drained by "
                        "user/local: new disk; asked to save and to continue "
                        "elsewhere, with a grace of "));

  WaitNode("worker-0", v1::NODE_STATE_DRAINED);
  EXPECT_THAT(Story(Node("worker-0")),
              HasSubstr("REASON_NODE_DRAIN: drained by user/local: new disk; "
                        "its jobs are moved away within "));
  // Whatever is restarted.
  StopDaemon("worker-0");
  StartDaemon("worker-0");
  KillDaemon("coordinator");
  StartDaemon("coordinator");
  // The worker may not have noticed yet that the coordinator was away.
  EXPECT_TRUE(Eventually([&] {
    return Node("worker-0").message() == "drained by user/local: new disk";
  })) << Node("worker-0").message();
  const v1::Node node = Node("worker-0");
  EXPECT_EQ(node.state(), v1::NODE_STATE_DRAINED);
  EXPECT_EQ(node.drain().reason(), "new disk");
  EXPECT_THAT(Story(node), HasSubstr("REASON_NODE_RESTARTED: "));
  EXPECT_THAT(
      NodesOf(RunJob(Shell("other", 1, "true"), v1::JOB_STATE_SUCCEEDED)),
      ElementsAre("worker-1"));

  ASSERT_TRUE(client()->UndrainNode("worker-0").ok());
  EXPECT_EQ(Node("worker-0").state(), v1::NODE_STATE_READY);
  EXPECT_THAT(Story(Node("worker-0")),
              HasSubstr("REASON_NODE_UNDRAIN: undrained by user/local"));
  EXPECT_THAT(
      NodesOf(RunJob(Shell("again", 1, "true"), v1::JOB_STATE_SUCCEEDED)),
      ElementsAre("worker-0"));
}

TEST_F(OperationsTest, ADrainWithoutGraceLetsJobsEndAndGivesNoMore) {
  StartAlone("stays");
  Drain("worker-0", "memory test");
  EXPECT_EQ(Node("worker-0").state(), v1::NODE_STATE_DRAINING);
  EXPECT_THAT(Story(Get("stays")),
              HasSubstr("REASON_NODE_DRAIN: node worker-0: drained by "
                        "user/local: memory test; its jobs run to their end"));
  Submit(Shell("fills", 2,
               "while [ ! -e " + Path("end") + " ]; do sleep 0.02; done"));
  EXPECT_THAT(NodesOf(WaitFor("fills", v1::JOB_STATE_RUNNING)),
              ElementsAre("worker-1"));
  Submit(Shell("late", 1, "true"));
  const auto waits_for = [&](const std::string& why) {
    const v1::Job job = WaitUntil("late", why, [&](const v1::Job& late) {
      return late.cause().message().find(why) != std::string::npos;
    });
    EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  };
  waits_for("; 1 of 2 nodes is drained");
  WriteFile(Path("go"), "");
  EXPECT_EQ(WaitEnd("stays", v1::JOB_STATE_SUCCEEDED).generation(), 1u);
  WaitNode("worker-0", v1::NODE_STATE_DRAINED);
  Drain("worker-1", "the same");
  waits_for("no worker daemon takes work now; 2 of 2 nodes are drained");
  ASSERT_TRUE(client()->UndrainNode("worker-0").ok());
  EXPECT_THAT(NodesOf(WaitEnd("late", v1::JOB_STATE_SUCCEEDED)),
              ElementsAre("worker-0"));
  EXPECT_EQ(Get("fills").state(), v1::JOB_STATE_RUNNING);
}

TEST_F(OperationsTest, WhoDoesNotLeaveADrainedNodeIsKilledAfterItsGrace) {
  StartAlone("deaf", "trap '' TERM; ");
  Drain("worker-0", "fan", seconds(1));
  const v1::Node node = Node("worker-0");
  WaitGeneration("deaf", 2);
  WaitNode("worker-0", v1::NODE_STATE_DRAINED);
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("deaf", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.attempts_size(), 2);
  EXPECT_THAT(NodesOf(job), ElementsAre("worker-1"));
  EXPECT_EQ(job.failures_without_progress(), 0);
  const v1::ExitStatus& exit = job.attempts(0).tasks(0).ranks(0).exit();
  EXPECT_EQ(exit.signal(), SIGKILL);
  const Duration lived = Wall(exit.end_time()) - Wall(node.drain().time());
  EXPECT_GE(lived, milliseconds(950));
  EXPECT_LE(lived, seconds(20));
  EXPECT_EQ(job.attempts(0).end_cause().reason(), v1::REASON_NODE_DRAINED);
}

TEST_F(OperationsTest, AForgottenHostsProgramGoesOnElsewhere) {
  StartAlone("program");
  const auto refused = client()->ForgetNode("worker-0");
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused.status()), HasSubstr("worker-0 is connected"));

  KillHost("worker-0");
  WaitNode("worker-0", v1::NODE_STATE_UNKNOWN);
  // Nobody but an operator can say that no copy lives.
  const v1::Job held = WaitUntil("program", "its wait", [](const v1::Job& job) {
    return job.cause().reason() == v1::REASON_NODE_UNKNOWN;
  });
  EXPECT_EQ(held.state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(held.cause().message(), HasSubstr("worker-0"));
  const auto jobs = client()->ForgetNode("worker-0");
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_THAT(*jobs, ElementsAre("program"));
  EXPECT_EQ(client()->GetNode("worker-0").status().code(),
            StatusCode::kNotFound);
  const v1::Job moved = WaitGeneration("program", 2);
  EXPECT_THAT(NodesOf(moved), ElementsAre("worker-1"));
  EXPECT_EQ(moved.attempts(0).end_cause().reason(), v1::REASON_NODE_FORGOTTEN);
  EXPECT_EQ(moved.attempts(0).end_cause().message(),
            "an operator declared node worker-0 gone");
  EXPECT_THAT(Story(moved), HasSubstr("REASON_NODE_FORGOTTEN: node worker-0: "
                                      "given up by user/local, what it still "
                                      "ran counts as lost"));
  // It was not gone for good: registers as new and clears up.
  StartDaemon("worker-0");
  EXPECT_THAT(Story(Node("worker-0")),
              HasSubstr("REASON_NODE_REGISTERED: registered from "));
  const std::string tasks =
      cluster()->layout().DaemonDir("worker-0") + "/tasks";
  EXPECT_TRUE(Eventually([&] {
    const auto left = RealFileSystem()->List(tasks);
    return left.ok() && left->empty();
  }));
  WriteFile(Path("go"), "");
  EXPECT_EQ(WaitEnd("program", v1::JOB_STATE_SUCCEEDED).generation(), 2u);
}

// The job fits no other node, so it waits for the one that was given up: what
// still runs there is gone before the next copy begins.
TEST_F(OperationsTest, AForgottenNodeThatComesBackStopsItsOldTasksFirst) {
  const v1::Job before = StartAlone("twice", "trap '' TERM; ");
  Submit(Shell("fills", 2,
               "while [ ! -e " + Path("go") + " ]; do sleep 0.02; done"));
  WaitFor("fills", v1::JOB_STATE_RUNNING);
  const pid_t pid = static_cast<pid_t>(PidOf(before, 0));
  const auto start = StartTime(pid);
  ASSERT_TRUE(start.ok()) << start.status();
  const auto old = OpenVerified({pid, *start});
  ASSERT_TRUE(old.ok()) << old.status();

  KillDaemon("worker-0");
  WaitNode("worker-0", v1::NODE_STATE_UNKNOWN);
  ASSERT_TRUE(client()->ForgetNode("worker-0").ok());
  const v1::Job waiting =
      WaitUntil("twice", "a wait for room", [](const v1::Job& job) {
        return job.state() == v1::JOB_STATE_PLACING &&
               job.cause().reason() == v1::REASON_NO_CAPACITY;
      });
  EXPECT_THAT(waiting.tasks(), testing::SizeIs(1));
  EXPECT_FALSE(HasEnded(*old));

  StartDaemon("worker-0");
  const v1::Job again = WaitGeneration("twice", 2);
  EXPECT_TRUE(HasEnded(*old));
  EXPECT_THAT(NodesOf(again), ElementsAre("worker-0"));
  WriteFile(Path("go"), "");
  EXPECT_EQ(WaitEnd("twice", v1::JOB_STATE_SUCCEEDED).generation(), 2u);
}

TEST_F(OperationsTest, TheCommandLineDoesItToo) {
  StartAlone("job");
  const CommandResult drain =
      Lockstep({"nodes", "drain", "worker-0", "--reason", "new fan"});
  EXPECT_EQ(drain.code, 0) << drain.err;
  EXPECT_EQ(drain.out, "worker-0 DRAINING: new fan\n");
  CommandResult result = Lockstep({"nodes", "describe", "worker-0"});
  EXPECT_THAT(result.out, HasSubstr("new fan; its jobs run to their end"));
  result = Lockstep({"nodes", "forget", "worker-0", "--yes"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("worker-0 is connected"));
  result = Lockstep({"jobs", "delete", "job", "--yes"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("RUNNING"));
  result = Lockstep({"top", "-n1", "-b"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("job"));
  EXPECT_THAT(result.out, HasSubstr("DRAINING"));

  WriteFile(Path("go"), "");
  result = Lockstep({"nodes", "drain", "worker-0", "--reason", "new fan",
                     "--grace", "30s", "--wait", "--timeout", "60s"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "worker-0 DRAINED: new fan\n");
  WaitEnd("job", v1::JOB_STATE_SUCCEEDED);
  result = Lockstep({"nodes", "undrain", "worker-0"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "worker-0 READY\n");
  result = Lockstep({"events"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* part :
       {"job job", "node worker-0", "drained by user/local: new fan",
        "undrained by user/local", "submitted by user/local"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  result = Lockstep({"jobs", "delete", "job", "--yes"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "deleted job\n");
  EXPECT_EQ(Lockstep({"jobs", "describe", "job"}).code, 3);

  StopDaemon("worker-0");
  WaitNode("worker-0", v1::NODE_STATE_UNKNOWN);
  result = Lockstep({"nodes", "forget", "worker-0", "--yes"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "node worker-0 is forgotten\n");
  EXPECT_EQ(Lockstep({"nodes", "describe", "worker-0"}).code, 3);
}

}  // namespace
}  // namespace lockstep::cli
