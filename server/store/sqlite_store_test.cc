#include "server/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/wire/worker_wire.h"
#include "server/core/testing.h"
#include "server/store/checked_vfs.h"
#include "server/store/testing.h"

namespace lockstep::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class SqliteStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-store-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    path_ = JoinPath(dir_, "coordinator.db");
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  std::unique_ptr<Store> Open() {
    auto store = OpenSqliteStore(path_);
    EXPECT_TRUE(store.ok()) << Message(store.status());
    return store.ok() ? std::move(*store) : nullptr;
  }
  StoreSnapshot Load(Store* store) {
    auto snapshot = store->Load();
    EXPECT_TRUE(snapshot.ok()) << Message(snapshot.status());
    return snapshot.value_or(StoreSnapshot{});
  }
  static Status CommitJob(Store* store, const Job& job, int64_t version) {
    StoreBatch batch;
    batch.version = version;
    batch.jobs = {std::make_shared<const Job>(job)};
    return store->Commit(batch);
  }
  // As another program would; through `vfs`: as a coordinator would.
  void Sql(const std::string& sql, const char* vfs = nullptr) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open_v2(path_.c_str(), &db,
                              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs),
              SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error),
              SQLITE_OK)
        << error;
    sqlite3_close(db);
  }
  std::string Contents() {
    return RealFileSystem()->Read(path_).value_or("unreadable");
  }

  std::string dir_;
  std::string path_;
};

TEST_F(SqliteStoreTest, NewStoreIsEmpty) {
  auto store = Open();
  const StoreSnapshot snapshot = Load(store.get());
  EXPECT_EQ(snapshot.epoch, 1u);
  EXPECT_EQ(snapshot.version, 0);
  EXPECT_THAT(snapshot.jobs, IsEmpty());
  EXPECT_THAT(snapshot.nodes, IsEmpty());
  EXPECT_THAT(snapshot.requests, IsEmpty());
}

TEST_F(SqliteStoreTest, EverythingIsThereAfterReopening) {
  Job job = FullJob();
  const NodeRecord node = FullNode();
  {
    auto store = Open();
    Load(store.get());
    StoreBatch batch;
    batch.version = 1;
    batch.jobs = {std::make_shared<const Job>(job)};
    batch.nodes = {&node};
    batch.request = FullRequest();
    ASSERT_TRUE(store->Commit(batch).ok());
  }
  auto store = Open();
  const StoreSnapshot snapshot = Load(store.get());
  EXPECT_EQ(snapshot.version, 1);
  ASSERT_THAT(snapshot.jobs, SizeIs(1));
  EXPECT_EQ(*snapshot.jobs[0], job);
  ASSERT_THAT(snapshot.nodes, SizeIs(1));
  EXPECT_EQ(snapshot.nodes[0], node);
  ASSERT_THAT(snapshot.requests, SizeIs(1));
  EXPECT_EQ(snapshot.requests[0].response, FullRequest().response);
}

TEST_F(SqliteStoreTest, LaterCommitsReplace) {
  Job job = FullJob();
  auto store = Open();
  ASSERT_TRUE(CommitJob(store.get(), job, 1).ok());
  job.exit_code = 5;
  ASSERT_TRUE(CommitJob(store.get(), job, 2).ok());
  const StoreSnapshot snapshot = Load(store.get());
  ASSERT_THAT(snapshot.jobs, SizeIs(1));
  EXPECT_EQ(snapshot.jobs[0]->exit_code, 5);
  EXPECT_EQ(snapshot.version, 2);
}

TEST_F(SqliteStoreTest, EpochRisesWithEveryStart) {
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    auto store = Open();
    EXPECT_EQ(Load(store.get()).epoch, epoch);
  }
}

TEST_F(SqliteStoreTest, OldRequestsAreForgotten) {
  auto store = Open();
  StoreBatch batch;
  batch.version = 1;
  batch.request = FullRequest();
  ASSERT_TRUE(store->Commit(batch).ok());
  StoreBatch forget;
  forget.version = 2;
  forget.forget_requests_before = FullRequest().time;
  ASSERT_TRUE(store->Commit(forget).ok());
  EXPECT_THAT(Load(store.get()).requests, SizeIs(1)) << "exactly at the time";
  forget.version = 3;
  *forget.forget_requests_before += std::chrono::nanoseconds(1);
  ASSERT_TRUE(store->Commit(forget).ok());
  EXPECT_THAT(Load(store.get()).requests, IsEmpty());
}

TEST_F(SqliteStoreTest, NamedRequestsAreForgotten) {
  auto store = Open();
  for (int i = 1; i <= 3; ++i) {
    StoreBatch batch;
    batch.version = i;
    batch.request = FullRequest();
    batch.request->id = std::to_string(i);
    if (i == 3) batch.forget_requests = {{FullRequest().client, "1"}};
    ASSERT_TRUE(store->Commit(batch).ok());
  }
  const StoreSnapshot snapshot = Load(store.get());
  ASSERT_THAT(snapshot.requests, SizeIs(2));
  EXPECT_EQ(snapshot.requests[0].id, "2");
}

TEST_F(SqliteStoreTest, MemoryStoreWorksToo) {
  path_ = ":memory:";
  auto store = Open();
  ASSERT_TRUE(CommitJob(store.get(), FullJob(), 1).ok());
  EXPECT_THAT(Load(store.get()).jobs, SizeIs(1));
}

// ---- Files that are not to be opened ----

TEST_F(SqliteStoreTest, SecondCoordinatorIsRefused) {
  auto first = Open();
  const auto second = OpenSqliteStore(path_);
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(second.status()), HasSubstr(path_));
  EXPECT_THAT(Message(second.status()),
              HasSubstr("is a coordinator running on this directory already?"));
  EXPECT_TRUE(CommitJob(first.get(), FullJob(), 1).ok());
  first.reset();
  EXPECT_TRUE(OpenSqliteStore(path_).ok());
}

TEST_F(SqliteStoreTest, SecondProcessIsRefusedToo) {
  auto first = Open();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto second = OpenSqliteStore(path_);
    ::_exit(second.status().code() == StatusCode::kFailedPrecondition ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(SqliteStoreTest, FileOfAnotherProgramIsLeftAsItIs) {
  Sql("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)");
  const std::string before = Contents();
  const auto store = OpenSqliteStore(path_);
  EXPECT_EQ(store.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(store.status()), HasSubstr("another program"));
  EXPECT_EQ(Contents(), before);
}

TEST_F(SqliteStoreTest, TextIsNoDatabase) {
  ASSERT_TRUE(
      RealFileSystem()->WriteAtomic(path_, std::string(4096, 'x')).ok());
  const auto store = OpenSqliteStore(path_);
  EXPECT_EQ(store.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(store.status()), HasSubstr(path_));
  EXPECT_THAT(Message(store.status()), HasSubstr("restore it from a backup"));
}

TEST_F(SqliteStoreTest, DamagedPagesAreNoticedAtTheStart) {
  {
    auto store = Open();
    Job job = FullJob();
    for (int i = 0; i < 50; ++i) {
      job.spec.name = fmt::format("job{}", i);
      ASSERT_TRUE(CommitJob(store.get(), job, i + 1).ok());
    }
  }
  std::string bytes = Contents();
  ASSERT_GT(bytes.size(), 40000u);
  for (size_t i = 8192; i < bytes.size(); i += 512) bytes[i] ^= 0x5a;
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path_, bytes).ok());
  auto store = OpenSqliteStore(path_);
  // Damage inside a record is the record's to notice.
  const Status status = store.ok() ? (*store)->Load().status() : store.status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
  EXPECT_THAT(Message(status), HasSubstr(path_));
}

TEST_F(SqliteStoreTest, DamagedRecordNamesFileAndJob) {
  {
    auto store = Open();
    ASSERT_TRUE(CommitJob(store.get(), FullJob(), 1).ok());
  }
  Sql("UPDATE jobs SET record = x'ffff'", CheckedVfs());
  const Status status = OpenSqliteStore(path_).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr(path_));
  EXPECT_THAT(Message(status), HasSubstr("the digest of full in jobs differs"));
}

TEST_F(SqliteStoreTest, LaterSchemaIsRefusedAndKept) {
  { auto store = Open(); }
  Sql("PRAGMA user_version = 99", CheckedVfs());
  const auto store = OpenSqliteStore(path_);
  EXPECT_EQ(store.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(store.status()), HasSubstr("later version (schema 99"));
}

TEST_F(SqliteStoreTest, MissingDirectoryIsNamed) {
  path_ = JoinPath(dir_, "no/such/file.db");
  EXPECT_THAT(Message(OpenSqliteStore(path_).status()), HasSubstr(path_));
}

// ---- Crashes and errors in the middle ----

// A file that may not grow is what a full disk looks like to the store.
TEST_F(SqliteStoreTest, FullDiskIsAnErrorAndNoDamage) {
  {
    auto store = Open();
    ASSERT_TRUE(CommitJob(store.get(), FullJob(), 1).ok());
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    auto store = OpenSqliteStore(path_);
    if (!store.ok()) ::_exit(1);
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 200 << 10;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Job job = FullJob();
    job.spec.comment = std::string(2000, 'x');
    int64_t version = 1;
    Status status;
    while (version < 5000) {
      job.spec.name = fmt::format("job{}", version);
      status = CommitJob(store->get(), job, version + 1);
      if (!status.ok()) break;
      ++version;
    }
    if (status.code() != StatusCode::kResourceExhausted &&
        status.code() != StatusCode::kUnavailable) {
      ::_exit(2);
    }
    // There is room again.
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::_exit(CommitJob(store->get(), job, version + 1).ok() ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  auto store = Open();
  const StoreSnapshot snapshot = Load(store.get());
  EXPECT_EQ(static_cast<int64_t>(snapshot.jobs.size()), snapshot.version)
      << "each commit has one job";
}

// ---- Deletion, backup, migration ----

TEST_F(SqliteStoreTest, DeletedJobsAndForgottenNodesAreGoneForGood) {
  Job job = FullJob();
  NodeRecord node = FullNode();
  {
    auto store = Open();
    StoreBatch batch;
    batch.version = 1;
    batch.jobs = {std::make_shared<const Job>(job)};
    batch.nodes = {&node};
    ASSERT_TRUE(store->Commit(batch).ok());
    StoreBatch deletion;
    deletion.version = 2;
    deletion.delete_jobs = {job.spec.name};
    deletion.forget_nodes = {node.info.name};
    ASSERT_TRUE(store->Commit(deletion).ok());
  }
  auto store = Open();
  const StoreSnapshot snapshot = Load(store.get());
  EXPECT_THAT(snapshot.jobs, IsEmpty());
  EXPECT_THAT(snapshot.nodes, IsEmpty());
  EXPECT_THAT(snapshot.deleted_jobs, testing::ElementsAre(job.spec.name));
}

TEST_F(SqliteStoreTest, BackupOfAStoreInUse) {
  const std::string to = JoinPath(dir_, "backup.db");
  auto store = Open();
  Job job = FullJob();
  ASSERT_TRUE(CommitJob(store.get(), job, 1).ok());
  const Status status = BackupSqliteStore(path_, to);
  ASSERT_TRUE(status.ok()) << Message(status);
  job.spec.name = "later";
  ASSERT_TRUE(CommitJob(store.get(), job, 2).ok()) << "it goes on";
  EXPECT_EQ(BackupSqliteStore(path_, to).code(), StatusCode::kAlreadyExists);
  EXPECT_FALSE(RealFileSystem()->Exists(to + ".part"));
  store.reset();
  ASSERT_TRUE(RestoreSqliteStore(to, path_).ok());
  const StoreSnapshot snapshot = Load(Open().get());
  ASSERT_THAT(snapshot.jobs, SizeIs(1));
  EXPECT_EQ(*snapshot.jobs[0], FullJob());
  EXPECT_EQ(snapshot.version, 1);
}

TEST_F(SqliteStoreTest, BackupsWhileCommitsGoOnAreWhole) {
  auto store = Open();
  Job job = FullJob();
  std::atomic<bool> stop{false};
  std::atomic<int64_t> version{0};
  std::thread writer([&] {
    while (!stop) {
      job.restarts = static_cast<int32_t>(version + 1);
      EXPECT_TRUE(CommitJob(store.get(), job, version + 1).ok());
      ++version;
    }
  });
  for (int i = 0; i < 5; ++i) {
    const int64_t before = version;
    const std::string to = JoinPath(dir_, fmt::format("backup{}.db", i));
    const Status status = BackupSqliteStore(path_, to);
    EXPECT_TRUE(status.ok()) << Message(status);
    const std::string elsewhere = JoinPath(dir_, fmt::format("store{}.db", i));
    ASSERT_TRUE(RestoreSqliteStore(to, elsewhere).ok());
    const auto copy = OpenSqliteStore(elsewhere);
    ASSERT_TRUE(copy.ok()) << Message(copy.status());
    const StoreSnapshot snapshot = Load(copy->get());
    EXPECT_GE(snapshot.version, before);
    if (snapshot.version > 0) {
      ASSERT_THAT(snapshot.jobs, SizeIs(1));
      EXPECT_EQ(snapshot.jobs[0]->restarts, snapshot.version) << "one commit";
    }
  }
  stop = true;
  writer.join();
}

TEST_F(SqliteStoreTest, BackupOfSomethingElseIsRefused) {
  const std::string to = JoinPath(dir_, "backup.db");
  EXPECT_EQ(BackupSqliteStore(path_, to).code(), StatusCode::kNotFound);
  Sql("CREATE TABLE theirs (x)");
  EXPECT_EQ(BackupSqliteStore(path_, to).code(),
            StatusCode::kFailedPrecondition);
  ASSERT_TRUE(
      RealFileSystem()->WriteAtomic(path_, std::string(4096, 'x')).ok());
  EXPECT_EQ(BackupSqliteStore(path_, to).code(), StatusCode::kDataLoss);
  EXPECT_FALSE(RealFileSystem()->Exists(to));
}

// As the first version wrote it.
TEST_F(SqliteStoreTest, NodesOfSchema1AreTakenOverAndACopyIsKept) {
  NodeRecord node = FullNode();
  const std::string old =
      ToProto(Registration{node.info, {}, {}}).SerializeAsString();
  std::string hex;
  for (const unsigned char c : old) hex += fmt::format("{:02x}", c);
  Sql("CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)"
      " WITHOUT ROWID;"
      "INSERT INTO counters VALUES ('epoch', 4), ('version', 7);"
      "CREATE TABLE jobs (name TEXT PRIMARY KEY, record BLOB NOT NULL);"
      "CREATE TABLE nodes (name TEXT PRIMARY KEY, record BLOB NOT NULL);"
      "CREATE TABLE requests (client TEXT NOT NULL, id TEXT NOT NULL,"
      " time INTEGER NOT NULL, record BLOB NOT NULL,"
      " PRIMARY KEY (client, id)) WITHOUT ROWID;"
      "CREATE INDEX requests_by_time ON requests (time);"
      "PRAGMA user_version = 1; PRAGMA application_id = 1280262987;"
      "INSERT INTO nodes VALUES ('node-a', x'" +
      hex + "')");
  auto store = Open();
  const StoreSnapshot snapshot = Load(store.get());
  ASSERT_THAT(snapshot.nodes, SizeIs(1));
  EXPECT_EQ(snapshot.nodes[0].info, node.info);
  EXPECT_FALSE(snapshot.nodes[0].drain);
  EXPECT_EQ(snapshot.version, 7);
  EXPECT_TRUE(RealFileSystem()->Exists(path_ + ".schema-1"));
}

class StoreCrashTest : public SqliteStoreTest {
 protected:
  // Runs commits in a child that dies at the fault point; returns what a new
  // start finds.
  StoreSnapshot AfterCrash(const std::string& fault) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (!EnableFaults(fault).ok()) ::_exit(1);
      auto store = OpenSqliteStore(path_);
      if (!store.ok() || !(*store)->Load().ok()) ::_exit(2);
      Job job = FullJob();
      for (int i = 1; i <= 5; ++i) {
        job.exit_code = i;
        StoreBatch batch;
        batch.version = i;
        batch.jobs = {std::make_shared<const Job>(job)};
        batch.request = FullRequest();
        batch.request->id = std::to_string(i);
        if (!(*store)->Commit(batch).ok()) ::_exit(3);
      }
      ::_exit(4);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), kFaultExitCode) << fault;
    auto store = Open();
    return Load(store.get());
  }
};

TEST_F(StoreCrashTest, CommitIsAllOrNothing) {
  int64_t seen = 0;
  for (int at = 1; at <= 5; ++at) {
    const StoreSnapshot before =
        AfterCrash(fmt::format("store.before_commit=crash@{}", at));
    EXPECT_EQ(before.version, at - 1);
    EXPECT_THAT(before.requests, SizeIs(at - 1));
    if (at > 1) {
      EXPECT_EQ(before.jobs[0]->exit_code, at - 1);
    }
    ASSERT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
    ASSERT_TRUE(RealFileSystem()->MakeDirs(dir_).ok());
    const StoreSnapshot after =
        AfterCrash(fmt::format("store.after_commit=crash@{}", at));
    EXPECT_EQ(after.version, at);
    EXPECT_THAT(after.requests, SizeIs(at));
    EXPECT_EQ(after.jobs[0]->exit_code, at);
    EXPECT_EQ(after.epoch, 2u);
    ASSERT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
    ASSERT_TRUE(RealFileSystem()->MakeDirs(dir_).ok());
    seen += after.version;
  }
  EXPECT_EQ(seen, 15);
}

}  // namespace
}  // namespace lockstep::server
