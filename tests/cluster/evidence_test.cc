// What is known of ranks that hang, with real processes: the rank that the
// others wait for is named, and nothing of it is harmed.
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/cluster/fixture.h"

namespace lockstep::cli {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Property;

constexpr int kRanks = 4;

// Of PATH, or of the frameworks' environments; "" where there is none.
std::string PySpy() {
  std::string rest = getenv("PATH") == nullptr ? "" : getenv("PATH");
  if (const char* const frameworks = getenv("LOCKSTEP_FRAMEWORKS")) {
    rest += ":" + JoinPath(frameworks, "client/bin");
  }
  while (!rest.empty()) {
    const std::string path = JoinPath(rest.substr(0, rest.find(':')), "py-spy");
    if (access(path.c_str(), X_OK) == 0) return path;
    rest.erase(0, std::min(rest.find(':'), rest.size() - 1) + 1);
  }
  return "";
}

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

class EvidenceTest : public ClusterTest {
 protected:
  EvidenceTest() {
    manual_start_ = true;
    options_.cpus = kRanks;
  }

  // A job whose rank `odd` hangs as `how` says; all ranks are where they stay.
  void StartHanging(const std::string& name, std::vector<std::string> program,
                    int odd, const std::string& how) {
    const std::string directory = Path("ready-" + name);
    ASSERT_TRUE(RealFileSystem()->MakeDirs(directory, 0755).ok());
    program.insert(program.end(), {directory, std::to_string(odd), how});
    Submit(Program(name, kRanks, std::move(program)));
    WaitFor(name, v1::JOB_STATE_RUNNING);
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::string ready =
          JoinPath(directory, "ready-" + std::to_string(rank));
      ASSERT_TRUE(Eventually([&] { return RealFileSystem()->Exists(ready); }))
          << "rank " << rank;
    }
  }
  // Asks until the verdict has the words: a rank may need a moment from its
  // last sign to where it stays.
  v1::JobEvidence Collect(const std::string& name, const std::string& words) {
    v1::JobEvidence evidence;
    EXPECT_TRUE(Eventually([&] {
      auto collected = client()->CollectEvidence(name, {});
      if (!collected.ok()) return false;
      evidence = *std::move(collected);
      return evidence.verdict().find(words) != std::string::npos;
    })) << evidence.DebugString();
    return evidence;
  }
  // The same processes run as before.
  void ExpectUnharmed(const std::string& name, const v1::Job& before) {
    const v1::Job job = Get(name);
    EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(PidOf(job, rank), PidOf(before, rank));
      EXPECT_EQ(kill(static_cast<pid_t>(PidOf(job, rank)), 0), 0);
    }
  }
  static std::vector<int> CauseOf(const v1::JobEvidence& evidence) {
    return {evidence.cause_ranks().begin(), evidence.cause_ranks().end()};
  }
};

TEST_F(EvidenceTest, ANativeRankThatHangsIsNamed) {
  StartCluster();
  const std::vector<std::string> program = {TestBinary("hang_program")};
  StartHanging("lock", program, 2, "lock");
  const v1::Job before = Get("lock");
  const v1::JobEvidence evidence = Collect("lock", "rank 2 waits in");
  // libc's function, and the program's line that called it.
  EXPECT_THAT(evidence.verdict(), HasSubstr("pthread_mutex_lock"));
  EXPECT_THAT(evidence.verdict(), HasSubstr("(hang_program.cc:"));
  EXPECT_THAT(evidence.verdict(),
              HasSubstr("3 ranks wait for it in all_reduce"));
  EXPECT_THAT(CauseOf(evidence), ElementsAre(2));
  ASSERT_EQ(evidence.groups_size(), 2);
  EXPECT_THAT(evidence.groups(0).ranks(), ElementsAre(0, 1, 3));
  EXPECT_TRUE(evidence.groups(1).odd());
  EXPECT_THAT(evidence.groups(1).frames(),
              Contains(Property(&v1::StackFrame::function, "wait_for_lock()")));
  ASSERT_EQ(evidence.ranks_size(), kRanks);
  for (const v1::RankEvidence& rank : evidence.ranks()) {
    EXPECT_THAT(rank.node(), Not(IsEmpty()));
    ASSERT_GE(rank.processes_size(), 1);
    EXPECT_EQ(rank.processes(0).pid(), PidOf(before, rank.rank()));
    EXPECT_EQ(rank.processes(0).stack_source(), "libdw");
  }
  ExpectUnharmed("lock", before);

  // Stopped: with certainty, whatever it did.
  ASSERT_EQ(kill(static_cast<pid_t>(PidOf(before, 1)), SIGSTOP), 0);
  EXPECT_THAT(CauseOf(Collect("lock", "rank 1 is stopped")), ElementsAre(1));
  ASSERT_EQ(kill(static_cast<pid_t>(PidOf(before, 1)), SIGCONT), 0);
  EXPECT_THAT(CauseOf(Collect("lock", "rank 2 waits in")), ElementsAre(2));
  ExpectUnharmed("lock", before);
}

TEST_F(EvidenceTest, ANativeRankThatSpinsIsNamed) {
  StartCluster();
  StartHanging("spin", {TestBinary("hang_program")}, 0, "spin");
  const v1::JobEvidence evidence = Collect("spin", "rank 0 runs in spin");
  EXPECT_THAT(CauseOf(evidence), ElementsAre(0));
}

TEST_F(EvidenceTest, WhenAllWaitInOneCallNoneIsNamed) {
  StartCluster();
  StartHanging("all", {TestBinary("hang_program")}, 0, "reduce");
  const v1::JobEvidence evidence = Collect("all", "cannot be known");
  EXPECT_THAT(CauseOf(evidence), IsEmpty());
  EXPECT_THAT(evidence.verdict(), HasSubstr("all 4 ranks wait in all_reduce"));
}

TEST_F(EvidenceTest, TheCommandShowsItToItsOwner) {
  StartCluster();
  StartHanging("shown", {TestBinary("hang_program")}, 3, "lock");
  Collect("shown", "rank 3 waits in");
  const CommandResult shown = Lockstep({"jobs", "stacks", "shown"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("rank 3 waits in"));
  EXPECT_THAT(shown.out, HasSubstr("ranks 0-2: waits"));
  const CommandResult one =
      Lockstep({"jobs", "stacks", "shown", "--rank", "3", "-o", "json"});
  EXPECT_EQ(one.code, 0) << one.err;
  const auto json = nlohmann::json::parse(one.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << one.out;
  ASSERT_EQ(json["ranks"].size(), 1u);
  EXPECT_EQ(json["ranks"][0]["rank"], 3);
  const CommandResult none =
      Lockstep({"jobs", "stacks", "shown", "--rank", "9"});
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.err, HasSubstr("has no rank 9"));
}

TEST_F(EvidenceTest, APythonRankThatHangsIsNamedByItsFunction) {
  const std::string py_spy = PySpy();
  if (py_spy.empty()) GTEST_SKIP() << "py-spy is not in PATH";
  for (const char* const worker : {"worker-0", "worker-1"}) {
    options_.extra_arguments[worker] = {"--py-spy", py_spy};
  }
  StartCluster();
  WriteFile(Path("train.py"), kPythonProgram);
  const std::vector<std::string> program = {"python3", Path("train.py")};
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
