// One rank of a gang stands still, one node refuses it: all or nothing. And
// jobs that are deleted.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"
#include "worker/task/rank_page.h"

namespace lockstep {
namespace {

namespace task = worker::task;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Story(const v1::Job& job) {
  std::string text;
  for (const v1::Event& event : job.events()) text += event.message() + "\n";
  return text;
}

class GangTest : public ClusterTest {
 protected:
  // What the rank says it does now; kOther where it says nothing.
  task::RankPhase PhaseOnPage(const v1::Job& job, int rank) {
    const std::string path =
        fmt::format("{}/tasks/{}.g{}/rank-{}/work/.lockstep-page",
                    cluster()->layout().DaemonDir(job.tasks(rank).node()),
                    job.name(), job.generation(), rank);
    std::string error;
    const auto reader = task::PageReader::Open(path, &error);
    task::RankPage page;
    if (!reader ||
        reader->ReadLast(&page, &error) != task::PageReader::Result::kOk) {
      return task::RankPhase::kOther;
    }
    return page.progress.phase;
  }
  // Nothing that ran is left of what did not begin.
  static void ExpectNothingStarted(const v1::Attempt& attempt) {
    for (const v1::TaskStatus& task : attempt.tasks()) {
      for (const v1::RankStatus& rank : task.ranks()) {
        EXPECT_EQ(rank.pid(), 0) << attempt.DebugString();
      }
    }
  }
};

TEST_F(GangTest, AStoppedRankIsNamedAndTheJobGoesOnWithoutIt) {
  v1::JobSpec spec = Steps("still", 2, {"--steps", "600", "--step_ms", "10"});
  spec.mutable_checkpoint()->set_interval_steps(50);
  Submit(spec);
  // The length of some steps is known by then.
  const v1::Job running = WaitUntil("still", "step 100", [](const auto& job) {
    return job.progress().chief().committed_step() >= 100 &&
           job.has_last_checkpoint();
  });
  const auto pid = static_cast<pid_t>(PidOf(running, 1));
  const auto start = StartTime(pid);
  ASSERT_TRUE(start.ok()) << start.status();
  const auto old = OpenVerified({pid, *start});
  ASSERT_TRUE(old.ok()) << old.status();
  // In its own work, not in the all-reduce.
  ASSERT_TRUE(Eventually([&] {
    if (!SendSignal(*old, SIGSTOP).ok()) return false;
    // A stop takes effect a moment after the call.
    const bool stopped = Eventually([&] {
      const auto stat = RealFileSystem()->Read(
          fmt::format("/proc/{}/stat", pid), size_t{4096});
      return stat.ok() && stat->find(") T ") != std::string::npos;
    });
    if (stopped && PhaseOnPage(running, 1) == task::RankPhase::kCompute) {
      return true;
    }
    (void)SendSignal(*old, SIGCONT);
    return false;
  }));
  const MonoTime stood = MonotonicNow();
  WaitUntil("still", "a stall", [](const v1::Job& job) {
    return job.generation() > 1 ||
           Story(job).find("has stalled in") != std::string::npos;
  });
  // Long before a time-out of the all-reduce.
  EXPECT_LT(MonotonicNow() - stood, seconds(30));
  // It comes too late, whatever it does now.
  (void)SendSignal(*old, SIGCONT);
  const v1::Job job = WaitEnd("still", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.attempts_size(), 2);
  const v1::Cause& cause = job.attempts(0).end_cause();
  EXPECT_EQ(cause.reason(), v1::REASON_STALLED);
  EXPECT_THAT(
      cause.message(),
      HasSubstr(
          "rank 1 (worker 0 on worker-1) has stalled in compute of step "));
  EXPECT_THAT(cause.message(), HasSubstr("while 1 other rank waits for it"));
  EXPECT_TRUE(HasEnded(*old));
  EXPECT_GE(job.attempts(1).resumed_step(), 50);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(
        Line("still", rank, "done ", 2),
        "done 600 skipped 0 hash " + HashWeights(ExpectedWeights(600, 8)));
  }
}

TEST_F(GangTest, ADeletedJobLeavesItsNameOnly) {
  Submit(Shell(
      "gone", 2,
      "echo here; while [ ! -e " + Path("go") + " ]; do sleep 0.02; done"));
  WaitFor("gone", v1::JOB_STATE_RUNNING);
  const Status refused = client()->DeleteJob("gone");
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), HasSubstr("cancel it first"));
  WriteFile(Path("go"), "");
  const v1::Job job = WaitEnd("gone", v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(HasLine("gone", 1, "here"));
  const std::string logs =
      cluster()->layout().DaemonDir("coordinator") + "/logs";
  EXPECT_TRUE(RealFileSystem()->Exists(logs + "/" + job.uid()));
  const Status deleted = client()->DeleteJob("gone");
  ASSERT_TRUE(deleted.ok()) << deleted;
  const auto expect_gone = [&] {
    EXPECT_EQ(client()->GetJob("gone").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(client()->DeleteJob("gone").code(), StatusCode::kNotFound);
    cli::LogOptions options;
    options.name = "gone";
    EXPECT_EQ(client()
                  ->StreamLogs(
                      options, [](const v1::LogLine&) { return true; }, nullptr)
                  .code(),
              StatusCode::kNotFound);
    const auto all = client()->ListJobs();
    ASSERT_TRUE(all.ok());
    EXPECT_THAT(*all, IsEmpty());
    const auto again = client()->SubmitJob(Shell("gone", 1, "true"));
    EXPECT_EQ(again.status().code(), StatusCode::kAlreadyExists);
    EXPECT_TRUE(Eventually(
        [&] { return !RealFileSystem()->Exists(logs + "/" + job.uid()); }));
  };
  expect_gone();
  KillDaemon("coordinator");
  StartDaemon("coordinator");
  expect_gone();
}

// worker-1 sees other files than the rest of the machine.
class OneNodeTest : public GangTest {
 protected:
  OneNodeTest() { manual_start_ = true; }

  // `script` runs as root, in a mount namespace of worker-1's own. False where
  // there are none.
  bool StartWith(const std::string& script) {
    const CommandResult possible =
        RunCommand({"/bin/sh", "-c", "exec unshare -m mount -t tmpfs x /mnt"});
    if (possible.code != 0) return false;
    const std::string real = options_.bin_dir;
    options_.bin_dir = Path("bin");
    EXPECT_TRUE(RealFileSystem()->MakeDirs(options_.bin_dir).ok());
    for (const char* name : {"lockstep-coordinator", "lockstep-shim"}) {
      EXPECT_EQ(symlink((real + "/" + name).c_str(),
                        (options_.bin_dir + "/" + name).c_str()),
                0);
    }
    const std::string worker = options_.bin_dir + "/lockstep-worker";
    WriteFile(worker,
              fmt::format("#!/bin/sh\n"
                          "case \"$*\" in\n"
                          "*/worker-1\\ *) ;;\n"
                          "*) exec {0}/lockstep-worker \"$@\" ;;\n"
                          "esac\n"
                          "exec unshare -m /bin/sh -c '{1} || exit 9\n"
                          "exec {0}/lockstep-worker \"$@\"' sh \"$@\"\n",
                          real, script));
    EXPECT_EQ(chmod(worker.c_str(), 0755), 0);
    StartCluster();
    return true;
  }
};

TEST_F(OneNodeTest, AnOutputDirectoryThatOneNodeCannotMakeUndoesAll) {
  EXPECT_TRUE(RealFileSystem()->MakeDirs(Path("share")).ok());
  if (!StartWith("mount -t tmpfs -o ro none " + Path("share"))) {
    GTEST_SKIP() << "needs mount namespaces";
  }
  v1::JobSpec spec = Steps("refused", 2, {});
  spec.set_output_directory(Path("share") + "/out");
  const v1::Job job = RunJob(spec, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.cause().reason(), v1::REASON_PREPARE_REFUSED);
  EXPECT_THAT(job.cause().message(),
              HasSubstr("node worker-1: cannot create the output directory " +
                        Path("share") + "/out: "));
  ASSERT_EQ(job.attempts_size(), 1);
  ExpectNothingStarted(job.attempts(0));
  for (const char* node : {"worker-0", "worker-1"}) {
    EXPECT_TRUE(Eventually([&] {
      const auto left = RealFileSystem()->List(
          cluster()->layout().DaemonDir(node) + "/tasks");
      return left.ok() && left->empty();
    })) << node;
  }
  RunJob(Shell("next", 2, "true"), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(OneNodeTest, APortThatIsTakenOnOneNodeCostsAWait) {
  // All that worker-1 may lease is the highest port of all.
  constexpr uint16_t kPort = 65535;
  WriteFile(Path("range"), "1024\t65534\n");
  Fd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  if (bind(taken.get(), reinterpret_cast<sockaddr*>(&address),
           sizeof(address)) != 0 ||
      listen(taken.get(), 1) != 0) {
    GTEST_SKIP() << "somebody else has that port";
  }
  if (!StartWith("mount --bind " + Path("range") +
                 " /proc/sys/net/ipv4/ip_local_port_range")) {
    GTEST_SKIP() << "needs mount namespaces";
  }
  Submit(Shell("port", 2, "echo at $PORT"));
  const v1::Job waits = WaitUntil("port", "a refusal", [](const v1::Job& job) {
    return job.attempts_size() > 0;
  });
  const v1::Attempt& first = waits.attempts(0);
  EXPECT_THAT(first.end_cause().message(), HasSubstr("node worker-1: "));
  EXPECT_THAT(first.end_cause().message(), HasSubstr("port"));
  ExpectNothingStarted(first);
  taken.Reset();
  const v1::Job job = WaitEnd("port", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.attempts(job.attempts_size() - 1).tasks(1).address(),
            fmt::format("127.0.0.1:{}", kPort));
}

}  // namespace
}  // namespace lockstep
