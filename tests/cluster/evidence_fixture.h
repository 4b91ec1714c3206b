// Jobs whose ranks hang, and what is known of them.
#ifndef LOCKSTEP_TESTS_CLUSTER_EVIDENCE_FIXTURE_H_
#define LOCKSTEP_TESTS_CLUSTER_EVIDENCE_FIXTURE_H_

#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/cluster/fixture.h"

namespace lockstep::cli {

class EvidenceTest : public ClusterTest {
 protected:
  static constexpr int kRanks = 4;

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

}  // namespace lockstep::cli

#endif  // LOCKSTEP_TESTS_CLUSTER_EVIDENCE_FIXTURE_H_
