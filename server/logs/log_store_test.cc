#include "server/logs/log_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <vector>

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;

const LogKey kKey{"uid", 1, 0};

// The machine's files, until told to fail.
class FailingFiles final : public FileSystem {
 public:
  std::atomic<bool> fail_append = false;
  std::atomic<bool> fail_sync = false;

  StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                 mode_t mode) override {
    return real_->Create(path, mode);
  }
  StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path,
                                                     mode_t mode) override {
    LOCKSTEP_ASSIGN_OR_RETURN(auto file, real_->OpenAppend(path, mode));
    return std::make_unique<File>(this, std::move(file));
  }
  StatusOr<std::string> Read(const std::string& path, uint64_t limit) override {
    return real_->Read(path, limit);
  }
  StatusOr<FileInfo> Stat(const std::string& path) override {
    return real_->Stat(path);
  }
  StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return real_->List(path);
  }
  Status MakeDirs(const std::string& path, mode_t mode) override {
    return real_->MakeDirs(path, mode);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return real_->Rename(from, to);
  }
  Status Remove(const std::string& path) override {
    return real_->Remove(path);
  }
  Status RemoveAll(const std::string& path) override {
    return real_->RemoveAll(path);
  }
  Status SyncDir(const std::string& path) override {
    return real_->SyncDir(path);
  }

 private:
  class File final : public WritableFile {
   public:
    File(FailingFiles* files, std::unique_ptr<WritableFile> file)
        : files_(files), file_(std::move(file)) {}
    // Half of it arrives, as on a full disk.
    Status Append(std::string_view data) override {
      if (!files_->fail_append) return file_->Append(data);
      LOCKSTEP_RETURN_IF_ERROR(file_->Append(data.substr(0, data.size() / 2)));
      return ResourceExhausted("the disk is full");
    }
    Status Sync() override {
      return files_->fail_sync ? Unavailable("sync failed") : file_->Sync();
    }
    Status Close() override { return file_->Close(); }

   private:
    FailingFiles* const files_;
    const std::unique_ptr<WritableFile> file_;
  };

  FileSystem* const real_ = RealFileSystem();
};

class LogStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-logs-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    Reopen();
  }
  void TearDown() override {
    store_.reset();
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  void Reopen() {
    store_.reset();
    store_ = std::make_unique<LogStore>(&files_, JoinPath(dir_, "logs"));
  }

  Status Send(uint64_t offset, const std::string& data, bool end = false,
              const LogKey& key = kKey, int32_t life = 0) {
    return store_->Append(
        key, offset, data, end,
        [this, key](const LogStore::Ack& ack) {
          MutexLock lock(&mu_);
          acks_[key].push_back(ack);
          acked_.NotifyAll();
        },
        life);
  }
  // Sends, and waits for what is said about it.
  LogStore::Ack Append(uint64_t offset, const std::string& data,
                       bool end = false, const LogKey& key = kKey,
                       int32_t life = 0) {
    size_t seen = 0;
    {
      MutexLock lock(&mu_);
      seen = acks_[key].size();
    }
    EXPECT_TRUE(Send(offset, data, end, key, life).ok());
    const MonoTime deadline = MonotonicNow() + 60s;
    MutexLock lock(&mu_);
    while (acks_[key].size() == seen) {
      if (!acked_.WaitUntil(&mu_, deadline)) {
        ADD_FAILURE() << "never acknowledged";
        return {};
      }
    }
    return acks_[key].back();
  }
  // Sends what cannot be written; returns when the store is done with it, that
  // is when nobody can acknowledge it any more. (A change of the store is no
  // sign of that: the one before it is announced after its acknowledgement.)
  void AppendInVain(uint64_t offset, const std::string& data) {
    auto done = std::make_unique<std::promise<void>>();
    std::future<void> is_done = done->get_future();
    const auto tell = [](std::promise<void>* p) {
      p->set_value();
      delete p;
    };
    ASSERT_TRUE(store_
                    ->Append(kKey, offset, data, false,
                             [this, held = std::shared_ptr<std::promise<void>>(
                                        done.release(), tell)](
                                 const LogStore::Ack& ack) {
                               MutexLock lock(&mu_);
                               acks_[kKey].push_back(ack);
                             })
                    .ok());
    ASSERT_EQ(is_done.wait_for(60s), std::future_status::ready);
  }
  size_t AckCount() {
    MutexLock lock(&mu_);
    return acks_[kKey].size();
  }
  std::string All(const LogKey& key = kKey) {
    return store_->Read(key, 0, 1 << 20).value_or("unreadable");
  }

  std::string dir_;
  FailingFiles files_;
  Mutex mu_;
  CondVar acked_;
  std::map<LogKey, std::vector<LogStore::Ack>> acks_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<LogStore> store_;
};

TEST_F(LogStoreTest, BytesComeBackAsTheyCame) {
  EXPECT_EQ(Append(0, "hello ").offset, 6u);
  const std::string bytes("w\0rld\n", 6);
  const LogStore::Ack ack = Append(6, bytes);
  EXPECT_EQ(ack.offset, 12u);
  EXPECT_FALSE(ack.end);
  EXPECT_EQ(All(), "hello " + bytes);
  EXPECT_EQ(store_->Read(kKey, 6, 3).value_or(""), bytes.substr(0, 3));
  EXPECT_EQ(store_->Read(kKey, 100, 3).value_or("x"), "");
  EXPECT_EQ(store_->Read({"none", 1, 0}, 0, 3).value_or("x"), "");
}

// Each node counts its bytes from 0.
TEST_F(LogStoreTest, ARankThatHasMovedHasALogOfEachNode) {
  const LogKey second{"uid", 1, 0, 1};
  Append(0, "on a\n", true);
  EXPECT_EQ(Append(0, "on b\n", false, second).offset, 5u);
  EXPECT_EQ(All(), "on a\n");
  EXPECT_EQ(All(second), "on b\n");
  EXPECT_TRUE(store_->Ended(kKey));
  EXPECT_FALSE(store_->Ended(second));
  EXPECT_EQ(store_->List()->size(), 1u);
}

TEST_F(LogStoreTest, RepeatsAreSkipped) {
  Append(0, "abcdef");
  EXPECT_EQ(Append(0, "abcdef").offset, 6u);
  EXPECT_EQ(Append(3, "defghi").offset, 9u);
  EXPECT_EQ(Append(1, "b").offset, 9u);
  EXPECT_EQ(All(), "abcdefghi");
}

TEST_F(LogStoreTest, GapIsDroppedAndAskedForAgain) {
  Append(0, "abc");
  const LogStore::Ack ack = Append(5, "fgh", true);
  EXPECT_EQ(ack.offset, 3u);
  EXPECT_FALSE(ack.end);
  EXPECT_EQ(All(), "abc");
  EXPECT_TRUE(Append(3, "defgh", true).end);
  EXPECT_EQ(All(), "abcdefgh");
}

TEST_F(LogStoreTest, EndIsRememberedAndRepeatable) {
  EXPECT_FALSE(store_->Ended(kKey));
  Append(0, "abc");
  EXPECT_TRUE(Append(3, "", true).end);
  EXPECT_TRUE(store_->Ended(kKey));
  Reopen();
  EXPECT_TRUE(store_->Ended(kKey));
  const LogStore::Ack again = Append(0, "abc", true);
  EXPECT_TRUE(again.end);
  EXPECT_EQ(again.offset, 3u);
  EXPECT_EQ(All(), "abc");
}

TEST_F(LogStoreTest, ALogThatGoesOnAfterItsEndHasNoneUntilItEndsAgain) {
  EXPECT_TRUE(Append(0, "one", true).end);
  EXPECT_FALSE(Append(3, "two", false).end);
  EXPECT_FALSE(store_->Ended(kKey));
  // A repeat of the first end says nothing.
  EXPECT_FALSE(Append(0, "one", true).end);
  EXPECT_TRUE(Append(6, "", true).end);
  EXPECT_TRUE(store_->Ended(kKey));
}

TEST_F(LogStoreTest, EndOfAnOlderCopyIsNoEnd) {
  Append(0, "abcdef");
  EXPECT_FALSE(Append(0, "abc", true).end);
}

TEST_F(LogStoreTest, AnEndIsOfOneStartOfTheRank) {
  const auto end = [this](uint64_t offset, int32_t life) {
    EXPECT_TRUE(Append(offset, "", true, kKey, life).end);
  };
  EXPECT_EQ(store_->EndedLife(kKey), std::nullopt);
  EXPECT_TRUE(Append(0, "abc", true).end);
  EXPECT_EQ(store_->EndedLife(kKey), 0);
  // Started again, it ended without a word.
  end(3, 2);
  EXPECT_EQ(store_->EndedLife(kKey), 2);
  end(3, 0);
  EXPECT_EQ(store_->EndedLife(kKey), 2) << "an old one, sent again";
  Reopen();
  EXPECT_EQ(store_->EndedLife(kKey), 2);
  Append(3, "def");
  EXPECT_EQ(store_->EndedLife(kKey), std::nullopt);
}

TEST_F(LogStoreTest, GoesOnAfterAReopen) {
  Append(0, "abc");
  Reopen();
  EXPECT_EQ(Append(5, "x").offset, 3u);
  EXPECT_EQ(Append(3, "def").offset, 6u);
  EXPECT_EQ(All(), "abcdef");
}

TEST_F(LogStoreTest, LogsAreApart) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    for (Generation generation = 1; generation <= 2; ++generation) {
      Append(0, fmt::format("g{} r{}", generation, rank), false,
             {"uid", generation, rank});
    }
  }
  EXPECT_EQ(All({"uid", 2, 1}), "g2 r1");
  EXPECT_EQ(All({"uid", 1, 2}), "g1 r2");
}

TEST_F(LogStoreTest, MoreLogsThanMayBeOpen) {
  for (int32_t rank = 0; rank < 260; ++rank) {
    EXPECT_EQ(Append(0, "abc", false, {"uid", 1, rank}).offset, 3u);
  }
  EXPECT_EQ(Append(3, "abc", false, {"uid", 1, 0}).offset, 6u);
  EXPECT_EQ(All({"uid", 1, 0}), "abcabc");
}

TEST_F(LogStoreTest, MoreLogsAtOnceThanMayBeOpenAreAllAcknowledged) {
  constexpr int32_t kLogs = 300;
  // The answer to the first holds the store's thread until the rest is there.
  Mutex mu;
  CondVar changed;
  bool all_sent = false;
  int32_t answered = 0;
  const MonoTime deadline = MonotonicNow() + 60s;
  ASSERT_TRUE(store_
                  ->Append(kKey, 0, "x", false,
                           [&](const LogStore::Ack&) {
                             MutexLock lock(&mu);
                             while (!all_sent &&
                                    changed.WaitUntil(&mu, deadline)) {
                             }
                           })
                  .ok());
  for (int32_t rank = 1; rank <= kLogs; ++rank) {
    ASSERT_TRUE(store_
                    ->Append({"uid", 1, rank}, 0, "line\n", false,
                             [&](const LogStore::Ack& ack) {
                               MutexLock lock(&mu);
                               if (ack.offset == 5) ++answered;
                               changed.NotifyAll();
                             })
                    .ok());
  }
  {
    MutexLock lock(&mu);
    all_sent = true;
    changed.NotifyAll();
    while (answered < kLogs && changed.WaitUntil(&mu, deadline)) {
    }
    EXPECT_EQ(answered, kLogs);
  }
  store_.reset();
}

TEST_F(LogStoreTest, WhatCannotBeWrittenIsNotAcknowledged) {
  Append(0, "abcd");
  files_.fail_append = true;
  AppendInVain(4, "efgh");
  EXPECT_EQ(AckCount(), 1u);
  files_.fail_append = false;
  // Half of it was there; what is said now is true of the disk.
  EXPECT_EQ(Append(4, "efgh").offset, 8u);
  EXPECT_EQ(All(), "abcdefgh");
}

TEST_F(LogStoreTest, WhatCannotBeSyncedIsNotAcknowledged) {
  files_.fail_sync = true;
  AppendInVain(0, "abcd");
  EXPECT_EQ(AckCount(), 0u);
  files_.fail_sync = false;
  EXPECT_EQ(Append(0, "abcd").offset, 4u);
  EXPECT_EQ(All(), "abcd");
}

TEST_F(LogStoreTest, ListenersAreToldOfTheirJobAndOfTheEnd) {
  std::atomic<int> own = 0, other = 0;
  const LogStore::Listener one(store_.get(), kKey.job_uid, [&] { ++own; });
  const LogStore::Listener two(store_.get(), "another", [&] { ++other; });
  Append(0, "x");
  const MonoTime deadline = MonotonicNow() + 60s;
  while (own == 0 && MonotonicNow() < deadline) std::this_thread::yield();
  EXPECT_EQ(own, 1);
  EXPECT_EQ(other, 0);
  store_->Close();
  EXPECT_EQ(own, 2);
  EXPECT_EQ(other, 1);
}

TEST_F(LogStoreTest, NothingIsTakenAfterClose) {
  store_->Close();
  EXPECT_EQ(Send(0, "x").code(), StatusCode::kUnavailable);
}

// A shuffled, doubled, cut stream of pieces still makes the same log.
TEST_F(LogStoreTest, AnyOrderOfPiecesMakesTheLog) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += std::to_string(i) + "\n";
  srand(1);
  uint64_t acknowledged = 0;
  for (int i = 0; i < 100000 && acknowledged < text.size(); ++i) {
    const size_t from =
        static_cast<size_t>(rand()) % std::min(text.size(), acknowledged + 100);
    const size_t size = static_cast<size_t>(rand()) % 400;
    acknowledged = Append(from, text.substr(from, size)).offset;
  }
  EXPECT_EQ(acknowledged, text.size());
  EXPECT_EQ(All(), text);
}

}  // namespace
}  // namespace lockstep::server
