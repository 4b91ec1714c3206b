// Files of earlier versions: each becomes one of this with all that it has, or
// stays as it is.
#include "server/store/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdlib>

#include "common/base/file.h"
#include "server/store/checked_vfs.h"
#include "server/store/sqlite_store.h"
#include "server/store/testing.h"

namespace lockstep::server {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class SchemaTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-schema-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    path_ = JoinPath(dir_, "coordinator.db");
    jobs_ = {FullJob(), WideJob(40)};
    jobs_[1].spec.name = "wide";
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  // A store of schema 4 with two jobs, a node and a request.
  void MakeStore() {
    auto store = OpenSqliteStore(path_);
    ASSERT_TRUE(store.ok() && (*store)->Load().ok());
    const NodeRecord node = FullNode();
    StoreBatch batch;
    batch.version = 1;
    for (const Job& job : jobs_) {
      batch.jobs.push_back(std::make_shared<const Job>(job));
    }
    batch.nodes = {&node};
    batch.request = FullRequest();
    ASSERT_TRUE((*store)->Commit(batch).ok());
    store->reset();
    const Status status = MakeSchema4(path_);
    ASSERT_TRUE(status.ok()) << Message(status);
  }
  void Sql(const std::string& sql) {
    auto db = Database::Open(path_, Database::Access::kWrite, true);
    ASSERT_TRUE(db.ok()) << Message(db.status());
    const Status status = db->Execute(sql.c_str());
    ASSERT_TRUE(status.ok()) << Message(status);
  }
  int64_t SchemaOf(const std::string& path) {
    auto db = Database::Open(path, Database::Access::kRead, true);
    EXPECT_TRUE(db.ok()) << Message(db.status());
    return db.ok() ? db->Number("PRAGMA user_version").value_or(-1) : -1;
  }
  // All is there, and can be changed.
  void ExpectTakenOver() {
    auto store = OpenSqliteStore(path_);
    ASSERT_TRUE(store.ok()) << Message(store.status());
    EXPECT_EQ(SchemaOf(path_), kSchemaWithJobRows);
    const auto snapshot = (*store)->Load();
    ASSERT_TRUE(snapshot.ok()) << Message(snapshot.status());
    ASSERT_THAT(snapshot->jobs, SizeIs(2));
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(*snapshot->jobs[i], jobs_[i]);
    ASSERT_THAT(snapshot->requests, SizeIs(1));
    EXPECT_EQ(snapshot->requests[0].response, FullRequest().response);
    jobs_[1].tasks[30].address = "new";
    StoreBatch batch;
    batch.version = snapshot->version + 1;
    batch.jobs = {std::make_shared<const Job>(jobs_[1])};
    ASSERT_TRUE((*store)->Commit(batch).ok());
    const auto report = VerifySqliteStore(path_, true);
    ASSERT_TRUE(report.ok()) << Message(report.status());
    EXPECT_EQ(report->jobs, 2);
    const auto again = (*store)->Load();
    ASSERT_TRUE(again.ok()) << Message(again.status());
    EXPECT_EQ(*again->jobs[1], jobs_[1]);
  }

  std::string dir_;
  std::string path_;
  // In the order of their names.
  std::vector<Job> jobs_;
};

TEST_F(SchemaTest, JobsOfSchema4BecomeRowsAndACopyIsKept) {
  MakeStore();
  const auto before = VerifySqliteStore(path_, true);
  ASSERT_TRUE(before.ok()) << Message(before.status());
  EXPECT_EQ(before->jobs, 2);
  ExpectTakenOver();
  EXPECT_EQ(SchemaOf(path_ + ".schema-4"), 4);
  EXPECT_TRUE(VerifySqliteStore(path_ + ".schema-4", false).ok());
}

// As it was before epochs had ids.
TEST_F(SchemaTest, AStoreWithoutIdsOfEpochsIsTakenOver) {
  MakeStore();
  Sql("ALTER TABLE epochs DROP COLUMN id; PRAGMA user_version = 3");
  const auto before = VerifySqliteStore(path_, true);
  ASSERT_TRUE(before.ok()) << Message(before.status());
  EXPECT_EQ(before->point.epoch_id, "");
  EXPECT_EQ(before->jobs, 2);
  ExpectTakenOver();
  auto store = OpenSqliteStore(path_);
  ASSERT_TRUE(store.ok()) << Message(store.status());
  const auto snapshot = (*store)->Load();
  ASSERT_TRUE(snapshot.ok()) << Message(snapshot.status());
  EXPECT_EQ(snapshot->epoch_starts.at(1).id, "");
  EXPECT_TRUE(IsHistory(snapshot->epoch_starts.at(2).id));
}

TEST_F(SchemaTest, ABackupOfSchema4CanBeVerifiedAndRestored) {
  MakeStore();
  const std::string backup = JoinPath(dir_, "backup.db");
  ASSERT_TRUE(BackupSqliteStore(path_, backup).ok());
  const auto report = VerifySqliteStore(backup, false);
  ASSERT_TRUE(report.ok()) << Message(report.status());
  EXPECT_EQ(report->jobs, 2);
  const auto restored = RestoreSqliteStore(backup, path_);
  ASSERT_TRUE(restored.ok()) << Message(restored.status());
  EXPECT_EQ(restored->jobs, 2);
  EXPECT_EQ(SchemaOf(backup), 4);
  ExpectTakenOver();
}

// Its rows are written anew, with digests of their own.
TEST_F(SchemaTest, DamageOfAnEarlierSchemaIsNotTakenOver) {
  MakeStore();
  Job other = jobs_[0];
  other.exit_code = 9;
  std::string hex;
  for (const unsigned char c : RecordOfSchema4(other)) {
    hex += fmt::format("{:02x}", c);
  }
  Sql("UPDATE jobs SET record = x'" + hex + "' WHERE name = 'full'");
  EXPECT_EQ(VerifySqliteStore(path_, true).status().code(),
            StatusCode::kDataLoss);
  const Status status = OpenSqliteStore(path_).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("the digest of full in jobs differs"));
  EXPECT_EQ(SchemaOf(path_), 4);
}

TEST_F(SchemaTest, AJobThatCannotBeReadLeavesTheFileAsItIs) {
  MakeStore();
  {
    auto db = Database::Open(path_, Database::Access::kWrite, true);
    ASSERT_TRUE(db.ok()) << Message(db.status());
    TableDigest jobs = StoredDigests(&*db)->at("jobs");
    jobs.Remove(static_cast<uint64_t>(
        *db->Number("SELECT digest FROM jobs WHERE name = 'wide'")));
    const uint64_t digest = RowDigest("wide", "\xff\xff");
    jobs.Add(digest);
    ASSERT_TRUE(StoreDigest(&*db, "jobs", jobs).ok());
    Sql(
        fmt::format("UPDATE jobs SET record = x'ffff', digest = {} WHERE name ="
                    " 'wide'",
                    static_cast<int64_t>(digest)));
  }
  for (int i = 0; i < 2; ++i) {
    const Status status = OpenSqliteStore(path_).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(Message(status), HasSubstr(path_ + ": wide: "));
    EXPECT_EQ(SchemaOf(path_), 4);
  }
}

// In plain pages, without digests and a mark.
TEST_F(SchemaTest, PagesOfAnOlderVersionGetChecksums) {
  MakeStore();
  // The same rows in plain pages, in the tables of schema 2.
  const std::string plain = JoinPath(dir_, "plain.db");
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open_v2(
                plain.c_str(), &db,
                SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI,
                nullptr),
            SQLITE_OK);
  const std::string sql = fmt::format(
      "PRAGMA journal_mode=WAL;"
      "ATTACH 'file:{}?vfs={}' AS s;"
      "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)"
      " WITHOUT ROWID;"
      "INSERT INTO counters SELECT * FROM s.counters"
      " WHERE name IN ('epoch', 'version');"
      "CREATE TABLE jobs (name TEXT PRIMARY KEY, record BLOB NOT NULL);"
      "INSERT INTO jobs SELECT name, record FROM s.jobs;"
      "CREATE TABLE nodes (name TEXT PRIMARY KEY, record BLOB NOT NULL);"
      "CREATE TABLE requests (client TEXT NOT NULL, id TEXT NOT NULL,"
      " time INTEGER NOT NULL, record BLOB NOT NULL,"
      " PRIMARY KEY (client, id)) WITHOUT ROWID;"
      "INSERT INTO requests SELECT client, id, time, record FROM s.requests;"
      "CREATE INDEX requests_by_time ON requests (time);"
      "CREATE TABLE deleted_jobs (name TEXT PRIMARY KEY) WITHOUT ROWID;"
      "PRAGMA user_version = 2; PRAGMA application_id = 1280262987;",
      path_, CheckedVfs());
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK)
      << error;
  sqlite3_close(db);
  ASSERT_EQ(*PageFormatOf(plain), PageFormat::kPlain);
  const std::string old = *RealFileSystem()->Read(plain);
  ASSERT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  ASSERT_TRUE(RealFileSystem()->MakeDirs(dir_, 0700).ok());
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path_, old).ok());
  ExpectTakenOver();
  EXPECT_EQ(*PageFormatOf(path_), PageFormat::kChecked);
  EXPECT_TRUE(RealFileSystem()->Exists(path_ + ".schema-2"));
}

}  // namespace
}  // namespace lockstep::server
