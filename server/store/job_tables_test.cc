// Rows of jobs in a SQLite file: what a commit writes, what a failed one
// leaves, and what a start says of rows that something else changed.
#include "server/store/job_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <tuple>

#include "common/base/file.h"
#include "server/store/sqlite_store.h"
#include "server/store/testing.h"

namespace lockstep::server {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::SizeIs;

class JobTablesTest : public testing::Test {
 protected:
  // Table, job and number -> digest.
  using Rows = std::map<std::tuple<std::string, JobName, int64_t>, int64_t>;

  void SetUp() override {
    char name[] = "/tmp/lockstep-tables-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    path_ = JoinPath(dir_, "coordinator.db");
    Open();
  }
  void TearDown() override {
    store_.reset();
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  void Open() {
    auto store = OpenSqliteStore(path_);
    ASSERT_TRUE(store.ok()) << Message(store.status());
    store_ = std::move(*store);
  }
  Status TryCommit(const Job& job) {
    StoreBatch batch;
    batch.version = version_ + 1;
    batch.jobs = {std::make_shared<const Job>(job)};
    const Status status = store_->Commit(batch);
    if (status.ok()) ++version_;
    return status;
  }
  void Commit(const Job& job) {
    const Status status = TryCommit(job);
    ASSERT_TRUE(status.ok()) << Message(status);
  }
  // As a new coordinator finds it.
  void ExpectStored(const std::vector<Job>& jobs) {
    store_.reset();
    Open();
    const auto snapshot = store_->Load();
    ASSERT_TRUE(snapshot.ok()) << Message(snapshot.status());
    ASSERT_THAT(snapshot->jobs, SizeIs(jobs.size()));
    for (size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(*snapshot->jobs[i], jobs[i]);
    }
  }
  Rows ReadRows() {
    Rows rows;
    auto db = Database::Open(path_, Database::Access::kRead, true);
    EXPECT_TRUE(db.ok());
    for (const JobTable table : kAllJobTables) {
      const std::string sql =
          fmt::format("SELECT job, number, digest FROM {}", Name(table));
      EXPECT_TRUE(
          db->ForEach(sql.c_str(), [&](const Statement& row) {
              rows[{std::string(Name(table)), row.Text(0), row.Int(1)}] =
                  row.Int(2);
              return OkStatus();
            }).ok());
    }
    return rows;
  }
  // As a person with the sqlite3 program would.
  void Sql(const std::string& sql) {
    auto db = Database::Open(path_, Database::Access::kWrite, true);
    ASSERT_TRUE(db.ok());
    const Status status = db->Execute(sql.c_str());
    ASSERT_TRUE(status.ok()) << Message(status);
  }
  size_t LogBytes() const {
    return RealFileSystem()->Read(path_ + "-wal").value_or("").size();
  }

  std::string dir_;
  std::string path_;
  std::unique_ptr<Store> store_;
  int64_t version_ = 0;
};

TEST_F(JobTablesTest, AReportOfOneTaskChangesItsRowAndTheState) {
  Job job = WideJob(300);
  Commit(job);
  const Rows before = ReadRows();
  const size_t log = LogBytes();
  job.resource_version = 78;
  job.tasks[200].address = "10.0.0.2:7001";
  Commit(job);
  Rows changed;
  const Rows after = ReadRows();
  EXPECT_EQ(after.size(), before.size());
  for (const auto& [row, digest] : after) {
    if (before.at(row) != digest) changed[row] = digest;
  }
  EXPECT_THAT(changed, testing::UnorderedElementsAre(
                           testing::Key(std::tuple("jobs", "full", 0)),
                           testing::Key(std::tuple("tasks", "full", 200))));
  EXPECT_LT(LogBytes() - log, 64u << 10) << "pages of the log";
  ExpectStored({job});
}

TEST_F(JobTablesTest, EveryVersionIsThereAfterAStart) {
  Job one = WideJob(3);
  Job two = FullJob();
  two.spec.name = "two";
  Commit(one);
  Commit(two);
  ExpectStored({one, two});
  // Compared with what was loaded.
  one.tasks[1].address = "another";
  one.tasks.pop_back();
  one.events.clear();
  one.attempts.erase(one.attempts.begin());
  one.cluster.reset();
  Commit(one);
  two.holds.push_back({"b", 8, {}, {1}, WallTime{}});
  two.reduction_plan.clear();
  Commit(two);
  ExpectStored({one, two});
}

TEST_F(JobTablesTest, RowsOfAJobThatWasNotLoadedAreReplaced) {
  Job job = WideJob(3);
  Commit(job);
  store_.reset();
  Open();
  job.tasks.pop_back();
  job.events.clear();
  Commit(job);
  ExpectStored({job});
}

TEST_F(JobTablesTest, ADeletedJobLeavesNoRow) {
  Commit(FullJob());
  StoreBatch batch;
  batch.version = ++version_;
  batch.delete_jobs = {"full"};
  ASSERT_TRUE(store_->Commit(batch).ok());
  EXPECT_TRUE(ReadRows().empty());
  ExpectStored({});
}

// It fails when some of its rows are written already.
TEST_F(JobTablesTest, AFailedCommitLeavesNothing) {
  Job job = WideJob(8);
  Commit(job);
  const Rows before = ReadRows();
  Sql("CREATE TRIGGER broken BEFORE UPDATE ON tasks WHEN NEW.number = 5"
      " BEGIN SELECT RAISE(ABORT, 'broken'); END");
  Job next = job;
  for (TaskStatus& task : next.tasks) task.address = "new";
  next.events.clear();
  next.cluster.reset();
  next.holds.clear();
  EXPECT_EQ(TryCommit(next).code(), StatusCode::kUnavailable);
  Job added = FullJob();
  added.spec.name = "added";
  StoreBatch both;
  both.version = version_ + 1;
  both.jobs = {std::make_shared<const Job>(added),
               std::make_shared<const Job>(next)};
  both.delete_jobs = {"full"};
  EXPECT_FALSE(store_->Commit(both).ok());
  EXPECT_EQ(ReadRows(), before);
  Sql("DROP TRIGGER broken");
  // Compared with what is stored, and not with what failed.
  job.events.pop_back();
  job.tasks[3].address = "other";
  Commit(job);
  Commit(next);
  Commit(added);
  ExpectStored({added, next});
  EXPECT_TRUE(VerifySqliteStore(path_, true).ok());
}

TEST_F(JobTablesTest, AStatementThatCouldNotBeMadeIsMadeLater) {
  Sql("ALTER TABLE tasks RENAME TO elsewhere");
  EXPECT_FALSE(TryCommit(FullJob()).ok());
  Sql("ALTER TABLE elsewhere RENAME TO tasks");
  Commit(FullJob());
  ExpectStored({FullJob()});
}

// ---- Damage that page checksums cannot show ----

class RowDamageTest : public JobTablesTest,
                      public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    JobTablesTest::SetUp();
    Job job = WideJob(3);
    std::vector<NodeRecord> nodes(2, FullNode());
    nodes[1].info.name = "node-b";
    for (const char* id : {"1", "2"}) {
      StoreBatch batch;
      batch.version = ++version_;
      batch.jobs = {std::make_shared<const Job>(job)};
      batch.nodes = {&nodes[0], &nodes[1]};
      batch.request = FullRequest();
      batch.request->id = id;
      ASSERT_TRUE(store_->Commit(batch).ok());
      job.holds[1].gpus = {7};
    }
    store_.reset();
    const Status whole = OpenSqliteStore(path_).status();
    ASSERT_TRUE(whole.ok()) << Message(whole);
  }
  // `sql` with the table for {}.
  Status StartAfter(const char* sql) {
    Sql(fmt::format(fmt::runtime(sql), GetParam()));
    EXPECT_EQ(VerifySqliteStore(path_, true).status().code(),
              StatusCode::kDataLoss);
    return OpenSqliteStore(path_).status();
  }
};

TEST_P(RowDamageTest, AnotherByte) {
  const Status status = StartAfter(
      "UPDATE {0} SET record = CAST(X'FF' || substr(record, 2) AS BLOB) WHERE"
      " record = (SELECT max(record) FROM {0})");
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status),
              HasSubstr(fmt::format("in {} differs", GetParam())));
}

TEST_P(RowDamageTest, ALostRow) {
  const Status status = StartAfter(
      "DELETE FROM {0} WHERE record = (SELECT max(record) FROM {0})");
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr(fmt::format("{} has", GetParam())));
}

TEST_P(RowDamageTest, ASwappedRow) {
  const Status status = StartAfter(
      "CREATE TEMP TABLE c AS SELECT record, digest FROM {0};"
      "UPDATE {0} SET (record, digest) ="
      " (SELECT c.record, c.digest FROM c WHERE c.record <> {0}.record)");
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status),
              HasSubstr(fmt::format("in {} differs", GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Tables, RowDamageTest,
                         testing::Values("jobs", "tasks", "attempts", "events",
                                         "holds", "nodes", "requests"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// Its own digest is right, and the number of rows.
TEST_F(JobTablesTest, AnOldVersionOfARowIsNoticed) {
  Job job = WideJob(3);
  Commit(job);
  Sql("CREATE TABLE kept AS SELECT * FROM tasks WHERE number = 1");
  job.tasks[1].address = "new";
  Commit(job);
  store_.reset();
  Sql("UPDATE tasks SET (record, digest) = (SELECT record, digest FROM kept)"
      " WHERE number = 1");
  EXPECT_THAT(Message(OpenSqliteStore(path_).status()),
              HasSubstr("tasks has 3 rows, and the last commit left 3 others"));
}

TEST_F(JobTablesTest, RowsThatMakeNoJobNameIt) {
  Commit(FullJob());
  store_.reset();
  auto db = Database::Open(path_, Database::Access::kWrite, true);
  ASSERT_TRUE(db.ok());
  ASSERT_TRUE(db->Execute("DELETE FROM jobs WHERE number = 1").ok());
  const Status status =
      ForEachJob(&*db, [](const StoredVersion&) { return OkStatus(); });
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr(path_ + ": full: "));
}

}  // namespace
}  // namespace lockstep::server
