#include "worker/checkpoint/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "worker/checkpoint/checkpoint_test_util.h"
#include "worker/checkpoint/memory_file_system.h"

namespace lockstep::worker::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kRoot[] = "/checkpoints";

class ReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(TakeOver(&fs_, kRoot, kTestJob, 1).ok());
    for (int64_t step : {100, 200, 300}) {
      ASSERT_TRUE(TestCheckpoint(&fs_, kRoot, {1, step, 1}).ok());
    }
  }
  static std::string PathOf(int64_t step, const std::string& file) {
    return JoinPath(JoinPath(kRoot, CheckpointName({1, step})), file);
  }
  std::string Contents(const std::string& path) {
    return fs_.Read(path, 1 << 20).value();
  }
  void Overwrite(const std::string& path, const std::string& data) {
    auto file = fs_.Create(path, 0644).value();
    ASSERT_TRUE(file->Append(data).ok());
  }
  // The newest is damaged: 200 restores, the damaged one is kept and the
  // reason names `file`.
  void ExpectFallsBack(const std::string& file) {
    std::vector<Damaged> damaged;
    EXPECT_EQ(TestRestore(&fs_, kRoot, 1, &damaged).value(), 200);
    ASSERT_EQ(damaged.size(), 1u);
    EXPECT_EQ(damaged[0].name, "step-000000300.g1");
    EXPECT_EQ(damaged[0].kept_as, ".bad-step-000000300.g1");
    EXPECT_THAT(damaged[0].reason, HasSubstr(file));
    EXPECT_TRUE(fs_.Exists(JoinPath(kRoot, damaged[0].kept_as)));
  }
  MemoryFileSystem fs_;
};

TEST_F(ReaderTest, RestoresTheNewestBitEqual) {
  std::vector<Damaged> damaged;
  EXPECT_EQ(TestRestore(&fs_, kRoot, 1, &damaged).value(), 300);
  EXPECT_THAT(damaged, IsEmpty());
  const auto open =
      Checkpoint::Open(&fs_, JoinPath(kRoot, "step-000000300.g1/"));
  ASSERT_TRUE(open.ok()) << open.status();
  const Manifest& manifest = open->manifest();
  EXPECT_EQ(manifest.cursor, (Cursor{1, 300 * 64}));
  EXPECT_EQ(manifest.state_hash, StateHash(TestState(300).Views()));
  EXPECT_EQ(manifest.metadata.at("model_signature"), "mlp 784-128-10");
  EXPECT_FALSE(open->ReadShard(2).ok());
  EXPECT_EQ(Contents(JoinPath(kRoot, kLatestName)), "step-000000300.g1\n");
  EXPECT_THAT(
      fs_.List(JoinPath(kRoot, "step-000000300.g1")).value(),
      ElementsAre("MANIFEST", "shard-00000-of-00002", "shard-00001-of-00002"));
}

TEST_F(ReaderTest, NoCheckpointIsNoError) {
  const auto none =
      FindNewest(&fs_, "/nowhere", kTestJob, OnTestLineage(TestLineage(1)));
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->newest.has_value());
}

TEST_F(ReaderTest, EachOfManyFlippedBitsIsFound) {
  std::mt19937 random(11);
  for (int i = 0; i < 1000; ++i) {
    const char* const files[] = {"MANIFEST", "shard-00000-of-00002",
                                 "shard-00001-of-00002"};
    const std::string path = PathOf(300, files[random() % 3]);
    const std::string good = Contents(path);
    const size_t bit = random() % (good.size() * 8);
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    Overwrite(path, bad);
    const auto open = Checkpoint::Open(&fs_, PathOf(300, ""));
    EXPECT_FALSE(open.ok() && open->Verify().ok()) << path << " bit " << bit;
    if (open.ok()) {
      EXPECT_FALSE(open->ReadShard(0).ok() && open->ReadShard(1).ok());
    }
    Overwrite(path, good);
  }
  EXPECT_EQ(TestRestore(&fs_, kRoot, 1).value(), 300);
}

// Any single fault of the newest: found before use, the older one restores,
// the reason names the file, and the damaged one is kept.
TEST(DamageTest, AThousandSingleFaultsFallBack) {
  std::mt19937 random(20);
  for (int i = 0; i < 1000; ++i) {
    MemoryFileSystem fs;
    ASSERT_TRUE(TakeOver(&fs, kRoot, kTestJob, 1).ok());
    for (int64_t step : {100, 200, 300}) {
      ASSERT_TRUE(TestCheckpoint(&fs, kRoot, {1, step, 1}).ok());
    }
    const auto path_of = [](int64_t step, const std::string& file) {
      return JoinPath(JoinPath(kRoot, CheckpointName({1, step})), file);
    };
    const auto write = [&fs](const std::string& path, const std::string& data) {
      ASSERT_TRUE(fs.Create(path, 0644).value()->Append(data).ok());
    };
    const char* const files[] = {"MANIFEST", "shard-00000-of-00002",
                                 "shard-00001-of-00002"};
    const std::string file = files[random() % 3];
    const std::string path = path_of(300, file);
    std::string data = fs.Read(path, 1 << 20).value();
    const unsigned kind = random() % 6;
    SCOPED_TRACE(fmt::format("fault {} of kind {} in {}", i, kind, file));
    if (kind <= 1) {
      const size_t bit = random() % (data.size() * 8);
      data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
      write(path, data);
    } else if (kind == 2) {
      write(path, data.substr(0, random() % data.size()));
    } else if (kind == 3) {
      ASSERT_TRUE(fs.Remove(path).ok());
    } else if (kind == 4) {
      // Of another step, which has it from here.
      const std::string other = path_of(100, file);
      const std::string of_100 = fs.Read(other, 1 << 20).value();
      write(path, of_100);
      write(other, data);
    } else {
      write(path, "");
    }
    std::vector<Damaged> damaged;
    ASSERT_EQ(TestRestore(&fs, kRoot, 1, &damaged).value(), 200);
    ASSERT_EQ(damaged.size(), 1u);
    EXPECT_THAT(damaged[0].reason, HasSubstr(file));
    EXPECT_EQ(damaged[0].kept_as, ".bad-step-000000300.g1");
    EXPECT_TRUE(fs.Exists(JoinPath(kRoot, damaged[0].kept_as)));
    EXPECT_EQ(fs.Exists(JoinPath(JoinPath(kRoot, damaged[0].kept_as), file)),
              kind != 3);
  }
}

TEST_F(ReaderTest, AFlippedBitFallsBackAndSaysWhere) {
  const std::string path = PathOf(300, "shard-00000-of-00002");
  std::string data = Contents(path);
  data[data.size() - 1] ^= 1;
  Overwrite(path, data);
  ExpectFallsBack("shard-00000-of-00002: bytes 0 to");
}

TEST_F(ReaderTest, ATruncatedShardFallsBack) {
  const std::string path = PathOf(300, "shard-00001-of-00002");
  Overwrite(path, Contents(path).substr(1));
  ExpectFallsBack("shard-00001-of-00002");
}

TEST_F(ReaderTest, AMissingShardFallsBack) {
  ASSERT_TRUE(fs_.Remove(PathOf(300, "shard-00001-of-00002")).ok());
  ExpectFallsBack("shard-00001-of-00002");
}

TEST_F(ReaderTest, AnEmptyOrMissingManifestFallsBack) {
  Overwrite(PathOf(300, "MANIFEST"), "");
  ExpectFallsBack("MANIFEST is empty");
  // The name is taken by now: the next damaged one gets another.
  ASSERT_TRUE(TestCheckpoint(&fs_, kRoot, {1, 300, 2}).ok());
  ASSERT_TRUE(fs_.Remove(PathOf(300, "MANIFEST")).ok());
  std::vector<Damaged> damaged;
  EXPECT_EQ(TestRestore(&fs_, kRoot, 1, &damaged).value(), 200);
  ASSERT_EQ(damaged.size(), 1u);
  EXPECT_EQ(damaged[0].kept_as, ".bad-step-000000300.g1.2");
}

TEST_F(ReaderTest, ShardsOfAnotherStepAreFound) {
  // Same size, right CRC in its own manifest.
  const std::string a = PathOf(300, "shard-00000-of-00002");
  const std::string b = PathOf(100, "shard-00000-of-00002");
  const std::string of_300 = Contents(a);
  Overwrite(a, Contents(b));
  Overwrite(b, of_300);
  ExpectFallsBack("shard-00000-of-00002");
}

TEST_F(ReaderTest, AManifestOfAnotherStepIsFound) {
  Overwrite(PathOf(300, "MANIFEST"), Contents(PathOf(100, "MANIFEST")));
  ExpectFallsBack("MANIFEST is the manifest of step-000000100.g1");
}

TEST_F(ReaderTest, AWholeShardUnderAWrongRankIsFound) {
  // As if the manifest itself had been made over swapped files: every CRC is
  // right, only the shard knows whose it is.
  const std::string path = PathOf(300, "MANIFEST");
  Manifest manifest = DecodeManifest(Contents(path)).value();
  std::swap(manifest.shards[0], manifest.shards[1]);
  Overwrite(path, EncodeManifest(manifest).value());
  const std::string a = PathOf(300, "shard-00000-of-00002");
  const std::string b = PathOf(300, "shard-00001-of-00002");
  const std::string of_0 = Contents(a);
  Overwrite(a, Contents(b));
  Overwrite(b, of_0);
  const auto open = Checkpoint::Open(&fs_, PathOf(300, ""));
  ASSERT_TRUE(open.ok() && open->Verify().ok());
  EXPECT_THAT(Message(open->ReadShard(0).status()),
              HasSubstr("not the shard of rank 0 at step 300"));
}

TEST_F(ReaderTest, AllDamagedMeansNoneAndEachIsNamed) {
  for (int64_t step : {100, 200, 300}) {
    Overwrite(PathOf(step, "MANIFEST"), "x");
  }
  std::vector<Damaged> damaged;
  EXPECT_EQ(TestRestore(&fs_, kRoot, 1, &damaged).value(), -1);
  EXPECT_EQ(damaged.size(), 3u);
}

TEST_F(ReaderTest, DeadCheckpointsAreNeverRestored) {
  ASSERT_TRUE(TestCheckpoint(&fs_, kRoot, {2, 250, 1}).ok());
  const auto newest = [&](std::vector<LineageEntry> lineage) {
    auto found =
        FindNewest(&fs_, kRoot, kTestJob, OnTestLineage(std::move(lineage)))
            .value();
    return found.newest ? found.newest->manifest().step : -1;
  };
  EXPECT_EQ(newest({{1, 0}, {2, 200}}), 250);
  EXPECT_EQ(newest({{1, 0}, {3, 200}}), 200);
  EXPECT_EQ(newest({{1, 0}, {3, 150}}), 100);
  EXPECT_EQ(newest({{3, 0}}), -1);
  EXPECT_TRUE(fs_.Exists(PathOf(300, "MANIFEST"))) << "dead is not damaged";
}

TEST_F(ReaderTest, AnotherJobsCheckpointIsNotOurs) {
  const auto found =
      FindNewest(&fs_, kRoot, "other", OnTestLineage(TestLineage(1)));
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->newest.has_value());
  EXPECT_THAT(found->damaged, IsEmpty());
}

TEST_F(ReaderTest, AFirstGenerationSetsAsideWhatItFinds) {
  const auto kept = TakeOver(&fs_, kRoot, kTestJob, 1);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(*kept,
              ElementsAre(".old-step-000000100.g1", ".old-step-000000200.g1",
                          ".old-step-000000300.g1"));
  EXPECT_EQ(TestRestore(&fs_, kRoot, 1).value(), -1);
  ASSERT_TRUE(TestCheckpoint(&fs_, kRoot, {1, 100, 1}).ok());
  EXPECT_EQ(TakeOver(&fs_, kRoot, "other", 5)->size(), 1u);
  // The job that lost its directory is told so.
  const Status lost = TakeOver(&fs_, kRoot, "other", 4).status();
  EXPECT_THAT(Message(lost), HasSubstr("generation 5 has taken over"));
  EXPECT_THAT(
      Message(TestCheckpoint(&fs_, kRoot, {1, 200, 1}).status()),
      HasSubstr("job other uses /checkpoints: job mnist needs another"));
}

TEST_F(ReaderTest, ACutOffChiefNeitherPublishesNorDeletes) {
  ASSERT_TRUE(TakeOver(&fs_, kRoot, kTestJob, 2).ok());
  const Status late = TestCheckpoint(&fs_, kRoot, {1, 400, 1}).status();
  EXPECT_EQ(late.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(late), HasSubstr("generation 1 is over"));
  EXPECT_FALSE(fs_.Exists(PathOf(400, "")));
  RetentionPolicy policy;
  policy.keep_last = 1;
  EXPECT_FALSE(ApplyRetention(&fs_, kRoot, kTestJob, 1, TestLineage(1),
                              {{1, 300}}, policy)
                   .ok());
  EXPECT_TRUE(fs_.Exists(PathOf(100, "MANIFEST")));
}

TEST_F(ReaderTest, SweepLeavesWhatIsNotItsOwnToRemove) {
  for (const char* name : {".tmp-000000400.g1.1", ".tmp-000000400.g2.1",
                           ".tmp-000000400.g3.1", ".trash-step-000000050.g1",
                           ".bad-step-000000060.g1", ".tmp-mine", "notes"}) {
    ASSERT_TRUE(
        fs_.MakeDirs(JoinPath(JoinPath(kRoot, name), "rank-0"), 0755).ok());
  }
  ASSERT_TRUE(Sweep(&fs_, kRoot, 2, AttemptKey{2, 400, 1}).ok());
  EXPECT_THAT(fs_.List(kRoot).value(),
              ElementsAre(".bad-step-000000060.g1", ".tmp-000000400.g2.1",
                          ".tmp-000000400.g3.1", ".tmp-mine", "FENCE", "LATEST",
                          "notes", "step-000000100.g1", "step-000000200.g1",
                          "step-000000300.g1"));
}

TEST(ReadErrorTest, AnErrorThatIsNoDamageIsReturned) {
  FileSystem* const fs = RealFileSystem();
  const TempDir temp;
  ASSERT_TRUE(TestCheckpoint(fs, temp.path(), {1, 100, 1}).ok());
  const auto path = TestCheckpoint(fs, temp.path(), {1, 200, 1}).value();
  ASSERT_EQ(::chmod(JoinPath(path, kManifestName).c_str(), 0), 0);
  const AsNobody nobody;
  const auto found =
      FindNewest(fs, temp.path(), kTestJob, OnTestLineage(TestLineage(1)));
  EXPECT_EQ(found.status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(fs->Exists(path));
}

TEST(PublishTest, VotesAreCheckedAgainstTheDisk) {
  MemoryFileSystem fs;
  const AttemptKey attempt{1, 100, 1};
  const TestState state(100);
  std::vector<Vote> votes;
  for (uint32_t rank : {0u, 1u}) {
    votes.push_back(TestWriteRank(&fs, kRoot, attempt, rank, 2, state).value());
  }
  EXPECT_EQ(CollectVotes(&fs, kRoot, attempt, 2), votes);
  EXPECT_TRUE(CollectVotes(&fs, kRoot, {1, 100, 2}, 2).empty());
  votes[1].shard.size += 1;
  const Status status =
      Publish(&fs, kRoot, TestPublishRequest(attempt, 2), votes, nullptr)
          .status();
  EXPECT_THAT(Message(status), HasSubstr("with every host"));
  EXPECT_TRUE(fs.List(kRoot)->empty()) << "the attempt is discarded";
}

TEST(PublishTest, ARankThatDriftedIsNamedAndNothingIsPublished) {
  MemoryFileSystem fs;
  const AttemptKey attempt{1, 100, 1};
  std::vector<Vote> votes;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const TestState state(rank == 1 ? 99 : 100);
    votes.push_back(TestWriteRank(&fs, kRoot, attempt, rank, 3, state).value());
  }
  const Status status =
      Publish(&fs, kRoot, TestPublishRequest(attempt, 3), votes, nullptr)
          .status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("rank 1 of 3"));
  EXPECT_TRUE(ListCheckpoints(&fs, kRoot)->empty());
}

TEST(PublishTest, ASecondTryAtTheSameCheckpointSucceeds) {
  MemoryFileSystem fs;
  const auto first = TestCheckpoint(&fs, kRoot, {1, 100, 1});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(TestCheckpoint(&fs, kRoot, {1, 100, 2}).value(), *first);
  EXPECT_THAT(fs.List(kRoot).value(),
              ElementsAre(kLatestName, "step-000000100.g1"));
}

TEST(PublishTest, ManyBlocksRoundTrip) {
  FileSystem* const fs = RealFileSystem();
  const TempDir temp;
  // 12.5 MB: three blocks, the last one partial.
  const TestState state(7, 2'500'000);
  const AttemptKey attempt{1, 7, 1};
  const std::vector<Vote> votes = {
      TestWriteRank(fs, temp.path(), attempt, 0, 1, state).value()};
  EXPECT_EQ(votes[0].shard.blocks.size(), 3u);
  const auto path =
      Publish(fs, temp.path(), TestPublishRequest(attempt, 1), votes, nullptr);
  ASSERT_TRUE(path.ok()) << path.status();
  const auto open = Checkpoint::Open(fs, *path);
  ASSERT_TRUE(open.ok());
  EXPECT_TRUE(state.Equals(open->ReadShard(0).value()));
}

}  // namespace
}  // namespace lockstep::worker::checkpoint
