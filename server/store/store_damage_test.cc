// Files of a store that something else than a crash has changed: each is
// refused, or has everything that was answered. None loses a part silently.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "server/store/commit_mark.h"
#include "server/store/sqlite_store.h"
#include "server/store/testing.h"

namespace lockstep::server {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr int kJobs = 60;

Job NumberedJob(int number) {
  Job job = FullJob();
  job.spec.name = fmt::format("job{:03}", number);
  job.spec.comment = std::string(1500, static_cast<char>('a' + number % 26));
  job.exit_code = number;
  return job;
}

Status CommitJob(Store* store, const Job& job, int64_t version) {
  StoreBatch batch;
  batch.version = version;
  batch.jobs = {std::make_shared<const Job>(job)};
  batch.request = FullRequest();
  batch.request->id = std::to_string(version);
  return store->Commit(batch);
}

class StoreDamageTest : public testing::Test {
 protected:
  using Files = std::map<std::string, std::string>;

  void SetUp() override {
    char name[] = "/tmp/lockstep-damage-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    path_ = JoinPath(dir_, "coordinator.db");
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  // Commits jobs [from, to) in a process that is then killed, or closes.
  void Run(int from, int to, bool closes) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = OpenSqliteStore(path_);
      if (!store.ok() || !(*store)->Load().ok()) ::_exit(1);
      for (int i = from; i < to; ++i) {
        if (!CommitJob(store->get(), NumberedJob(i), i + 1).ok()) ::_exit(2);
      }
      if (closes) store->reset();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }

  Files Keep() {
    Files files;
    const std::vector<std::string> names = *RealFileSystem()->List(dir_);
    for (const std::string& name : names) {
      if (name.ends_with("-shm")) continue;  // SQLite makes it anew.
      files[name] = *RealFileSystem()->Read(JoinPath(dir_, name));
    }
    return files;
  }
  void Put(const Files& files) {
    ASSERT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
    ASSERT_TRUE(RealFileSystem()->MakeDirs(dir_, 0700).ok());
    for (const auto& [name, bytes] : files) {
      auto file = RealFileSystem()->Create(JoinPath(dir_, name), 0600);
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE((*file)->Append(bytes).ok());
    }
  }

  // What a start says; OK: everything is there.
  Status Start() {
    auto store = OpenSqliteStore(path_);
    if (!store.ok()) return store.status();
    auto snapshot = (*store)->Load();
    if (!snapshot.ok()) return snapshot.status();
    EXPECT_EQ(snapshot->version, kJobs);
    EXPECT_THAT(snapshot->requests, SizeIs(kJobs));
    EXPECT_THAT(snapshot->jobs, SizeIs(kJobs));
    for (const auto& job : snapshot->jobs) {
      EXPECT_EQ(*job, NumberedJob(job->exit_code)) << job->spec.name;
    }
    return OkStatus();
  }

  std::string dir_;
  std::string path_;
};

using Random = std::mt19937;

size_t Below(size_t n, Random* random) { return (*random)() % n; }

void Flip(std::string* bytes, Random* random) {
  (*bytes)[Below(bytes->size(), random)] ^=
      static_cast<char>(1 << Below(8, random));
}
void Truncate(std::string* bytes, Random* random) {
  bytes->resize(Below(bytes->size(), random));
}
// A part of a page that was never written: other bytes, or none.
void Tear(std::string* bytes, Random* random) {
  const size_t page = Below(bytes->size() / 4096 + 1, random) * 4096;
  const size_t from = page + 512 * (1 + Below(7, random));
  const bool zero = Below(2, random) == 0;
  for (size_t i = from; i < std::min(page + 4096, bytes->size()); ++i) {
    (*bytes)[i] = zero ? '\0' : static_cast<char>((*random)());
  }
}

TEST_F(StoreDamageTest, EveryDamageIsRefusedOrHarmless) {
  Run(0, kJobs / 2, true);
  Run(kJobs / 2, kJobs, false);
  const Files whole = Keep();
  ASSERT_TRUE(whole.contains("coordinator.db-wal"));
  Put(whole);
  ASSERT_TRUE(Start().ok()) << "undamaged";
  const int rounds = getenv("LOCKSTEP_TEST_ROUNDS") != nullptr ? 200 : 20;
  const std::function<void(std::string*, Random*)> kinds[] = {Flip, Truncate,
                                                              Tear};
  for (const char* name :
       {"coordinator.db", "coordinator.db-wal", "coordinator.db.mark"}) {
    int refused = 0;
    for (int round = 0; round < rounds; ++round) {
      Random random(static_cast<unsigned>(round));
      Files files = whole;
      kinds[round % 3](&files.at(name), &random);
      Put(files);
      SCOPED_TRACE(fmt::format("{}, round {}", name, round));
      const Status status = Start();
      if (status.ok()) continue;
      ++refused;
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
      EXPECT_THAT(Message(status), HasSubstr(path_));
      ASSERT_FALSE(HasFailure());
    }
    printf("%s: %d of %d refused\n", name, refused, rounds);
  }
}

// The case that cost running jobs: SQLite takes a flipped bit for the end of
// its log.
TEST_F(StoreDamageTest, AFlippedBitInTheLogDoesNotEraseAnsweredJobs) {
  Run(0, kJobs, false);
  Files files = Keep();
  std::string& log = files.at("coordinator.db-wal");
  log[log.size() / 2] ^= 0x10;
  Put(files);
  const Status status = Start();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status),
              HasSubstr("has lost commits that were answered"));
  EXPECT_THAT(Message(status),
              HasSubstr(fmt::format("says version {} of epoch 1", kJobs)));
  EXPECT_THAT(Message(status), HasSubstr("lockstep-coordinator restore"));
  EXPECT_THAT(Message(status), HasSubstr("accept-loss"));
  EXPECT_EQ(Start(), status) << "a second start changes nothing";
  EXPECT_EQ(VerifySqliteStore(path_, true).status().code(),
            StatusCode::kDataLoss);

  // An operator who goes on without them gets a history of its own.
  const auto accepted = AcceptLossOfSqliteStore(path_);
  ASSERT_TRUE(accepted.ok()) << Message(accepted.status());
  EXPECT_LT(accepted->point.version, kJobs);
  auto store = OpenSqliteStore(path_);
  ASSERT_TRUE(store.ok()) << Message(store.status());
  const auto snapshot = (*store)->Load();
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->history, accepted->point.history);
  ASSERT_THAT(snapshot->replaced_histories, SizeIs(1));
  EXPECT_EQ(snapshot->replaced_histories[0].version, accepted->point.version);
  EXPECT_GE(snapshot->generation_floor, FullJob().generation + 1000);
}

// All of a young store is in its log, the making of its tables, too.
TEST_F(StoreDamageTest, ALogThatLostEvenTheTablesIsRefused) {
  Run(0, 3, false);
  const Files whole = Keep();
  const std::string history =
      (*CommitMark::Read(path_ + ".mark"))->point.history;
  const size_t size = whole.at("coordinator.db-wal").size();
  for (const size_t at : {size_t{40}, size / 8, size / 4, size / 2}) {
    Files files = whole;
    files.at("coordinator.db-wal")[at] ^= 0x20;
    Put(files);
    SCOPED_TRACE(at);
    EXPECT_EQ(VerifySqliteStore(path_, true).status().code(),
              StatusCode::kDataLoss);
    const Status status = OpenSqliteStore(path_).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
    const auto accepted = AcceptLossOfSqliteStore(path_);
    ASSERT_TRUE(accepted.ok()) << Message(accepted.status());
    auto store = OpenSqliteStore(path_);
    ASSERT_TRUE(store.ok()) << Message(store.status());
    const auto snapshot = (*store)->Load();
    ASSERT_TRUE(snapshot.ok());
    // Nodes that obeyed the lost one obey this one.
    EXPECT_THAT(
        snapshot->replaced_histories,
        testing::Contains(testing::Field(&StorePoint::history, history)));
  }
}

TEST_F(StoreDamageTest, ATornTailThatWasNeverAnsweredIsAPowerLoss) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = OpenSqliteStore(path_);
    if (!store.ok() || !(*store)->Load().ok()) ::_exit(1);
    for (int i = 0; i < kJobs; ++i) {
      if (!CommitJob(store->get(), NumberedJob(i), i + 1).ok()) ::_exit(2);
    }
    // In the log, but its mark, and so its answer, never came.
    if (!EnableFaults("store.before_mark=crash@1").ok()) ::_exit(3);
    (void)CommitJob(store->get(), NumberedJob(kJobs), kJobs + 1);
    ::_exit(4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), kFaultExitCode);
  Files files = Keep();
  std::string& log = files.at("coordinator.db-wal");
  log.resize(log.size() - 100);
  Put(files);
  const Status started = Start();
  EXPECT_TRUE(started.ok()) << Message(started);
}

// The last of kJobs jobs is committed with a fault; the exit code is 0 when the
// commit was answered.
int EndOfAFaultyCommit(const std::string& path, const std::string& fault) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = OpenSqliteStore(path);
    if (!store.ok() || !(*store)->Load().ok()) ::_exit(11);
    if (!EnableFaults(fault).ok()) ::_exit(12);
    const Status status =
        CommitJob(store->get(), NumberedJob(kJobs - 1), kJobs);
    ::_exit(status.ok() ? 0 : 13);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(StoreDamageTest, ACommitThatCannotBeMarkedIsNotAnswered) {
  Run(0, kJobs - 1, true);
  EXPECT_EQ(EndOfAFaultyCommit(path_, "store.before_mark=error@1+"), 1)
      << "the process ends";
  EXPECT_EQ((*CommitMark::Read(path_ + ".mark"))->point.version, kJobs - 1);
  // What was asked for has been done, and its repeat finds the answer.
  EXPECT_TRUE(Start().ok());
}

TEST_F(StoreDamageTest, AMarkThatFailsOnceIsWrittenAgainBeforeTheAnswer) {
  Run(0, kJobs - 1, true);
  EXPECT_EQ(EndOfAFaultyCommit(path_, "store.before_mark=error@1"), 0);
  EXPECT_EQ((*CommitMark::Read(path_ + ".mark"))->point.version, kJobs);
  EXPECT_TRUE(Start().ok());
}

TEST_F(StoreDamageTest, AStoreWithoutItsMarkIsRefused) {
  Run(0, kJobs, true);
  const std::string mark = path_ + ".mark";
  ASSERT_TRUE(RealFileSystem()->Remove(mark).ok());
  EXPECT_THAT(Message(Start()), HasSubstr(mark + " is missing"));
  ASSERT_TRUE(AcceptLossOfSqliteStore(path_).ok());
  EXPECT_TRUE(Start().ok());
}

TEST_F(StoreDamageTest, AMarkWithoutItsStoreIsRefused) {
  Run(0, 3, true);
  ASSERT_TRUE(RealFileSystem()->Remove(path_).ok());
  EXPECT_THAT(Message(Start()), HasSubstr("is missing or empty"));
  EXPECT_FALSE(RealFileSystem()->Exists(path_)) << "nothing is made";
}

TEST_F(StoreDamageTest, AnOldCopyThatIsPutInPlaceIsRefused) {
  Run(0, 3, true);
  const std::string old = *RealFileSystem()->Read(path_);
  Run(3, kJobs, true);
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path_, old).ok());
  EXPECT_THAT(Message(Start()), HasSubstr("57 commits are lost"));
  EXPECT_THAT(Message(Start()), HasSubstr("accept-loss " + dir_));
  const Promise promise = **CommitMark::Read(path_ + ".mark");
  EXPECT_THAT(Message(Start()),
              HasSubstr("written at " + FormatWallTime(promise.time.value())));
}

TEST_F(StoreDamageTest, AStoreThatLostAStartAloneIsNotSaidToHaveLostCommits) {
  Run(0, kJobs, true);
  const std::string old = *RealFileSystem()->Read(path_);
  Run(kJobs, kJobs, true);
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path_, old).ok());
  const Status status = Start();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status),
              HasSubstr("No change of a job or node is lost, but the start of "
                        "epoch 2 is"));
  EXPECT_THAT(Message(status), testing::Not(HasSubstr("0 commits")));
}

// Its version and epoch have caught up.
TEST_F(StoreDamageTest, ACopyThatWentOnByItselfIsRefusedByTheMarkOfTheOther) {
  Run(0, 3, true);
  const std::string old = *RealFileSystem()->Read(path_);
  const std::string old_mark = *RealFileSystem()->Read(path_ + ".mark");
  Run(3, 10, true);
  const std::string mark = *RealFileSystem()->Read(path_ + ".mark");
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path_, old).ok());
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path_ + ".mark", old_mark).ok());
  Run(3, 30, true);
  Run(30, kJobs, true);
  ASSERT_TRUE(Start().ok());
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path_ + ".mark", mark).ok());
  EXPECT_THAT(Message(Start()), HasSubstr("went on by itself in epoch 2"));
}

TEST_F(StoreDamageTest, RestoredBackupBeginsAHistoryAndKeepsWhatWasThere) {
  Run(0, 3, true);
  const auto before = VerifySqliteStore(path_, true);
  ASSERT_TRUE(before.ok()) << Message(before.status());
  const std::string backup = JoinPath(dir_, "backup.db");
  ASSERT_TRUE(BackupSqliteStore(path_, backup).ok());
  Run(3, kJobs, true);
  const auto restored = RestoreSqliteStore(backup, path_);
  ASSERT_TRUE(restored.ok()) << Message(restored.status());
  EXPECT_EQ(restored->jobs, 3);
  EXPECT_NE(restored->point.history, before->point.history);
  EXPECT_TRUE(VerifySqliteStore(path_, true).ok());
  const auto kept = VerifySqliteStore(path_ + ".replaced-1", false);
  ASSERT_TRUE(kept.ok()) << Message(kept.status());
  EXPECT_EQ(kept->jobs, kJobs);
  // Restored again from the same backup: nodes may have obeyed the first
  // restored history.
  ASSERT_TRUE(RestoreSqliteStore(backup, path_).ok());
  auto store = OpenSqliteStore(path_);
  ASSERT_TRUE(store.ok()) << Message(store.status());
  const auto snapshot = (*store)->Load();
  ASSERT_THAT(snapshot->replaced_histories, SizeIs(2));
  EXPECT_EQ(RestoreSqliteStore(backup, path_).status().code(),
            StatusCode::kFailedPrecondition)
      << "a coordinator has it open";
}

TEST_F(StoreDamageTest, ADamagedBackupIsNotRestored) {
  Run(0, kJobs, true);
  const std::string backup = JoinPath(dir_, "backup.db");
  ASSERT_TRUE(BackupSqliteStore(path_, backup).ok());
  std::string bytes = *RealFileSystem()->Read(backup);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(backup, bytes).ok());
  EXPECT_EQ(RestoreSqliteStore(backup, path_).status().code(),
            StatusCode::kDataLoss);
  EXPECT_TRUE(Start().ok()) << "what was there is as it was";
}

// ---- Two coordinators on one directory ----

TEST_F(StoreDamageTest, ASecondCoordinatorWithoutTheLockEndsTheFirst) {
  auto first = OpenSqliteStore(path_);
  ASSERT_TRUE(first.ok() && (*first)->Load().ok());
  ASSERT_TRUE(CommitJob(first->get(), NumberedJob(0), 1).ok());
  ASSERT_TRUE(RealFileSystem()->Remove(path_ + ".lock").ok());
  auto second = OpenSqliteStore(path_);
  ASSERT_TRUE(second.ok()) << Message(second.status());
  ASSERT_TRUE((*second)->Load().ok());
  const Status refused = CommitJob(first->get(), NumberedJob(1), 2);
  EXPECT_EQ(refused.code(), StatusCode::kAborted) << refused.ToString();
  ASSERT_TRUE(CommitJob(second->get(), NumberedJob(2), 2).ok());
  EXPECT_EQ(CommitJob(first->get(), NumberedJob(3), 2).code(),
            StatusCode::kAborted);
}

// ---- The mark ----

TEST_F(StoreDamageTest, TheMarkKeepsTheNewerOfTwoSlots) {
  const std::string file = JoinPath(dir_, "mark");
  const std::string history(kHistoryDigits, 'a');
  EXPECT_FALSE(CommitMark::Read(file)->has_value());
  for (int i = 1; i <= 5; ++i) {
    // A new process each time.
    auto mark = CommitMark::Open(file);
    ASSERT_TRUE(mark.ok());
    const StorePoint point{history, 7, i, std::string(kHistoryDigits, 'b')};
    const WallTime now = WallTime(std::chrono::seconds(1'700'000'000 + i));
    ASSERT_TRUE(mark->Write(point, now).ok());
    const auto read = CommitMark::Read(file);
    ASSERT_TRUE(read.ok() && *read);
    EXPECT_EQ((*read)->point, point);
    EXPECT_EQ((*read)->time, now);
  }
  // The fifth write went to the second slot: torn, the fourth counts.
  std::string bytes = *RealFileSystem()->Read(file);
  bytes[4096 + 20] ^= 1;
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(file, bytes).ok());
  EXPECT_EQ((*CommitMark::Read(file))->point.version, 4);
  bytes[20] ^= 1;
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(file, bytes).ok());
  EXPECT_EQ(CommitMark::Read(file).status().code(), StatusCode::kDataLoss);
}

// It wrote 72 bytes, and leaves what a later version wrote behind them.
TEST_F(StoreDamageTest, AMarkOfAVersionWithoutTimesIsRead) {
  const std::string file = JoinPath(dir_, "mark");
  const StorePoint point{std::string(kHistoryDigits, 'a'), 7, 1,
                         std::string(kHistoryDigits, 'b')};
  auto mark = CommitMark::Open(file);
  ASSERT_TRUE(mark.ok() && mark->Write(point, WallTime()).ok());
  const std::string whole = *RealFileSystem()->Read(file);
  std::string before = whole;
  before.replace(4096 + 72, 48, 48, '\0');
  std::string stale = whole;
  stale[4096 + 72] ^= 1;
  for (const std::string& bytes : {before, stale, whole.substr(0, 4096 + 72)}) {
    ASSERT_TRUE(RealFileSystem()->WriteAtomic(file, bytes).ok());
    const auto read = CommitMark::Read(file);
    ASSERT_TRUE(read.ok() && *read) << Message(read.status());
    EXPECT_EQ((*read)->point, (StorePoint{point.history, 7, 1}));
    EXPECT_FALSE((*read)->time);
  }
}

}  // namespace
}  // namespace lockstep::server
