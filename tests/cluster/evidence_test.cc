// What is known of ranks that hang, with real processes: the rank that the
// others wait for is named, and nothing of it is harmed.
#include <signal.h>

#include <nlohmann/json.hpp>

#include "tests/cluster/evidence_fixture.h"

namespace lockstep::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Property;

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
  EXPECT_THAT(evidence.verdict(), HasSubstr("(hang_program.cc:"));
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

TEST_F(EvidenceTest, AFailureKeepsWhatTheOthersDid) {
  options_.workers = 2;
  StartCluster();
  v1::JobSpec spec = Shell(
      "fails", kRanks,
      "touch " + Path("ready-$RANK") + "; [ $RANK = 1 ] || exec sleep 1000; " +
          "while [ $(ls -d " + Path("ready-*") + " | wc -l) != 4 ]; do " +
          "sleep 0.01; done; echo no data; exit 5");
  spec.set_restart_budget(0);
  Submit(spec);
  WaitEnd("fails", v1::JOB_STATE_FAILED);
  v1::JobEvidence kept;
  // The disk may be slower than the stop.
  ASSERT_TRUE(Eventually([&] {
    auto found = client()->KeptEvidence("fails", 0);
    if (!found.ok()) return false;
    kept = *std::move(found);
    return kept.ranks_size() == kRanks;
  })) << kept.DebugString();
  EXPECT_EQ(kept.trigger(), "RANK_EXIT");
  EXPECT_THAT(kept.verdict(), HasSubstr("exit code 5"));
  EXPECT_THAT(CauseOf(kept), ElementsAre(1));
  for (const v1::RankEvidence& rank : kept.ranks()) {
    if (rank.rank() == 1) {
      EXPECT_EQ(rank.ended(), "exit code 5");
      EXPECT_THAT(rank.log_lines(), Contains("no data"));
    } else {
      EXPECT_EQ(rank.ended(), "") << "it was looked at before the stop";
      ASSERT_GE(rank.processes_size(), 1);
    }
  }
  const CommandResult why = Lockstep({"jobs", "why", "fails"});
  EXPECT_EQ(why.code, 0) << why.err;
  EXPECT_THAT(why.out, HasSubstr("When attempt 1 failed"));
}

}  // namespace
}  // namespace lockstep::cli
