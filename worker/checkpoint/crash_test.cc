// A checkpoint that is interrupted anywhere: by a crash of the process at each
// fault point, by power loss after each operation on the disk, by an error of
// each operation. The older one always restores, leftovers go, the next works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "common/base/fault_point.h"
#include "worker/checkpoint/checkpoint_test_util.h"
#include "worker/checkpoint/memory_file_system.h"

namespace lockstep::worker::checkpoint {
namespace {

using testing::HasSubstr;

constexpr AttemptKey kFirst{1, 100, 1};
constexpr AttemptKey kSecond{1, 200, 2};
constexpr AttemptKey kThird{2, 300, 1};

// What lies in `root` apart from complete checkpoints and the two hints.
std::vector<std::string> Leftovers(FileSystem* fs, const std::string& root) {
  std::vector<std::string> left;
  const std::vector<std::string> names = fs->List(root).value();
  for (const std::string& name : names) {
    if (!ParseCheckpointName(name) && name != kLatestName &&
        name != kFenceName) {
      left.push_back(name);
    }
  }
  return left;
}

// After the interruption: generation 2 takes over, restores 100 or 200,
// nothing is damaged, nothing is left over, and the next checkpoint works.
void ExpectRecovers(FileSystem* fs, const std::string& root,
                    const std::set<int64_t>& allowed) {
  const auto kept = TakeOver(fs, root, kTestJob, 2);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_TRUE(kept->empty());
  std::vector<Damaged> damaged;
  const auto step = TestRestore(fs, root, 2, &damaged);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_TRUE(allowed.contains(*step)) << *step;
  EXPECT_TRUE(damaged.empty()) << damaged.front().reason;
  EXPECT_TRUE(Leftovers(fs, root).empty()) << Leftovers(fs, root).front();
  const auto next = TestCheckpoint(fs, root, kThird);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(TestRestore(fs, root, 2).value(), 300);
}

// Runs `body` in a child that dies at `fault`; returns its exit code.
template <typename Body>
int ExitCodeOfCrash(const std::string& fault, Body body, int time = 1) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!EnableFaults(fmt::format("{}=crash@{}", fault, time)).ok()) {
      ::_exit(2);
    }
    body();
    ::_exit(0);
  }
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

class CrashTest : public testing::TestWithParam<const char*> {};

TEST_P(CrashTest, TheOlderOneRestoresAndTheNextWorks) {
  FileSystem* const fs = RealFileSystem();
  const TempDir temp;
  const std::string root = JoinPath(temp.path(), "out/checkpoints");
  ASSERT_TRUE(TakeOver(fs, root, kTestJob, 1).ok());
  ASSERT_TRUE(TestCheckpoint(fs, root, kFirst).ok());
  const std::string fault = GetParam();
  ASSERT_EQ(
      ExitCodeOfCrash(
          fault,
          [&] { TestCheckpoint(fs, root, kSecond).status().IgnoreError(); }),
      kFaultExitCode)
      << "control never passes " << fault;
  const bool visible = fault == "checkpoint.publish.renamed" ||
                       fault == "checkpoint.publish.durable" ||
                       fault == "checkpoint.publish.latest";
  ExpectRecovers(fs, root, {visible ? 200 : 100});
}

// Rank 1's part: the chief's is durable by then.
class OtherRankCrashTest : public testing::TestWithParam<const char*> {};

TEST_P(OtherRankCrashTest, TheOlderOneRestoresAndTheNextWorks) {
  FileSystem* const fs = RealFileSystem();
  const TempDir temp;
  const std::string root = JoinPath(temp.path(), "out/checkpoints");
  ASSERT_TRUE(TakeOver(fs, root, kTestJob, 1).ok());
  ASSERT_TRUE(TestCheckpoint(fs, root, kFirst).ok());
  ASSERT_EQ(
      ExitCodeOfCrash(
          GetParam(),
          [&] { TestCheckpoint(fs, root, kSecond).status().IgnoreError(); }, 2),
      kFaultExitCode);
  EXPECT_FALSE(Leftovers(fs, root).empty());
  ExpectRecovers(fs, root, {100});
}

INSTANTIATE_TEST_SUITE_P(All, OtherRankCrashTest,
                         testing::ValuesIn(kRankFaultPoints));
INSTANTIATE_TEST_SUITE_P(Rank, CrashTest, testing::ValuesIn(kRankFaultPoints));
INSTANTIATE_TEST_SUITE_P(Chief, CrashTest,
                         testing::ValuesIn(kChiefFaultPoints));

class CleanupCrashTest : public testing::TestWithParam<const char*> {};

TEST_P(CleanupCrashTest, RetentionNeverLosesTheNewest) {
  FileSystem* const fs = RealFileSystem();
  const TempDir temp;
  const std::string& root = temp.path();
  ASSERT_TRUE(TakeOver(fs, root, kTestJob, 1).ok());
  ASSERT_TRUE(TestCheckpoint(fs, root, kFirst).ok());
  ASSERT_TRUE(TestCheckpoint(fs, root, kSecond).ok());
  RetentionPolicy policy;
  policy.keep_last = 1;
  const auto retain = [&] {
    return ApplyRetention(fs, root, kTestJob, 1, TestLineage(1), {{1, 200}},
                          policy);
  };
  ASSERT_EQ(ExitCodeOfCrash(GetParam(), [&] { retain().IgnoreError(); }),
            kFaultExitCode);
  EXPECT_EQ(TestRestore(fs, root, 1).value(), 200);
  ASSERT_TRUE(retain().ok());
  ExpectRecovers(fs, root, {200});
}

INSTANTIATE_TEST_SUITE_P(All, CleanupCrashTest,
                         testing::Values("checkpoint.trash.begin",
                                         "checkpoint.trash.renamed",
                                         "checkpoint.trash.synced"));

// A generation that took over: two checkpoints, retention to one. Returns the
// last step that was reported as done.
StatusOr<int64_t> LiveUntilPowerLoss(FileSystem* fs, const std::string& root) {
  int64_t durable = -1;
  for (const AttemptKey& attempt : {kFirst, kSecond}) {
    if (!TestCheckpoint(fs, root, attempt).ok()) return durable;
    durable = attempt.step;
    RetentionPolicy policy;
    policy.keep_last = 1;
    if (!ApplyRetention(fs, root, kTestJob, 1, TestLineage(1),
                        {{1, attempt.step}}, policy)
             .ok()) {
      return durable;
    }
  }
  return durable;
}

TEST(PowerLossTest, WhatWasReportedIsThereAfterAnyCut) {
  const std::string root = "/out/checkpoints";
  MemoryFileSystem counting;
  ASSERT_TRUE(TakeOver(&counting, root, kTestJob, 1).ok());
  ASSERT_EQ(LiveUntilPowerLoss(&counting, root).value(), 200);
  const int operations = counting.operations();
  ASSERT_GT(operations, 40);
  for (int cut = 1; cut <= operations + 1; ++cut) {
    SCOPED_TRACE(fmt::format("power lost at operation {}", cut));
    MemoryFileSystem fs;
    fs.FailAt(cut, /*and_after=*/true);
    const int64_t durable = TakeOver(&fs, root, kTestJob, 1).ok()
                                ? LiveUntilPowerLoss(&fs, root).value()
                                : -1;
    fs.PowerLoss();
    fs.FailAt(0, false);
    const auto restored = TestRestore(&fs, root, 1);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_GE(*restored, durable);
    ExpectRecovers(&fs, root, {*restored});
  }
}

// What must hold after a power loss, whatever was going on: what was reported
// is there, what is there is whole, and others stay out of the directory.
std::string BrokenPromise(FileSystem* fs, const std::string& root,
                          int64_t durable, uint64_t generation) {
  const auto restored = TestRestore(fs, root, 1);
  if (!restored.ok()) return Message(restored.status());
  if (*restored < durable) return fmt::format("step {} is gone", durable);
  const std::vector<CheckpointKey> keys = ListCheckpoints(fs, root).value();
  for (const CheckpointKey& key : keys) {
    const auto open = Checkpoint::Open(fs, JoinPath(root, CheckpointName(key)));
    const Status whole = open.ok() ? open->Verify() : open.status();
    if (!whole.ok()) return Message(whole);
  }
  const bool leftover = fs->Exists(JoinPath(root, ".bad-step-000000100.g1"));
  if (leftover) return "step 100 was found damaged";
  if (generation > 0 && CheckFence(fs, root, "another", 99).ok()) {
    return "another job is let in";
  }
  if (generation > 1 && CheckFence(fs, root, kTestJob, 1).ok()) {
    return "generation 1 is let in";
  }
  return "";
}

// The life of a job with power loss at operation `cut` (0: at its end), and
// without the sync `skipped` (-1: with all). Then what was not synced is lost,
// all of it or, with a `seed`, by chance. Returns the promise that was broken.
std::string LiveAndLosePower(int cut, int skipped, unsigned seed,
                             std::vector<std::string>* syncs) {
  const std::string root = "/out/checkpoints";
  MemoryFileSystem fs;
  fs.SkipSync(skipped);
  fs.FailAt(cut, /*and_after=*/cut > 0);
  uint64_t generation = 0;
  int64_t durable = -1;
  if (TakeOver(&fs, root, kTestJob, 1).ok()) {
    generation = 1;
    durable = LiveUntilPowerLoss(&fs, root).value();
  }
  if (durable == 200 && TakeOver(&fs, root, kTestJob, 2).ok()) generation = 2;
  *syncs = fs.syncs();
  fs.FailAt(0, false);
  fs.SkipSync(-1);
  std::mt19937 random(seed);
  fs.PowerLoss(seed == 0 ? nullptr : &random);
  return BrokenPromise(&fs, root, durable, generation);
}

constexpr unsigned kSeeds = 8;

// Any cut, any seed: the first promise that is broken without that sync.
std::string FirstBroken(int skipped) {
  std::vector<std::string> all;
  std::vector<std::string> done;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    std::string broken = LiveAndLosePower(0, skipped, seed, &all);
    for (int cut = 1; broken.empty() && done != all; ++cut) {
      broken = LiveAndLosePower(cut, skipped, seed, &done);
    }
    if (!broken.empty()) return broken;
    done.clear();
  }
  return "";
}

TEST(PowerLossTest, NoSyncIsMissingAndNoneCanBeLeftOut) {
  EXPECT_EQ(FirstBroken(-1), "");
  std::vector<std::string> all;
  ASSERT_EQ(LiveAndLosePower(0, -1, 0, &all), "");
  ASSERT_GT(all.size(), 15u);
  for (size_t skipped = 0; skipped < all.size(); ++skipped) {
    EXPECT_NE(FirstBroken(static_cast<int>(skipped)), "")
        << "sync " << skipped << ", of " << all[skipped] << ", is not needed";
  }
}

TEST(DiskErrorTest, AnErrorAnywhereIsOneSentenceAndHarmsNothing) {
  const std::string root = "/out/checkpoints";
  int failed = 0;
  bool reached = true;
  for (int at = 1; reached; ++at) {
    SCOPED_TRACE(fmt::format("operation {} fails", at));
    MemoryFileSystem fs;
    ASSERT_TRUE(TakeOver(&fs, root, kTestJob, 1).ok());
    ASSERT_TRUE(TestCheckpoint(&fs, root, kFirst).ok());
    const int fail_at = fs.operations() + at;
    fs.FailAt(fail_at, /*and_after=*/false);
    const auto second = TestCheckpoint(&fs, root, kSecond);
    reached = fs.operations() >= fail_at;
    if (!second.ok()) {
      ++failed;
      const std::string message = Message(second.status());
      EXPECT_THAT(message, testing::StartsWith("cannot "));
      EXPECT_THAT(message, HasSubstr("checkpoint of step 200"));
      EXPECT_THAT(message, HasSubstr("No space left on device"));
      EXPECT_THAT(message, HasSubstr(root));
      EXPECT_EQ(second.status().code(), StatusCode::kResourceExhausted);
    }
    fs.FailAt(0, false);
    EXPECT_GE(TestRestore(&fs, root, 1).value(), second.ok() ? 200 : 100);
    ExpectRecovers(&fs, root, {100, 200});
  }
  EXPECT_GT(failed, 20);
}

// A disk that fails one sync, and says that all is well from then on, as
// Linux does: what it lost is lost. Nothing may be reported as done by it.
TEST(DiskErrorTest, AFailedSyncIsNeverTakenForSuccess) {
  const std::string root = "/out/checkpoints";
  int failed = 0;
  bool reached = true;
  for (int at = 1; reached; ++at) {
    SCOPED_TRACE(fmt::format("operation {} fails", at));
    MemoryFileSystem fs;
    ASSERT_TRUE(TakeOver(&fs, root, kTestJob, 1).ok());
    ASSERT_TRUE(TestCheckpoint(&fs, root, kFirst).ok());
    const int fail_at = fs.operations() + at;
    fs.FailAt(fail_at, /*and_after=*/false, EIO);
    const auto second = TestCheckpoint(&fs, root, kSecond);
    reached = fs.operations() >= fail_at;
    if (!second.ok()) {
      ++failed;
      EXPECT_THAT(Message(second.status()), HasSubstr("Input/output error"));
    }
    fs.FailAt(0, false);
    fs.PowerLoss();
    const auto restored = TestRestore(&fs, root, 1);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_GE(*restored, second.ok() ? 200 : 100);
    ExpectRecovers(&fs, root, {100, 200});
  }
  EXPECT_GT(failed, 15);
}

// The rename was done, the sync after it not: the same call again must not
// find it done.
TEST(DiskErrorTest, ASecondTryAfterAFailedLastSyncSyncsAgain) {
  const std::string root = "/out/checkpoints";
  MemoryFileSystem counting;
  ASSERT_TRUE(TakeOver(&counting, root, kTestJob, 1).ok());
  const int before = counting.operations();
  ASSERT_TRUE(TestCheckpoint(&counting, root, kSecond).ok());
  for (int at = before + 1; at <= counting.operations(); ++at) {
    MemoryFileSystem fs;
    ASSERT_TRUE(TakeOver(&fs, root, kTestJob, 1).ok());
    fs.FailAt(at, /*and_after=*/false, EIO);
    if (TestCheckpoint(&fs, root, kSecond).ok()) continue;
    ASSERT_TRUE(TestCheckpoint(&fs, root, kSecond).ok());
    fs.PowerLoss();
    EXPECT_EQ(TestRestore(&fs, root, 1).value(), 200) << "operation " << at;
  }
}

TEST(DiskErrorTest, AnUnwritableDirectoryIsOneSentence) {
  FileSystem* const fs = RealFileSystem();
  const TempDir temp;
  ASSERT_EQ(::chmod(temp.path().c_str(), 0555), 0);
  const auto write = [&](const std::string& root) {
    const AsNobody nobody;
    return TestWriteRank(fs, root, kFirst, 1, 2, TestState(100)).status();
  };
  const std::string root = JoinPath(temp.path(), "checkpoints");
  const Status denied = write(root);
  EXPECT_EQ(denied.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Message(denied),
            fmt::format("cannot write the checkpoint of step 100 on rank 1: "
                        "making directory {}: Permission denied",
                        root));
  EXPECT_EQ(write(temp.path()).code(), StatusCode::kPermissionDenied);
}

TEST(DiskErrorTest, AFileInTheWayIsOneSentence) {
  FileSystem* const fs = RealFileSystem();
  const TempDir temp;
  const std::string file = JoinPath(temp.path(), "file");
  ASSERT_TRUE(fs->WriteAtomic(file, "x").ok());
  for (const std::string& root : {file, JoinPath(file, "checkpoints")}) {
    const auto vote = TestWriteRank(fs, root, kFirst, 1, 2, TestState(100));
    EXPECT_THAT(Message(vote.status()), HasSubstr(file + ": Not a directory"));
  }
}

}  // namespace
}  // namespace lockstep::worker::checkpoint
