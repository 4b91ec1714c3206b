// Programs that hang: they are seen to by what they print, use and join.
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "common/os/process.h"
#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class HangTest : public ClusterTest {
 protected:
  HangTest() {
    // For the test of programs that show nothing but activity.
    options_.extra_arguments["worker-0"] = {"--first-sign-seconds", "3"};
    options_.extra_arguments["worker-1"] = {"--first-sign-seconds", "3"};
  }

  static v1::JobSpec After(v1::JobSpec spec, int stall_seconds) {
    spec.mutable_stall_after()->set_seconds(stall_seconds);
    return spec;
  }
  // Prints twenty steps, then says by the file `stopped` when it stopped.
  std::string Steps() const {
    return "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo \"step $i/100\"; "
           "sleep 0.1; done; date +%s.%N > " +
           Path("stopped.tmp") + "; mv " + Path("stopped.tmp") + " " +
           Path("stopped") + "; ";
  }
  // What uses the CPU a little, as a program that waits in a loop.
  std::string WaitForGo() const {
    return "while [ ! -e " + Path("go") + " ]; do sleep 0.05; done; ";
  }
  static const v1::Event* FirstNotice(const v1::Job& job) {
    for (const v1::Event& event : job.events()) {
      if (event.reason() == v1::REASON_NO_PROGRESS) return &event;
    }
    return nullptr;
  }
  // Its history says in which call the rank of hang_program hangs.
  static bool HasVerdict(const v1::Job& job) {
    return std::any_of(
        job.events().begin(), job.events().end(), [](const v1::Event& event) {
          return event.reason() == v1::REASON_NO_PROGRESS &&
                 event.message().find("rank 0 waits in") != std::string::npos &&
                 event.message().find("hang_program.cc:") != std::string::npos;
        });
  }
  static double SecondsOf(const google::protobuf::Timestamp& time) {
    return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
  }
  static double UnixSeconds() {
    return ToSeconds(SystemClock().Now().wall.time_since_epoch());
  }
  // The job once it is called stalled.
  v1::Job WaitStalled(const std::string& name) {
    return WaitUntil(
        name, "a notice that it has stalled",
        [](const v1::Job& job) { return FirstNotice(job) != nullptr; });
  }
};

TEST_F(HangTest, StepsThatEndAreMissedInTime) {
  Submit(
      After(Shell("still", 1, Steps() + WaitForGo() + "echo step 21/100"), 3));
  const v1::Job job = WaitStalled("still");
  ASSERT_NE(FirstNotice(job), nullptr);
  EXPECT_THAT(FirstNotice(job)->message(), HasSubstr("rank 0 (chief 0 on "));
  EXPECT_THAT(FirstNotice(job)->message(),
              HasSubstr("its log names no new step after 20"));
  EXPECT_THAT(FirstNotice(job)->message(), HasSubstr("--hang warn"));
  const double stopped = std::stod(ReadFile(Path("stopped")));
  const double told = SecondsOf(FirstNotice(job)->time());
  EXPECT_GE(told - stopped, 2.5) << "the last line came 0.1 s before";
  EXPECT_LE(told - stopped, 5) << "the limit and 2 s";
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job.cause().reason(), v1::REASON_NO_PROGRESS);
  const v1::ProgressSigns& signs = Ranks(job).at(0).progress().signs();
  EXPECT_EQ(signs.source(), v1::SIGN_SOURCE_LOG);
  EXPECT_EQ(signs.log_step(), 20);
  EXPECT_EQ(signs.log_total(), 100);
  EXPECT_THAT(Lockstep({"jobs", "describe", "still"}).out,
              HasSubstr("log: step 20/100"));
  WriteFile(Path("go"), "");
  const v1::Job end = WaitEnd("still", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(end.restarts(), 0);
}

TEST_F(HangTest, ItIsStartedAgainWhereTheJobWantsThat) {
  v1::JobSpec spec = After(Shell("again", 1,
                                 Steps() + "if [ -e " + Path("second") +
                                     " ]; then exit 0; fi; "
                                     "touch " +
                                     Path("second") + "; sleep 1000"),
                           3);
  spec.set_hang(v1::HANG_POLICY_RESTART);
  Submit(spec);
  const v1::Job end = WaitEnd("again", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(end.attempts_size(), 2);
  EXPECT_EQ(end.attempts(0).end_cause().reason(), v1::REASON_STALLED);
  EXPECT_THAT(end.attempts(0).end_cause().message(),
              HasSubstr("its log names no new step after 20"));
}

// What its ranks do is on disk before the first signal, and outlives them.
TEST_F(HangTest, WhyItHungIsKnownAfterItWasStartedAgain) {
  const std::string found = Path("found");
  v1::JobSpec spec = After(
      Shell("kept", 1,
            "if [ -e " + Path("second") + " ]; then " + WaitForGo() +
                "exit 0; fi; touch " + Path("second") + "; trap 'find " +
                root() + " -path \"*/evidence/kept.g*\" > " + found +
                ".tmp; mv " + found + ".tmp " + found + "; exit 1' TERM; " +
                Steps() + TestBinary("hang_program") + " " + root() +
                " 0 lock & while :; do wait; done"),
      3);
  spec.set_hang(v1::HANG_POLICY_RESTART);
  Submit(spec);
  const v1::Job again = WaitUntil("kept", "its second attempt", [](auto& job) {
    return job.attempts_size() == 1 && job.state() == v1::JOB_STATE_RUNNING;
  });
  ASSERT_EQ(again.attempts_size(), 1);
  EXPECT_EQ(again.attempts(0).end_cause().reason(), v1::REASON_STALLED);
  EXPECT_THAT(ReadFile(found), HasSubstr("/evidence/kept.g"))
      << "it was there when SIGTERM came";
  const v1::Job judged = WaitUntil("kept", "the verdict", HasVerdict);
  ASSERT_TRUE(HasVerdict(judged));
  const auto names_the_function = [&](const std::string& when) {
    const CommandResult why = Lockstep({"jobs", "why", "kept"});
    EXPECT_EQ(why.code, 0) << why.err;
    EXPECT_THAT(why.out, HasSubstr("Before attempt 1 was stopped")) << when;
    EXPECT_THAT(why.out, HasSubstr("wait_for_lock()")) << when;
  };
  names_the_function("while it runs again");
  WriteFile(Path("go"), "");
  WaitEnd("kept", v1::JOB_STATE_SUCCEEDED);
  names_the_function("after its end");
}

// A warning is followed by what the rank does, which outlives the job.
TEST_F(HangTest, AWarningSaysWhereItHangs) {
  Submit(After(Shell("told", 1,
                     Steps() + "exec " + TestBinary("hang_program") + " " +
                         root() + " 0 lock"),
               3));
  const v1::Job job = WaitUntil("told", "the verdict", HasVerdict);
  ASSERT_TRUE(HasVerdict(job));
  const double told = SecondsOf(job.events().rbegin()->time());
  EXPECT_LE(told - std::stod(ReadFile(Path("stopped"))), 3 + 2 + 2);
  EXPECT_THAT(job.cause().message(), HasSubstr("waits in"));
  EXPECT_EQ(Lockstep({"jobs", "cancel", "told"}).code, 0);
  WaitEnd("told", v1::JOB_STATE_CANCELLED);
  const CommandResult why = Lockstep({"jobs", "why", "told"});
  EXPECT_EQ(why.code, 0) << why.err;
  EXPECT_THAT(why.out, HasSubstr("When attempt 1 stood still"));
  EXPECT_THAT(why.out, HasSubstr("wait_for_lock()"));
}

TEST_F(HangTest, AProgramThatOnlyComputesIsNone) {
  Submit(After(
      Shell("busy", 1, "while [ ! -e " + Path("go") + " ]; do :; done"), 3));
  Submit(After(Shell("idle", 1, "sleep 1000"), 3));
  const v1::Job idle = WaitStalled("idle");
  ASSERT_NE(FirstNotice(idle), nullptr);
  EXPECT_THAT(FirstNotice(idle)->message(), HasSubstr("CPU"));
  // It has run for as long, under the same limit.
  const v1::Job busy = WaitUntil("busy", "its time", [&](const v1::Job& job) {
    return SecondsOf(job.state_time()) + 8 < UnixSeconds();
  });
  EXPECT_EQ(FirstNotice(busy), nullptr);
  EXPECT_EQ(Ranks(busy).at(0).progress().signs().source(),
            v1::SIGN_SOURCE_ACTIVITY);
  WriteFile(Path("go"), "");
  WaitEnd("busy", v1::JOB_STATE_SUCCEEDED);
}

TEST_F(HangTest, AStoppedRankThatJoinedIsMissed) {
  Submit(After(Shell("joined", 1,
                     "exec " + TestBinary("light_rank") +
                         " --steps 100 --until " + Path("go")),
               3));
  const v1::Job running = WaitUntil("joined", "steps", [](const v1::Job& job) {
    return !Ranks(job).empty() &&
           Ranks(job).begin()->second.progress().signs().source() ==
               v1::SIGN_SOURCE_SESSION;
  });
  const auto pid = static_cast<pid_t>(PidOf(running, 0));
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  const double stopped = UnixSeconds();
  const v1::Job job = WaitStalled("joined");
  ASSERT_NE(FirstNotice(job), nullptr);
  EXPECT_THAT(FirstNotice(job)->message(), HasSubstr("stands still for "));
  EXPECT_LE(SecondsOf(FirstNotice(job)->time()) - stopped, 5);
  ASSERT_EQ(kill(pid, SIGCONT), 0);
  WriteFile(Path("go"), "");
  WaitEnd("joined", v1::JOB_STATE_SUCCEEDED);
}

TEST_F(HangTest, AJobMaySayWhatItsProgressIs) {
  v1::JobSpec spec = After(
      Shell("own", 1,
            "i=0; while [ ! -e " + Path("go") +
                " ]; do i=$((i+1)); echo \"wrote shard $i\"; sleep 0.2; done"),
      3);
  spec.set_progress_pattern("wrote shard ([0-9]+)");
  Submit(spec);
  WaitUntil("own", "its steps", [](const v1::Job& job) {
    return !Ranks(job).empty() &&
           Ranks(job).begin()->second.progress().signs().log_step() > 10;
  });
  EXPECT_EQ(FirstNotice(Get("own")), nullptr);
  WriteFile(Path("go"), "");
  WaitEnd("own", v1::JOB_STATE_SUCCEEDED);
  const CommandResult bad =
      Lockstep({"submit", "--name", "bad", "--progress-pattern", "step (", "--",
                "/bin/true"});
  EXPECT_NE(bad.code, 0);
  EXPECT_THAT(bad.err, HasSubstr("--progress-pattern"));
  EXPECT_THAT(bad.err, HasSubstr("step ("));
}

// It has finished its work, and sleeps.
TEST_F(HangTest, AnIdleProgramIsToldAndStopped) {
  v1::JobSpec spec = Shell("idles", 1,
                           "for i in $(seq 20); do echo \"step $i/20\"; done; "
                           "exec sleep 1000");
  spec.set_hang(v1::HANG_POLICY_OFF);
  spec.mutable_idle_notice()->set_seconds(10);
  spec.mutable_idle_stop()->set_seconds(14);
  Submit(spec);
  const v1::Job job = WaitEnd("idles", v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job.cause().reason(), v1::REASON_IDLE);
  const auto told = std::find_if(
      job.events().begin(), job.events().end(),
      [](const v1::Event& e) { return e.reason() == v1::REASON_IDLE; });
  ASSERT_NE(told, job.events().end());
  EXPECT_THAT(told->message(), HasSubstr("no rank has worked for 10"));
  EXPECT_THAT(told->message(), HasSubstr("USD"));
}

}  // namespace
}  // namespace lockstep
