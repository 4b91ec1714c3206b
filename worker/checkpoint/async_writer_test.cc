#include "worker/checkpoint/async_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "common/base/mutex.h"
#include "worker/checkpoint/checkpoint_test_util.h"
#include "worker/checkpoint/memory_file_system.h"

namespace lockstep::worker::checkpoint {
namespace {

using testing::HasSubstr;

constexpr char kAsyncRoot[] = "/out/checkpoints";
constexpr Duration kLong = std::chrono::seconds(20);

class SettableClock final : public Clock {
 public:
  Time Now() const override {
    Time now;
    now.mono = MonoTime(Duration(nanos_.load()));
    return now;
  }
  void Advance(Duration d) { nanos_ += d.count(); }

 private:
  std::atomic<int64_t> nanos_{1'000'000'000};
};

// MemoryFileSystem whose Create waits while the gate is shut, as storage that
// went away does.
class GatedFileSystem final : public FileSystem {
 public:
  void Shut() {
    MutexLock lock(&mu_);
    shut_ = true;
  }
  void Open() {
    MutexLock lock(&mu_);
    shut_ = false;
    changed_.NotifyAll();
  }
  bool AwaitBlocked() {
    MutexLock lock(&mu_);
    const MonoTime deadline = MonotonicNow() + kLong;
    while (!blocked_) {
      if (!changed_.WaitUntil(&mu_, deadline)) return false;
    }
    return true;
  }

  StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                 mode_t mode) override {
    {
      MutexLock lock(&mu_);
      blocked_ = shut_;
      changed_.NotifyAll();
      while (shut_) changed_.Wait(&mu_);
      blocked_ = false;
    }
    return memory_.Create(path, mode);
  }
  StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path,
                                                     mode_t mode) override {
    return memory_.OpenAppend(path, mode);
  }
  StatusOr<std::string> Read(const std::string& path, uint64_t limit) override {
    return memory_.Read(path, limit);
  }
  StatusOr<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override {
    return memory_.OpenRead(path);
  }
  StatusOr<FileInfo> Stat(const std::string& path) override {
    return memory_.Stat(path);
  }
  StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return memory_.List(path);
  }
  Status MakeDirs(const std::string& path, mode_t mode) override {
    return memory_.MakeDirs(path, mode);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return memory_.Rename(from, to);
  }
  Status Remove(const std::string& path) override {
    return memory_.Remove(path);
  }
  Status RemoveAll(const std::string& path) override {
    return memory_.RemoveAll(path);
  }
  Status SyncDir(const std::string& path) override {
    return memory_.SyncDir(path);
  }

  MemoryFileSystem* memory() { return &memory_; }

 private:
  MemoryFileSystem memory_;
  Mutex mu_;
  CondVar changed_;
  bool shut_ ABSL_GUARDED_BY(mu_) = false;
  bool blocked_ ABSL_GUARDED_BY(mu_) = false;
};

class AsyncWriterTest : public testing::Test {
 protected:
  AsyncWriter::Options Options(uint32_t rank, uint32_t world_size) {
    AsyncWriter::Options options;
    options.fs = &fs_;
    options.clock = &clock_;
    options.root = kAsyncRoot;
    // As TakeOver does.
    EXPECT_TRUE(fs_.MakeDirs(kAsyncRoot, 0755).ok());
    options.job = kTestJob;
    options.generation = 1;
    options.rank = rank;
    options.world_size = world_size;
    options.lineage = TestLineage(1);
    return options;
  }
  static Status Begin(AsyncWriter* writer, int64_t step, uint32_t rank) {
    const TestState state(step);
    Snapshot snapshot = writer->NewSnapshot();
    if (rank == 0) LOCKSTEP_RETURN_IF_ERROR(snapshot.Copy(state.Views()));
    snapshot.AddBlob("rng", fmt::format("rng of {} at {}", rank, step));
    return writer->Begin({.step = step,
                          .id = 1,
                          .cursor = {0, 64},
                          .state_hash = StateHash(state.Views())},
                         std::move(snapshot));
  }
  // The next event, which must be of this kind.
  static AsyncWriter::Event Next(AsyncWriter* writer, AsyncWriter::Kind kind) {
    auto event = writer->Wait(kLong);
    EXPECT_TRUE(event.has_value());
    if (!event) return {};
    EXPECT_EQ(event->kind, kind) << event->status;
    return *std::move(event);
  }
  static void AwaitIdle(AsyncWriter* writer) {
    const MonoTime deadline = MonotonicNow() + kLong;
    while (writer->in_flight() && MonotonicNow() < deadline) {
      writer->Wait(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(writer->in_flight());
  }

  SettableClock clock_;
  GatedFileSystem fs_;
};

TEST_F(AsyncWriterTest, TwoRanksMakeCheckpointsAndOldOnesGo) {
  AsyncWriter chief(Options(0, 2));
  AsyncWriter other(Options(1, 2));
  EXPECT_FALSE(chief.Poll().has_value());
  for (int64_t step : {10, 20, 30, 40, 50}) {
    ASSERT_TRUE(Begin(&chief, step, 0).ok());
    ASSERT_TRUE(Begin(&other, step, 1).ok());
    const AsyncWriter::Event voted = Next(&chief, AsyncWriter::kVoted);
    EXPECT_GT(voted.write, Duration(0));
    EXPECT_GT(voted.sync, Duration(0));
    const Vote mine = voted.vote;
    const Vote theirs = Next(&other, AsyncWriter::kVoted).vote;
    EXPECT_FALSE(other.in_flight());
    ASSERT_TRUE(chief.in_flight());
    ASSERT_TRUE(chief.PublishWhenAllVoted().ok());
    const auto done = Next(&chief, AsyncWriter::kPublished);
    EXPECT_EQ(done.step, step);
    EXPECT_EQ(done.path, JoinPath(kAsyncRoot, CheckpointName({1, step})));
    EXPECT_EQ(done.bytes, mine.shard.size + theirs.shard.size);
    EXPECT_GT(done.commit, Duration(0));
    EXPECT_TRUE(done.warning.ok()) << done.warning;
    EXPECT_FALSE(chief.in_flight());
  }
  EXPECT_EQ(TestRestore(&fs_, kAsyncRoot, 1).value(), 50);
  EXPECT_EQ(ListCheckpoints(&fs_, kAsyncRoot)->size(), 3u);
  EXPECT_EQ(chief.counters().published, 5u);
  EXPECT_EQ(chief.counters().failed, 0u);
}

// A rank 0 that is replaced after each checkpoint has read back one itself.
TEST_F(AsyncWriterTest, OldOnesGoAlsoIfEachProcessSavesOnce) {
  for (int64_t step : {10, 20, 30, 40, 50, 60}) {
    AsyncWriter chief(Options(0, 1));
    ASSERT_TRUE(Begin(&chief, step, 0).ok());
    Next(&chief, AsyncWriter::kVoted);
    ASSERT_TRUE(chief.PublishWhenAllVoted().ok());
    const auto done = Next(&chief, AsyncWriter::kPublished);
    EXPECT_TRUE(done.warning.ok()) << done.warning;
  }
  EXPECT_EQ(ListCheckpoints(&fs_, kAsyncRoot)->size(), 3u);
  EXPECT_EQ(TestRestore(&fs_, kAsyncRoot, 1).value(), 60);
}

TEST_F(AsyncWriterTest, ANewerOneIsRefusedWhileOneIsInFlight) {
  AsyncWriter chief(Options(0, 2));
  ASSERT_TRUE(Begin(&chief, 10, 0).ok());
  Next(&chief, AsyncWriter::kVoted);
  const Status refused = Begin(&chief, 20, 0);
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(refused), "CHECKPOINT_IN_FLIGHT");
  EXPECT_THAT(Message(refused), HasSubstr("step 10 is in flight"));
  chief.Abandon(Unavailable("rank 1 failed to write its shard"));
  EXPECT_THAT(Message(Next(&chief, AsyncWriter::kFailed).status),
              HasSubstr("rank 1 failed to write its shard"));
  AwaitIdle(&chief);
  EXPECT_FALSE(fs_.Exists(JoinPath(kAsyncRoot, StagingName({1, 10, 1}))));
  EXPECT_TRUE(Begin(&chief, 20, 0).ok());
}

TEST_F(AsyncWriterTest, WhatChangesInARunIsInEachManifest) {
  AsyncWriter::Options options = Options(0, 1);
  options.metadata = {{"model", "cnn"}, {"reduction plan", "of the run"}};
  AsyncWriter chief(options);
  for (const char* plan : {"first", "learned"}) {
    Snapshot snapshot = chief.NewSnapshot();
    const TestState state(1);
    ASSERT_TRUE(snapshot.Copy(state.Views()).ok());
    AsyncWriter::Request request;
    request.step = plan[0] == 'f' ? 1 : 2;
    request.metadata = {{"reduction plan", plan}};
    ASSERT_TRUE(chief.Begin(request, std::move(snapshot)).ok());
    Next(&chief, AsyncWriter::kVoted);
    ASSERT_TRUE(chief.PublishWhenAllVoted().ok());
    const auto saved =
        Checkpoint::Open(&fs_, Next(&chief, AsyncWriter::kPublished).path);
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(saved->manifest().metadata,
              (std::map<std::string, std::string>{{"model", "cnn"},
                                                  {"reduction plan", plan}}));
  }
}

TEST_F(AsyncWriterTest, TheSnapshotsMemoryIsUsedAgain) {
  AsyncWriter writer(Options(1, 2));
  const TestState state(1);
  Snapshot snapshot;
  ASSERT_TRUE(snapshot.Copy(state.Views()).ok());
  const void* memory = snapshot.tensors()[0].data;
  AsyncWriter::Request request;
  request.step = 1;
  ASSERT_TRUE(writer.Begin(request, std::move(snapshot)).ok());
  Next(&writer, AsyncWriter::kVoted);
  Snapshot again = writer.NewSnapshot();
  EXPECT_TRUE(again.tensors().empty());
  ASSERT_TRUE(again.Copy(state.Views()).ok());
  EXPECT_EQ(again.tensors()[0].data, memory);
}

TEST_F(AsyncWriterTest, VotesThatDoNotComeAreGivenUpAtTheDeadline) {
  AsyncWriter chief(Options(0, 2));
  ASSERT_TRUE(Begin(&chief, 10, 0).ok());
  Next(&chief, AsyncWriter::kVoted);
  clock_.Advance(std::chrono::minutes(9));
  EXPECT_FALSE(chief.Poll().has_value());
  clock_.Advance(std::chrono::minutes(2));
  const auto event = chief.Poll();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, AsyncWriter::kFailed);
  EXPECT_EQ(event->status.code(), StatusCode::kDeadlineExceeded);
  AwaitIdle(&chief);
  EXPECT_FALSE(fs_.Exists(JoinPath(kAsyncRoot, StagingName({1, 10, 1}))));
  EXPECT_FALSE(chief.PublishWhenAllVoted().ok());
}

TEST_F(AsyncWriterTest, TheChiefWaitsForVotesOnDisk) {
  AsyncWriter chief(Options(0, 2));
  AsyncWriter other(Options(1, 2));
  ASSERT_TRUE(Begin(&chief, 10, 0).ok());
  Next(&chief, AsyncWriter::kVoted);
  ASSERT_TRUE(chief.PublishWhenAllVoted().ok());
  EXPECT_FALSE(chief.Wait(std::chrono::milliseconds(30)).has_value());
  ASSERT_TRUE(Begin(&other, 10, 1).ok());
  Next(&chief, AsyncWriter::kPublished);
  EXPECT_EQ(TestRestore(&fs_, kAsyncRoot, 1).value(), 10);
  // The next time the other one never votes.
  ASSERT_TRUE(Begin(&chief, 20, 0).ok());
  Next(&chief, AsyncWriter::kVoted);
  ASSERT_TRUE(chief.PublishWhenAllVoted().ok());
  clock_.Advance(std::chrono::minutes(11));
  EXPECT_EQ(Next(&chief, AsyncWriter::kFailed).status.code(),
            StatusCode::kDeadlineExceeded);
  AwaitIdle(&chief);
  EXPECT_FALSE(chief.Poll().has_value()) << "told once";
  EXPECT_EQ(TestRestore(&fs_, kAsyncRoot, 1).value(), 10);
}

TEST_F(AsyncWriterTest, AWriteThatHangsIsReportedAndCleanedUpLater) {
  AsyncWriter chief(Options(0, 1));
  fs_.Shut();
  ASSERT_TRUE(Begin(&chief, 10, 0).ok());
  ASSERT_TRUE(fs_.AwaitBlocked());
  clock_.Advance(std::chrono::minutes(11));
  const auto event = chief.Poll();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Begin(&chief, 20, 0).code(), StatusCode::kUnavailable);
  fs_.Open();
  AwaitIdle(&chief);
  EXPECT_FALSE(fs_.Exists(JoinPath(kAsyncRoot, StagingName({1, 10, 1}))));
  ASSERT_TRUE(Begin(&chief, 20, 0).ok());
  Next(&chief, AsyncWriter::kVoted);
  ASSERT_TRUE(chief.PublishWhenAllVoted().ok());
  Next(&chief, AsyncWriter::kPublished);
  EXPECT_EQ(chief.counters().failed, 1u);
}

TEST_F(AsyncWriterTest, AFullDiskIsAnEventAndTheNextOneWorks) {
  AsyncWriter chief(Options(0, 1));
  ASSERT_TRUE(Begin(&chief, 10, 0).ok());
  Next(&chief, AsyncWriter::kVoted);
  ASSERT_TRUE(chief.PublishWhenAllVoted().ok());
  Next(&chief, AsyncWriter::kPublished);
  fs_.memory()->FailAt(fs_.memory()->operations() + 4, false);
  ASSERT_TRUE(Begin(&chief, 20, 0).ok());
  EXPECT_THAT(Message(Next(&chief, AsyncWriter::kFailed).status),
              HasSubstr("No space left on device"));
  AwaitIdle(&chief);
  EXPECT_EQ(TestRestore(&fs_, kAsyncRoot, 1).value(), 10);
  ASSERT_TRUE(Begin(&chief, 30, 0).ok());
  Next(&chief, AsyncWriter::kVoted);
  ASSERT_TRUE(chief.PublishWhenAllVoted().ok());
  Next(&chief, AsyncWriter::kPublished);
  EXPECT_EQ(TestRestore(&fs_, kAsyncRoot, 1).value(), 30);
}

TEST_F(AsyncWriterTest, WhileTheDiskStaysFullTheOldOnesStay) {
  auto options = Options(0, 1);
  options.retention.keep_last = 1;
  AsyncWriter chief(options);
  const auto save = [&](int64_t step) {
    ASSERT_TRUE(Begin(&chief, step, 0).ok());
    Next(&chief, AsyncWriter::kVoted);
    ASSERT_TRUE(chief.PublishWhenAllVoted().ok());
    Next(&chief, AsyncWriter::kPublished);
  };
  save(10);
  for (const int error : {ENOSPC, EIO}) {
    fs_.memory()->FailAt(fs_.memory()->operations() + 1, true, error);
    for (int64_t step : {20, 30, 40}) {
      ASSERT_TRUE(Begin(&chief, step, 0).ok());
      const auto event = Next(&chief, AsyncWriter::kFailed);
      EXPECT_EQ(event.step, step);
      EXPECT_THAT(Message(event.status), HasSubstr(::strerror(error)));
      AwaitIdle(&chief);
    }
    EXPECT_EQ(TestRestore(&fs_, kAsyncRoot, 1).value(), 10);
    fs_.memory()->FailAt(0, false);
  }
  EXPECT_EQ(chief.counters().failed, 6u);
  save(50);
  EXPECT_EQ(TestRestore(&fs_, kAsyncRoot, 1).value(), 50);
}

// Made anew, it would be in the way of the right one.
TEST_F(AsyncWriterTest, ADirectoryThatIsAwayIsNotMadeAnew) {
  AsyncWriter chief(Options(0, 1));
  ASSERT_TRUE(fs_.RemoveAll(kAsyncRoot).ok());
  ASSERT_TRUE(Begin(&chief, 20, 0).ok());
  const auto event = Next(&chief, AsyncWriter::kFailed);
  EXPECT_THAT(Message(event.status), HasSubstr("mount its file system"));
  EXPECT_FALSE(fs_.Exists(kAsyncRoot));
}

TEST_F(AsyncWriterTest, ReplicasThatDifferAreNotPublished) {
  AsyncWriter chief(Options(0, 2));
  ASSERT_TRUE(Begin(&chief, 10, 0).ok());
  Next(&chief, AsyncWriter::kVoted);
  AsyncWriter other(Options(1, 2));
  Snapshot snapshot = other.NewSnapshot();
  snapshot.AddBlob("rng", "of rank 1");
  ASSERT_TRUE(
      other
          .Begin({.step = 10, .id = 1, .cursor = {0, 64}, .state_hash = 1},
                 std::move(snapshot))
          .ok());
  Next(&other, AsyncWriter::kVoted);
  ASSERT_TRUE(chief.PublishWhenAllVoted().ok());
  const auto event = Next(&chief, AsyncWriter::kFailed);
  EXPECT_EQ(event.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(event.status), HasSubstr("rank 1 of 2"));
  EXPECT_FALSE(chief.in_flight());
}

TEST_F(AsyncWriterTest, TheDestructorGivesUpAndReturns) {
  {
    AsyncWriter chief(Options(0, 2));
    ASSERT_TRUE(Begin(&chief, 10, 0).ok());
    Next(&chief, AsyncWriter::kVoted);
  }
  EXPECT_FALSE(fs_.Exists(JoinPath(kAsyncRoot, StagingName({1, 10, 1}))));
}

TEST_F(AsyncWriterTest, WaitReturnsWhenNothingCanCome) {
  AsyncWriter writer(Options(1, 2));
  const MonoTime begun = MonotonicNow();
  EXPECT_FALSE(writer.Wait(kLong).has_value());
  EXPECT_LT(MonotonicNow() - begun, kLong);
}

}  // namespace
}  // namespace lockstep::worker::checkpoint
