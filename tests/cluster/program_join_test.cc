// Programs whose ranks join their job with a light session.
#include <signal.h>

#include "common/os/process.h"
#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class ProgramJoinTest : public ClusterTest {
 protected:
  std::string Light(const std::string& flags) const {
    return "exec " + TestBinary("light_rank") + " " + flags + " --until " +
           Path("go");
  }
};

TEST_F(ProgramJoinTest, TheJobShowsWhatItsRanksDo) {
  Submit(Shell("join", 2, Light("--steps 10")));
  const v1::Job job =
      WaitUntil("join", "steps and reports", [](const v1::Job& job) {
        return job.progress().chief().committed_step() >= 10 &&
               job.has_last_checkpoint() && job.artifacts().contains("model") &&
               job.progress().chief().values().contains("accuracy");
      });
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  const v1::RankProgress& chief = job.progress().chief();
  EXPECT_EQ(chief.phase(), "compute");
  EXPECT_EQ(chief.loss(), 0.5);
  EXPECT_GT(chief.phases().compute(), 0);
  EXPECT_EQ(job.last_checkpoint().step(), 3);
  std::string story;
  for (const v1::Event& event : job.events()) story += event.message() + "\n";
  EXPECT_THAT(story, HasSubstr("half way"));
  // Both ranks, from their nodes.
  WaitUntil("join", "the other rank's page", [](const v1::Job& now) {
    return Ranks(now).at(1).progress().committed_step() >= 10;
  });
  WriteFile(Path("go"), "");
  const v1::Job end = WaitEnd("join", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(end.restarts(), 0);
  EXPECT_EQ(Line("join", 1, "joined"), "joined worker 0 rank 1 of 2");
}

// The others wait for it in the all-reduce, as they say.
TEST_F(ProgramJoinTest, AFrozenRankIsNamedAndTheGangStartedAgain) {
  v1::JobSpec spec = Shell(
      "still", 2,
      Light("--steps 100 --phase allreduce --together " + Path("together")));
  spec.set_hang(v1::HANG_POLICY_RESTART);
  spec.mutable_stall_after()->set_seconds(3);
  Submit(spec);
  const v1::Job running = WaitUntil("still", "steps", [](const v1::Job& job) {
    return job.progress().chief().committed_step() >= 100;
  });
  const auto pid = static_cast<pid_t>(PidOf(running, 1));
  const auto start = StartTime(pid);
  ASSERT_TRUE(start.ok()) << start.status();
  const auto frozen = OpenVerified({pid, *start});
  ASSERT_TRUE(frozen.ok()) << frozen.status();
  ASSERT_TRUE(SendSignal(*frozen, SIGSTOP).ok());
  const v1::Job again = WaitUntil(
      "still", "the next generation",
      [](const v1::Job& job) {
        return job.generation() > 1 && job.state() == v1::JOB_STATE_RUNNING;
      },
      seconds(120));
  ASSERT_GE(again.attempts_size(), 1);
  const v1::Cause& cause = again.attempts(0).end_cause();
  EXPECT_EQ(cause.reason(), v1::REASON_STALLED);
  EXPECT_THAT(cause.message(),
              HasSubstr("rank 1 (worker 0 on worker-1) has stalled in compute "
                        "of step "));
  WriteFile(Path("go"), "");
  WaitEnd("still", v1::JOB_STATE_SUCCEEDED);
}

TEST_F(ProgramJoinTest, AProgramThatDoesNotJoinIsAsBefore) {
  Submit(Shell("plain", 2,
               "while [ ! -e " + Path("go") + " ]; do sleep 0.02; done"));
  const v1::Job running = WaitFor("plain", v1::JOB_STATE_RUNNING);
  ASSERT_EQ(kill(static_cast<pid_t>(PidOf(running, 1)), SIGSTOP), 0);
  // Longer than a deadline that was learned from steps.
  const MonoTime begin = MonotonicNow();
  const v1::Job job = WaitUntil("plain", "time", [&](const v1::Job&) {
    return MonotonicNow() - begin > seconds(8);
  });
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job.generation(), 1u);
  EXPECT_LT(job.progress().chief().committed_step(), 0);
  ASSERT_EQ(kill(static_cast<pid_t>(PidOf(running, 1)), SIGCONT), 0);
  WriteFile(Path("go"), "");
  const v1::Job end = WaitEnd("plain", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(end.restarts(), 0);
  EXPECT_EQ(end.attempts_size(), 1);
}

}  // namespace
}  // namespace lockstep
