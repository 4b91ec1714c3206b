// The pure parts: names, manifest, votes, lineage, retention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/vote.h"

namespace lockstep::worker::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Manifest SomeManifest() {
  Manifest manifest;
  manifest.job = "mnist";
  manifest.generation = 7;
  manifest.step = 120;
  manifest.id = 3;
  manifest.cursor = {2, 7680};
  manifest.world_size = 2;
  manifest.state_hash = 0xfedcba9876543210u;
  manifest.lineage = {{1, 0}, {7, 100}};
  manifest.metadata = {{"model_signature", "cnn\n\"2\" äöü"}, {"seed", "42"}};
  manifest.written = "2026-01-31T12:00:00.123Z";
  manifest.shards = {{2 * kBlockBytes + 5, 0x01020304, {1, 2, 0xffffffff}},
                     {0, 0, {}}};
  return manifest;
}

Vote SomeVote(uint32_t rank, uint32_t world_size = 2) {
  Vote vote;
  vote.attempt = {7, 120, 3};
  vote.rank = rank;
  vote.world_size = world_size;
  vote.cursor = {1, 64};
  vote.state_hash = 0xabcdu;
  vote.shard = {100, 0xdeadbeef, {0xdeadbeef}};
  return vote;
}

TEST(LayoutTest, NamesRoundTrip) {
  EXPECT_EQ(CheckpointName({7, 120}), "step-000000120.g7");
  EXPECT_EQ(StagingName({7, 120, 3}), ".tmp-000000120.g7.3");
  EXPECT_EQ(ShardName(1, 4), "shard-00001-of-00004");
  EXPECT_EQ(ParseCheckpointName("step-000000120.g7"), (CheckpointKey{7, 120}));
  EXPECT_EQ(ParseStagingName(".tmp-000000120.g7.3"), (AttemptKey{7, 120, 3}));
  const CheckpointKey large{UINT64_MAX, kMaxStep};
  EXPECT_EQ(ParseCheckpointName(CheckpointName(large)), large);
}

TEST(LayoutTest, RefusesNamesItDoesNotMake) {
  for (const char* name :
       {"", "step-", "step-120.g7", "step-000000120", "step-000000120.g",
        "step-000000120.g07", "step-000000120.g7x", "step--00000120.g7",
        "step-+00000120.g7", ".bad-step-000000120.g7", "step-000000120.g-7",
        "step-9999999999999999.g1", "step-99999999999999999999.g1"}) {
    EXPECT_FALSE(ParseCheckpointName(name).has_value()) << name;
  }
  EXPECT_FALSE(ParseStagingName(".tmp-000000120.g7").has_value());
  EXPECT_FALSE(ParseStagingName(".tmp-000000120.g7.").has_value());
}

TEST(LayoutTest, SplitsPaths) {
  EXPECT_EQ(BaseName("/a/b//"), "b");
  EXPECT_EQ(BaseName("b"), "b");
  EXPECT_EQ(ParentDir("/a/b/"), "/a");
  EXPECT_EQ(ParentDir("/a"), "/");
  EXPECT_EQ(ParentDir("/"), "/");
  EXPECT_EQ(ParentDir("a"), ".");
}

TEST(ManifestTest, RoundTrips) {
  const Manifest manifest = SomeManifest();
  const auto text = EncodeManifest(manifest);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto decoded = DecodeManifest(*text);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, manifest);
}

TEST(ManifestTest, EveryFlippedBitIsFound) {
  const std::string text = EncodeManifest(SomeManifest()).value();
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(DecodeManifest(damaged).ok()) << "bit " << bit;
  }
}

TEST(ManifestTest, EveryTruncationIsFound) {
  const std::string text = EncodeManifest(SomeManifest()).value();
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_FALSE(DecodeManifest(text.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(DecodeManifest(text + "\n").ok());
  EXPECT_THAT(Message(DecodeManifest("").status()), HasSubstr("empty"));
}

TEST(ManifestTest, RefusesWhatDoesNotFitTogether) {
  Manifest manifest = SomeManifest();
  manifest.shards.pop_back();
  EXPECT_FALSE(EncodeManifest(manifest).ok());
  manifest = SomeManifest();
  manifest.world_size = 0;
  manifest.shards.clear();
  EXPECT_FALSE(EncodeManifest(manifest).ok());
  manifest = SomeManifest();
  manifest.step = -1;
  EXPECT_FALSE(EncodeManifest(manifest).ok());
  manifest = SomeManifest();
  manifest.metadata["rng"] = "\xff\xfe";
  EXPECT_THAT(Message(EncodeManifest(manifest).status()), HasSubstr("UTF-8"));
  // A wrong number of block checksums, under a right seal.
  manifest = SomeManifest();
  manifest.shards[0].blocks.pop_back();
  EXPECT_FALSE(DecodeManifest(EncodeManifest(manifest).value()).ok());
}

TEST(ManifestTest, RandomBytesNeverDecode) {
  std::mt19937 random(7);
  const std::string text = EncodeManifest(SomeManifest()).value();
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = i % 2 ? text : std::string(random() % 300, '\0');
    const size_t from = bytes.empty() ? 0 : random() % bytes.size();
    for (size_t at = from; at < std::min(bytes.size(), from + 40); ++at) {
      bytes[at] = static_cast<char>(random());
    }
    if (bytes == text) continue;
    ASSERT_FALSE(DecodeManifest(bytes).ok());
    ASSERT_FALSE(DecodeVote(bytes).ok());
  }
}

TEST(LineageTest, ACheckpointDiesWhenALaterGenerationBeganBeforeIt) {
  const std::vector<LineageEntry> lineage = {{6, 0}, {7, 50}, {8, 120}};
  EXPECT_TRUE(IsOnLineage(lineage, {7, 100}));
  EXPECT_TRUE(IsOnLineage(lineage, {7, 120}));
  EXPECT_FALSE(IsOnLineage(lineage, {7, 130}));
  EXPECT_TRUE(IsOnLineage(lineage, {8, 130}));
  EXPECT_TRUE(IsOnLineage(lineage, {8, 120}));
  EXPECT_FALSE(IsOnLineage(lineage, {8, 110}));
  EXPECT_FALSE(IsOnLineage(lineage, {7, 40}));
  EXPECT_FALSE(IsOnLineage(lineage, {5, 10}));
  EXPECT_FALSE(IsOnLineage(lineage, {9, 130}));
  EXPECT_FALSE(IsOnLineage({}, {1, 1}));
}

TEST(LineageTest, AGenerationThatDidNotSayWhereItBeganKillsNothing) {
  const std::vector<LineageEntry> lineage = {
      {6, 0}, {7, LineageEntry::kNotSaid}, {8, LineageEntry::kNotSaid}};
  EXPECT_TRUE(IsOnLineage(lineage, {6, 130}));
  EXPECT_TRUE(IsOnLineage(lineage, {7, 110}));
  EXPECT_TRUE(IsOnLineage(lineage, {8, 120}));
  EXPECT_FALSE(IsOnLineage(lineage, {5, 130}));
}

TEST(LineageTest, EveryLaterGenerationCounts) {
  // g9 went back to step 100, before g8 began.
  const std::vector<LineageEntry> lineage = {{9, 100}, {7, 0}, {8, 120}};
  EXPECT_TRUE(IsOnLineage(lineage, {7, 100}));
  EXPECT_FALSE(IsOnLineage(lineage, {7, 110}));
  EXPECT_FALSE(IsOnLineage(lineage, {8, 130}));
  EXPECT_TRUE(IsOnLineage(lineage, {9, 101}));
}

TEST(VoteTest, RoundTripsAndFindsEveryFlippedBit) {
  const Vote vote = SomeVote(1);
  const std::string text = EncodeVote(vote);
  EXPECT_EQ(DecodeVote(text).value(), vote);
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(DecodeVote(damaged).ok()) << "bit " << bit;
  }
}

TEST(VoteTest, AllMustVoteForTheSameAttempt) {
  const AttemptKey attempt{7, 120, 3};
  std::vector<Vote> votes = {SomeVote(1), SomeVote(0)};
  EXPECT_TRUE(CheckVotes(attempt, 2, votes).ok());
  EXPECT_THAT(Message(CheckVotes(attempt, 2, std::vector{votes[0]})),
              HasSubstr("the votes of rank 0 are missing"));
  EXPECT_FALSE(CheckVotes(attempt, 1, votes).ok());
  EXPECT_FALSE(CheckVotes({8, 120, 3}, 2, votes).ok());
  EXPECT_FALSE(CheckVotes({7, 121, 3}, 2, votes).ok());
  EXPECT_FALSE(CheckVotes({7, 120, 4}, 2, votes).ok());
  EXPECT_FALSE(CheckVotes(attempt, 0, {}).ok());
  votes[1].rank = 1;
  EXPECT_THAT(Message(CheckVotes(attempt, 2, votes)), HasSubstr("twice"));
  votes[1] = SomeVote(0);
  votes[1].cursor.position = 65;
  EXPECT_THAT(Message(CheckVotes(attempt, 2, votes)), HasSubstr("position 65"));
}

TEST(VoteTest, TheRankThatDiffersIsNamed) {
  std::vector<Vote> votes;
  for (uint32_t rank = 0; rank < 4; ++rank) votes.push_back(SomeVote(rank, 4));
  votes[2].state_hash ^= 1;
  const Status status = CheckVotes({7, 120, 3}, 4, votes);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("rank 2 of 4"));
  // Two against two: rank 0's side is believed.
  votes[3].state_hash ^= 1;
  EXPECT_THAT(Message(CheckVotes({7, 120, 3}, 4, votes)),
              HasSubstr("ranks 2 and 3 of 4"));
}

class RetentionTest : public testing::Test {
 protected:
  std::vector<int64_t> Steps(const std::vector<RetentionCandidate>& all) {
    std::vector<int64_t> steps;
    for (const auto& key : ChooseDeletions(all, lineage_, policy_)) {
      steps.push_back(key.step);
    }
    return steps;
  }
  static std::vector<RetentionCandidate> Verified(std::vector<int64_t> steps,
                                                  uint64_t generation = 1) {
    std::vector<RetentionCandidate> all;
    for (int64_t step : steps) all.push_back({{generation, step}, true});
    return all;
  }
  std::vector<LineageEntry> lineage_ = {{1, 0}};
  RetentionPolicy policy_;
};

TEST_F(RetentionTest, KeepsTheLastThree) {
  EXPECT_THAT(Steps(Verified({30, 10, 50, 20, 40})), ElementsAre(10, 20));
  EXPECT_THAT(Steps(Verified({10, 20, 30})), IsEmpty());
  EXPECT_THAT(Steps({}), IsEmpty());
}

TEST_F(RetentionTest, KeepsEveryNthAndPinned) {
  policy_.keep_last = 1;
  policy_.keep_every_steps = 20;
  policy_.pinned = {{1, 10}};
  EXPECT_THAT(Steps(Verified({10, 20, 30, 40, 50})), ElementsAre(30));
}

TEST_F(RetentionTest, NeverTheLastValidOne) {
  for (int keep : {0, -5, 1}) {
    policy_.keep_last = keep;
    EXPECT_THAT(Steps(Verified({10})), IsEmpty());
    EXPECT_THAT(Steps(Verified({10, 20})), ElementsAre(10));
  }
}

TEST_F(RetentionTest, AnUnverifiedOneDoesNotCountAsKept) {
  policy_.keep_last = 1;
  std::vector<RetentionCandidate> all = Verified({10, 20});
  all.push_back({{1, 30}, false});
  EXPECT_THAT(Steps(all), ElementsAre(10));
  // Older than what is kept, it goes like any other.
  all = Verified({20});
  all.push_back({{1, 10}, false});
  EXPECT_THAT(Steps(all), ElementsAre(10));
  // With nothing verified nothing goes.
  EXPECT_THAT(Steps({{{1, 10}, false}, {{1, 20}, false}}), IsEmpty());
}

TEST_F(RetentionTest, WhatIsNewerThanWhatWasResumedFromStays) {
  policy_.keep_last = 2;
  lineage_ = {{1, 0}, {2, 20}};
  std::vector<RetentionCandidate> all = Verified({10, 20, 30});
  all.push_back({{2, 25}, true});
  all.push_back({{3, 22}, true});
  // g1@20 and g2@25 are the last two on the lineage. g2 went back behind g1@30,
  // and g3 is not ours to judge.
  EXPECT_THAT(Steps(all), ElementsAre(10));
  // Only dead ones left: they stay.
  EXPECT_THAT(Steps(Verified({30, 40})), IsEmpty());
}

}  // namespace
}  // namespace lockstep::worker::checkpoint
