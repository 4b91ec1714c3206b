// What is known of Python ranks that hang: py-spy reads their stacks. It is the
// one of the environment that tests/frameworks/setup made; the test is skipped
// where LOCKSTEP_FRAMEWORKS does not name it.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/cluster/evidence_fixture.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Its ranks wait in all_reduce for ever; one sleeps elsewhere.
constexpr char kPythonProgram[] = R"(
import os, socket, sys, threading, time

def all_reduce(link):
    link.recv(1)

def wait_for_lock():
    lock = threading.Lock()
    with lock:
        with lock:
            pass

def sleep_long():
    time.sleep(10_000)

def step(rank, how):
    if rank == int(sys.argv[2]):
        how()
    all_reduce(here)

here, there = socket.socketpair()
rank = os.environ["RANK"]
open(os.path.join(sys.argv[1], "ready-" + rank), "w").close()
step(int(rank), {"lock": wait_for_lock, "sleep": sleep_long,
                 "reduce": lambda: None}[sys.argv[3]])
)";

class PythonEvidenceTest : public EvidenceTest {
 protected:
  void SetUp() override {
    EvidenceTest::SetUp();
    const char* const frameworks = getenv("LOCKSTEP_FRAMEWORKS");
    if (frameworks == nullptr) {
      GTEST_SKIP() << "no py-spy: run tests/frameworks/setup DIR and set "
                      "LOCKSTEP_FRAMEWORKS=DIR";
    }
    bin_ = JoinPath(frameworks, "client/bin");
    const std::string py_spy = JoinPath(bin_, "py-spy");
    ASSERT_EQ(access(py_spy.c_str(), X_OK), 0)
        << py_spy << " is missing: run tests/frameworks/setup " << frameworks;
    for (const char* const worker : {"worker-0", "worker-1"}) {
      options_.extra_arguments[worker] = {"--py-spy", py_spy};
    }
  }

  std::string bin_;
};

TEST_F(PythonEvidenceTest, APythonRankThatHangsIsNamedByItsFunction) {
  StartCluster();
  WriteFile(Path("train.py"), kPythonProgram);
  const std::vector<std::string> program = {JoinPath(bin_, "python"),
                                            Path("train.py")};
  StartHanging("lock", program, 1, "lock");
  const v1::Job before = Get("lock");
  const v1::JobEvidence evidence = Collect("lock", "rank 1 waits in");
  EXPECT_EQ(evidence.verdict(),
            "rank 1 waits in wait_for_lock (train.py:10); 3 ranks wait for it "
            "in all_reduce");
  EXPECT_THAT(CauseOf(evidence), ElementsAre(1));
  // Also what is stopped is read.
  ASSERT_EQ(kill(static_cast<pid_t>(PidOf(before, 3)), SIGSTOP), 0);
  const v1::JobEvidence stopped = Collect("lock", "rank 3 is stopped");
  EXPECT_THAT(stopped.verdict(), HasSubstr("all_reduce (train.py:5)"));
  ASSERT_EQ(kill(static_cast<pid_t>(PidOf(before, 3)), SIGCONT), 0);
  ExpectUnharmed("lock", before);
  ASSERT_TRUE(client()->CancelJob("lock").ok());
  WaitEnd("lock", v1::JOB_STATE_CANCELLED);

  StartHanging("sleep", program, 2, "sleep");
  EXPECT_EQ(Collect("sleep", "rank 2 waits in").verdict(),
            "rank 2 waits in sleep_long (train.py:14); 3 ranks wait for it in "
            "all_reduce");
}

}  // namespace
}  // namespace lockstep::cli
