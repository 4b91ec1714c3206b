// Jobs with parameter servers: a worker that is started again alone, and an
// end that does not wait for what never ends.
#include <signal.h>

#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class WorkerAloneTest : public ClusterTest {
 protected:
  // Room for four tasks.
  WorkerAloneTest() { options_.cpus = 4; }

  // A chief that ends when there is a file "go", a worker that runs `worker`,
  // and a parameter server, which never ends.
  v1::JobSpec WithServer(const std::string& name, const std::string& worker) {
    v1::JobSpec spec = Shell(name, 2, "");
    const auto script = [](const std::string& text, v1::RoleSpec* role) {
      role->clear_argv();
      for (const std::string& word :
           std::vector<std::string>{"/bin/sh", "-c", text}) {
        role->add_argv(word);
      }
    };
    v1::RoleSpec server = spec.roles(1);
    server.set_type(v1::TASK_TYPE_PS);
    script("while [ ! -e " + Path("go") + " ]; do sleep 0.02; done",
           spec.mutable_roles(0));
    script(worker, spec.mutable_roles(1));
    script("trap '' TERM; while :; do sleep 0.05; done", &server);
    *spec.add_roles() = server;
    spec.set_restart_worker_alone(true);
    return spec;
  }
};

TEST_F(WorkerAloneTest, AKilledWorkerComesBackAtItsAddress) {
  Submit(WithServer("alone", "echo here $TF_CONFIG; while [ ! -e " +
                                 Path("go") + " ]; do sleep 0.02; done"));
  const v1::Job before = WaitFor("alone", v1::JOB_STATE_RUNNING);
  ASSERT_TRUE(HasLine("alone", 1, "here"));
  const int64_t pid = PidOf(before, 1);
  ASSERT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
  const v1::Job after = WaitUntil("alone", "another worker", [&](auto& job) {
    return PidOf(job, 1) != pid && PidOf(job, 1) != 0;
  });
  EXPECT_EQ(after.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(after.generation(), 1u);
  EXPECT_EQ(Ranks(after)[1].restarts(), 1);
  EXPECT_EQ(PidOf(after, 0), PidOf(before, 0));
  EXPECT_EQ(PidOf(after, 2), PidOf(before, 2));
  EXPECT_EQ(after.tasks(1).address(), before.tasks(1).address());
  EXPECT_TRUE(Eventually([&] {
    const std::vector<std::string> lines = Output("alone", 1);
    return lines.size() == 2 && lines[0] == lines[1];
  })) << "the same TF_CONFIG";
  WriteFile(Path("go"), "");
  const v1::Job end = WaitEnd("alone", v1::JOB_STATE_SUCCEEDED);
  std::string story;
  for (const v1::Event& event : end.events()) story += event.message() + "\n";
  EXPECT_THAT(story, HasSubstr("killed by SIGKILL; restarted alone (1 of 3 "
                               "failures without progress)"));
}

TEST_F(WorkerAloneTest, AWorkerThatAlwaysFailsUsesTheBudgetUp) {
  v1::JobSpec spec = WithServer("loop", "sleep 2; exit 7");
  spec.set_restart_budget(1);
  const v1::Job job = RunJob(spec, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.generation(), 1u);
  EXPECT_EQ(job.exit_code(), 7);
  EXPECT_EQ(job.cause().reason(), v1::REASON_RESTART_BUDGET);
}

// Workers of a job with servers, and servers, never exit by themselves in
// TensorFlow.
TEST_F(WorkerAloneTest, TheEndWaitsForNeitherWorkersNorServers) {
  Submit(WithServer("end", "while :; do sleep 0.02; done"));
  WaitFor("end", v1::JOB_STATE_RUNNING);
  WriteFile(Path("go"), "");
  const v1::Job end = WaitEnd("end", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(end.exit_code(), 0);
  EXPECT_EQ(end.generation(), 1u);
  EXPECT_EQ(end.failures_without_progress(), 0);
  std::string story;
  for (const v1::Event& event : end.events()) story += event.message() + "\n";
  EXPECT_THAT(story, HasSubstr("still running; stopped now: rank 1 (worker "
                               "0 on "));
  EXPECT_THAT(story, HasSubstr("stopped: rank 1 (worker 0 on "));
}

}  // namespace
}  // namespace lockstep
