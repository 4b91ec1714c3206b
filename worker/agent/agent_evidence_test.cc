// The worker daemon: what it answers about ranks, of real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>

#include "worker/agent/agent_fixture.h"

namespace lockstep::worker::agent {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class AgentEvidenceTest : public AgentTest {
 protected:
  AgentEvidenceTest() {
    const char* const bin = getenv("LOCKSTEP_BIN");
    config_.ranks.stack_tools = evidence::FindStackTools(
        "none", JoinPath(bin == nullptr ? "." : bin, "lockstep-shim"),
        "/usr/bin:/bin");
  }
  // All answers to it, once the last one is there.
  std::vector<EvidenceAnswer> Ask(EvidenceQuery query) {
    query.id = ++last_id_;
    query.job = "job";
    query.within = std::chrono::seconds(20);
    coordinator_.Send(query);
    EXPECT_TRUE(coordinator_.Eventually([&] {
      const auto& answers = coordinator_.evidence[query.id];
      return !answers.empty() && answers.back().last;
    }));
    return coordinator_.Locked([&] { return coordinator_.evidence[query.id]; });
  }
  static EvidenceQuery Of(Generation generation, std::vector<int32_t> ranks) {
    EvidenceQuery query;
    query.generation = generation;
    query.ranks = std::move(ranks);
    return query;
  }

  uint64_t last_id_ = 0;
};

TEST_F(AgentEvidenceTest, EachRankThatRunsIsDescribed) {
  Launch({"/bin/sh", "-c", "echo waits; exec sleep 1000"}, JobKind::kProgram,
         2);
  ASSERT_TRUE(AllAre(RankState::kStarted));
  EvidenceQuery query = Of(1, {});
  query.stacks = true;
  query.log_lines = 10;
  std::map<int32_t, RankEvidence> ranks;
  // A shell becomes sleep a moment after the start.
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
  do {
    ranks.clear();
    for (const EvidenceAnswer& answer : Ask(query)) {
      EXPECT_TRUE(answer.status.ok()) << answer.status;
      if (answer.evidence) ranks[answer.evidence->rank] = *answer.evidence;
    }
    ASSERT_EQ(ranks.size(), 2u);
  } while ((ranks[0].log_lines.empty() || ranks[1].log_lines.empty() ||
            ranks[0].processes.at(0).command != "sleep" ||
            ranks[1].processes.at(0).command != "sleep") &&
           MonotonicNow() < deadline);
  const GangStatus said = Reported();
  for (int32_t rank = 0; rank < 2; ++rank) {
    const RankEvidence& evidence = ranks[rank];
    EXPECT_EQ(evidence.node, "node-a");
    ASSERT_FALSE(evidence.processes.empty());
    const ProcessEvidence& process = evidence.processes[0];
    EXPECT_EQ(process.pid, said.ranks.at(static_cast<size_t>(rank)).pid);
    EXPECT_EQ(process.command, "sleep");
    EXPECT_EQ(process.stack_source, kNativeSource) << process.stack_error;
    EXPECT_THAT(process.threads.at(0).system_call, HasSubstr("nanosleep"));
    EXPECT_FALSE(process.threads[0].frames.empty());
    EXPECT_THAT(evidence.log_lines, Contains("waits"));
    // It is still there.
    EXPECT_EQ(kill(static_cast<pid_t>(process.pid), 0), 0);
  }
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  // What has ended has no evidence, and that is an answer.
  const auto after = Ask(query);
  ASSERT_EQ(after.size(), 1u);
  EXPECT_TRUE(after[0].status.ok());
  EXPECT_FALSE(after[0].evidence.has_value());
}

TEST_F(AgentEvidenceTest, OnlyTheRanksThatWereAskedFor) {
  Launch({"/bin/sh", "-c", "exec sleep 1000"}, JobKind::kProgram, 3);
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const auto answers = Ask(Of(1, {2, 7}));
  ASSERT_EQ(answers.size(), 2u);
  ASSERT_TRUE(answers[0].evidence.has_value());
  EXPECT_EQ(answers[0].evidence->rank, 2);
  // Without stacks none is read.
  EXPECT_EQ(answers[0].evidence->processes.at(0).stack_source, "");
  EXPECT_THAT(answers[0].evidence->log_lines, IsEmpty());
  // Of another generation none runs here.
  const auto other = Ask(Of(2, {}));
  ASSERT_EQ(other.size(), 1u);
  EXPECT_FALSE(other[0].evidence.has_value());
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

TEST_F(AgentEvidenceTest, WhatIsKeptOutlivesTheRanksAndTheDaemon) {
  const std::vector<std::string> program = {"/bin/sh", "-c",
                                            "echo waits; exec sleep 1000"};
  Launch(program, JobKind::kProgram, 2);
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const std::string file = dir_ + "/evidence/job.g1";
  EXPECT_FALSE(RealFileSystem()->Exists(file));
  Assignment order = Order(Goal::kGo, program, JobKind::kProgram, 2);
  order.evidence = 3;
  coordinator_.Send(order);
  ASSERT_TRUE(
      coordinator_.Eventually([&] { return Peek().evidence_done == 3; }));
  EXPECT_TRUE(RealFileSystem()->Exists(file)) << "before it says so";
  const GangStatus said = Reported();
  for (const RankStatus& rank : said.ranks) {
    EXPECT_EQ(kill(static_cast<pid_t>(rank.pid), 0), 0);
  }
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  StartAgain();
  EvidenceQuery query = Of(1, {});
  query.kept_uid = "uid";
  const auto answers = Ask(query);
  ASSERT_EQ(answers.size(), 3u);
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(answers[rank].evidence.has_value());
    const RankEvidence& evidence = *answers[rank].evidence;
    EXPECT_EQ(evidence.rank, static_cast<int32_t>(rank));
    ASSERT_FALSE(evidence.processes.empty());
    EXPECT_EQ(evidence.processes[0].pid, said.ranks[rank].pid);
    EXPECT_EQ(evidence.processes[0].stack_source, kNativeSource);
  }
  EXPECT_TRUE(answers[2].status.ok());
  query.ranks = {1};
  EXPECT_EQ(Ask(query).size(), 2u);
  query.kept_uid = "another job of that name";
  const auto none = Ask(query);
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0].status.code(), StatusCode::kNotFound);
}

TEST_F(AgentEvidenceTest, AFailureKeepsHowRanksEndedAndWhatTheOthersDid) {
  Launch({"/bin/sh", "-c",
          "[ $RANK = 1 ] && { echo no data; exit 3; }; exec sleep 1000"},
         JobKind::kProgram, 2);
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return Peek().ranks[1].exit.has_value(); }));
  Assignment stop = Order(Goal::kStop, {});
  stop.keep_evidence = true;
  coordinator_.Send(stop);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EvidenceQuery query = Of(1, {});
  query.kept_uid = "uid";
  std::vector<EvidenceAnswer> answers;
  // The disk may be slower than the stop.
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return RealFileSystem()->Exists(dir_ + "/evidence/job.g1"); }));
  answers = Ask(query);
  ASSERT_EQ(answers.size(), 3u);
  const RankEvidence& survivor = *answers[0].evidence;
  EXPECT_EQ(survivor.ended, "");
  ASSERT_FALSE(survivor.processes.empty());
  EXPECT_EQ(survivor.processes[0].pid, Reported().ranks[0].pid);
  EXPECT_EQ(survivor.processes[0].stack_source, "") << "there is no time";
  const RankEvidence& failed = *answers[1].evidence;
  EXPECT_EQ(failed.ended, "exit code 3");
  EXPECT_THAT(failed.processes, IsEmpty());
  EXPECT_THAT(failed.log_lines, Contains("no data"));
}

}  // namespace
}  // namespace lockstep::worker::agent
