#include "server/service/judged_evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/service/evidence_message.h"

namespace lockstep::server {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const WallTime kCaptured = WallTime(seconds(1'000'000));

RankEvidence Reducing(int32_t rank) {
  ThreadEvidence thread;
  thread.id = 7;
  thread.state = "S";
  thread.main = true;
  thread.frames = {{.module = "train",
                    .function = "all_reduce",
                    .file = "train.py",
                    .line = 9}};
  ProcessEvidence process;
  process.pid = 7;
  process.state = "S";
  process.threads = {thread};
  RankEvidence evidence;
  evidence.rank = rank;
  evidence.node = "a";
  evidence.time = kCaptured;
  evidence.processes = {process};
  return evidence;
}

FoundRanks Found(Reason kept_for) {
  FoundRanks found;
  found.job = "j";
  found.generation = 1;
  found.ranks["a"] = {0, 1, 2};
  found.kept_for = kept_for;
  return found;
}

TEST(JudgedEvidenceTest, ARankThatLeftIsWhatTheOthersWaitFor) {
  FoundRanks found = Found(Reason::kNone);
  found.ranks["a"] = {0, 2};
  found.ended[1] = {"b", "exit code 0", kCaptured - seconds(100)};
  const JudgedEvidence judged = Judge(found, {Reducing(2), Reducing(0)});
  EXPECT_THAT(judged.verdict.cause, ElementsAre(1));
  EXPECT_EQ(judged.verdict.sentence,
            "rank 1 has ended (exit code 0); 2 ranks wait for it in "
            "all_reduce");
  const std::string json = EvidenceJson(found, judged, {}, kCaptured);
  EXPECT_THAT(json, HasSubstr("\"ended\": \"exit code 0\""));
  EXPECT_THAT(json, HasSubstr("\"trigger\": \"by hand\""));
}

TEST(JudgedEvidenceTest, RanksThatAreAwayAreMentionedFirst) {
  FoundRanks found = Found(Reason::kNone);
  found.ranks["a"] = {0, 2};
  found.note = "2 of 3 ranks train; rank 1 is away";
  const JudgedEvidence judged = Judge(found, {Reducing(0), Reducing(2)});
  EXPECT_THAT(
      judged.verdict.sentence,
      testing::StartsWith("2 of 3 ranks train; rank 1 is away; it cannot be"));
}

TEST(JudgedEvidenceTest, TwoThatLeftAreNamedTogether) {
  FoundRanks found = Found(Reason::kNone);
  found.ranks["a"] = {0};
  found.ended[1] = {"b", "exit code 0", kCaptured};
  found.ended[2] = {"b", "exit code 0", kCaptured};
  EXPECT_THAT(Judge(found, {Reducing(0)}).verdict.sentence,
              HasSubstr("ranks 1 and 2 have ended (exit code 0); 1 rank waits "
                        "for them"));
}

// Of an ended attempt all ranks have ended: most of them by its stop.
TEST(JudgedEvidenceTest, AnEndByTheStopOfTheAttemptIsNone) {
  FoundRanks found = Found(Reason::kStalled);
  for (int32_t rank = 0; rank < 3; ++rank) {
    found.ended[rank] = {"a", "killed by SIGTERM", kCaptured + seconds(1)};
  }
  const JudgedEvidence missing = Judge(found, {Reducing(0), Reducing(2)});
  EXPECT_THAT(missing.verdict.cause, IsEmpty());
  EXPECT_THAT(missing.verdict.sentence,
              HasSubstr("cannot be known, because rank 1 could not be read"));
  found.ended[1] = {"a", "exit code 0", kCaptured - seconds(20)};
  EXPECT_THAT(Judge(found, {Reducing(0), Reducing(2)}).verdict.cause,
              ElementsAre(1));
  // Nothing is kept: then their ends tell nothing about a stall.
  EXPECT_THAT(Judge(found, {}).verdict.cause, IsEmpty());
}

}  // namespace
}  // namespace lockstep::server
