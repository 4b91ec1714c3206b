// Daemons that die or are restarted while a job runs.
#include <signal.h>

#include "common/base/random.h"
#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"

namespace lockstep::cli {
namespace {

class RestartTest : public ClusterTest {
 protected:
  // Steps until `go` is there, some 5 ms each; both ranks print each step.
  v1::Job StartSteps(const std::string& name) {
    v1::JobSpec spec =
        Steps(name, 2,
              {"--steps", "250", "--step_ms", "5", "--hold_step", "249",
               "--hold_file", Path("go"), "--print_steps", "1"});
    spec.mutable_checkpoint()->set_interval_steps(50);
    Submit(spec);
    return WaitUntil(name, "step 20", [](const v1::Job& job) {
      return job.progress().chief().committed_step() >= 20;
    });
  }
  // The job goes on while nobody looks.
  void ExpectSteps(const v1::Job& job, int64_t more) {
    const int64_t before = CommittedOnPage(job, 1);
    EXPECT_GE(before, 0);
    EXPECT_TRUE(Eventually([&] {
      return CommittedOnPage(job, 1) >= before + more;
    })) << "no steps since "
        << before;
  }
  // It ends as the generation it was, with every line of output.
  void ExpectUndisturbed(const v1::Job& before) {
    const std::string& name = before.name();
    WriteFile(Path("go"), "");
    const v1::Job job = WaitEnd(name, v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(job.generation(), before.generation());
    EXPECT_EQ(job.attempt(), 1);
    EXPECT_EQ(job.restarts(), 0);
    ASSERT_EQ(job.attempts_size(), 1);
    for (int rank = 0; rank < 2; ++rank) {
      const v1::RankStatus& ended = job.attempts(0).tasks(rank).ranks(0);
      EXPECT_EQ(ended.pid(), PidOf(before, rank));
      EXPECT_EQ(ended.exit().code(), 0) << ended.exit().DebugString();
      EXPECT_EQ(
          Line(name, rank, "done "),
          "done 250 skipped 0 hash " + HashWeights(ExpectedWeights(250, 8)));
      std::vector<std::string> steps;
      for (const std::string& line : Output(name, rank)) {
        if (line.rfind("step ", 0) == 0) steps.push_back(line);
      }
      ASSERT_EQ(steps.size(), 250u);
      for (int i = 0; i < 250; ++i) {
        ASSERT_EQ(steps[i], "step " + std::to_string(i + 1));
      }
    }
  }
};

TEST_F(RestartTest, TrainingDoesNotNeedTheCoordinator) {
  SubmitOptions options;
  options.request_id = RandomUuid();
  v1::JobSpec waiting = Shell("waiting", 1, "true");
  const v1::Job job = StartSteps("away");
  const auto answer = client()->SubmitJob(waiting, options);
  ASSERT_TRUE(answer.ok()) << answer.status();

  KillDaemon("coordinator");
  ExpectSteps(job, 40);
  StartDaemon("coordinator");

  // What it had promised, it knows.
  const auto again = client()->SubmitJob(waiting, options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job().uid(), answer->job().uid());
  EXPECT_EQ(Get("away").state(), v1::JOB_STATE_RUNNING);
  ExpectUndisturbed(job);
  WaitEnd("waiting", v1::JOB_STATE_SUCCEEDED);
}

TEST_F(RestartTest, ACoordinatorThatIsAskedToLeaveLeavesTheJob) {
  const v1::Job job = StartSteps("asked");
  StopDaemon("coordinator");
  ExpectSteps(job, 40);
  StartDaemon("coordinator");
  ExpectUndisturbed(job);
}

TEST_F(RestartTest, AJobThatEndsWhileTheCoordinatorIsAwayHasEnded) {
  const v1::Job job = StartSteps("end");
  KillDaemon("coordinator");
  ExpectSteps(job, 5);
  WriteFile(Path("go"), "");
  EXPECT_TRUE(Eventually([&] { return CommittedOnPage(job, 0) >= 250; }));
  StartDaemon("coordinator");
  ExpectUndisturbed(job);
}

TEST_F(RestartTest, RanksSurviveTheirDaemon) {
  const v1::Job job = StartSteps("adopted");
  KillDaemon("worker-1");
  ExpectSteps(job, 40);
  StartDaemon("worker-1");
  ExpectUndisturbed(job);
}

TEST_F(RestartTest, ADaemonThatIsAskedToLeaveLeavesTheRanks) {
  const v1::Job job = StartSteps("left");
  StopDaemon("worker-0");
  ExpectSteps(job, 40);
  StartDaemon("worker-0");
  ExpectUndisturbed(job);
}

TEST_F(RestartTest, RanksThatEndWithoutADaemonHaveEnded) {
  const v1::Job job = StartSteps("orphan");
  KillDaemon("worker-1");
  WriteFile(Path("go"), "");
  // The shim has recorded the exit.
  EXPECT_TRUE(Eventually([&] {
    return RealFileSystem()->Exists(cluster()->layout().DaemonDir("worker-1") +
                                    "/tasks/orphan.g1/rank-1/exit.record");
  }));
  StartDaemon("worker-1");
  ExpectUndisturbed(job);
}

TEST_F(RestartTest, AllDaemonsAtOnce) {
  const v1::Job job = StartSteps("all");
  for (const char* daemon : {"coordinator", "worker-0", "worker-1"}) {
    KillDaemon(daemon);
  }
  ExpectSteps(job, 20);
  StartAll();
  ExpectUndisturbed(job);
}

TEST_F(RestartTest, CancelReachesRanksOfARestartedDaemon) {
  StartSteps("cancel");
  KillDaemon("worker-0");
  StartDaemon("worker-0");
  ASSERT_TRUE(client()->CancelJob("cancel").ok());
  WaitEnd("cancel", v1::JOB_STATE_CANCELLED);
}

// It is over once the daemon is back and has said so.
TEST_F(RestartTest, CancelWaitsForADaemonThatIsAway) {
  StartSteps("away");
  KillDaemon("worker-0");
  ASSERT_TRUE(client()->CancelJob("away").ok());
  // It says what it waits for.
  WaitUntil("away", "a wait for worker-0", [](const v1::Job& job) {
    return job.state() == v1::JOB_STATE_FINISHING &&
           job.cause().message().find("worker-0") != std::string::npos;
  });
  StartDaemon("worker-0");
  EXPECT_EQ(WaitEnd("away", v1::JOB_STATE_CANCELLED).cause().reason(),
            v1::REASON_CANCELLED_BY_USER);
}

// The store is the first one's.
TEST_F(RestartTest, ASecondCoordinatorOfTheSameStoreIsRefused) {
  const CommandResult second = RunCommand(
      {Binary("lockstep-coordinator"), "--dir",
       cluster()->layout().DaemonDir("coordinator"), "--insecure-loopback"});
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.err, testing::HasSubstr("coordinator.db"));
  RunJob(Shell("fine", 2, "true"), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(RestartTest, ProgramsSurviveToo) {
  Submit(Shell("program", 2,
               "echo up; while [ ! -e " + Path("go") +
                   " ]; do sleep 0.02; done; echo down; exit 0"));
  const v1::Job before = WaitFor("program", v1::JOB_STATE_RUNNING);
  ASSERT_TRUE(HasLine("program", 1, "up"));
  for (const char* daemon : {"worker-0", "worker-1", "coordinator"}) {
    KillDaemon(daemon);
  }
  StartAll();
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("program", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.generation(), 1u);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(Output("program", rank), testing::ElementsAre("up", "down"));
    EXPECT_EQ(job.attempts(0).tasks(rank).ranks(0).pid(), PidOf(before, rank));
  }
}

}  // namespace
}  // namespace lockstep::cli
