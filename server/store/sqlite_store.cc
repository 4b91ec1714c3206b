#include "server/store/sqlite_store.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/fault_point.h"
#include "common/base/fd.h"
#include "common/base/leave.h"
#include "common/base/logging.h"
#include "common/base/random.h"
#include "server/store/commit_mark.h"
#include "server/store/job_tables.h"
#include "server/store/record.h"
#include "server/store/row_digest.h"
#include "server/store/schema.h"
#include "server/store/sqlite.h"
#include "server/store/store_file.h"

namespace lockstep::server {
namespace {

constexpr int kKeptEpochs = 1000;
// A second in all: a disk that takes no write for longer may take none at all.
constexpr int kMarkTries = 10;
constexpr auto kMarkPause = std::chrono::milliseconds(100);

class SqliteStore final : public Store {
 public:
  SqliteStore(Fd lock, Database db)
      : lock_(std::move(lock)), db_(std::move(db)), jobs_(&db_, &digests_) {}

  Status Open() {
    LOCKSTEP_RETURN_IF_ERROR(db_.Execute("PRAGMA journal_mode=WAL"));
    LOCKSTEP_RETURN_IF_ERROR(db_.Execute("PRAGMA synchronous=FULL"));
    // Before anything is written.
    if (OnDisk()) LOCKSTEP_RETURN_IF_ERROR(CheckMark(&db_));
    LOCKSTEP_RETURN_IF_ERROR(BringUpToDate(&db_));
    LOCKSTEP_RETURN_IF_ERROR(CheckDigests(&db_));
    LOCKSTEP_ASSIGN_OR_RETURN(digests_, StoredDigests(&db_));
    LOCKSTEP_ASSIGN_OR_RETURN(point_, PointOf(&db_));
    if (!OnDisk()) return OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(CommitMark mark,
                              CommitMark::Open(MarkPath(db_.path())));
    mark_.emplace(std::move(mark));
    // From here on a store without its mark is a damaged one.
    LOCKSTEP_RETURN_IF_ERROR(WriteMark());
    return db_.SetCounter("marked", 1);
  }

  StatusOr<StoreSnapshot> Load() override {
    StoreSnapshot snapshot;
    snapshot.version = point_.version;
    snapshot.history = point_.history;
    LOCKSTEP_RETURN_IF_ERROR(ReadRows(&snapshot));
    LOCKSTEP_ASSIGN_OR_RETURN(snapshot.replaced_histories,
                              ReplacedHistories(&db_));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t floor,
                              db_.Counter("generation_floor"));
    snapshot.generation_floor = static_cast<Generation>(floor);
    // Last: a start that fails before must not use one up.
    LOCKSTEP_RETURN_IF_ERROR(BeginEpoch());
    LOCKSTEP_RETURN_IF_ERROR(db_.ForEach(
        "SELECT epoch, version, id FROM epochs", [&](const Statement& row) {
          snapshot.epoch_starts[static_cast<uint64_t>(row.Int(0))] = {
              row.Int(1), row.Text(2)};
          return OkStatus();
        }));
    snapshot.epoch = point_.epoch;
    return snapshot;
  }

  Status Commit(const StoreBatch& batch) override {
    LOCKSTEP_RETURN_IF_ERROR(FaultPoint("store.before_commit"));
    const TableDigests before = digests_;
    LOCKSTEP_RETURN_IF_ERROR(db_.Execute("BEGIN IMMEDIATE"));
    Status status = CheckEpoch();
    if (status.ok()) status = Write(batch);
    if (status.ok()) status = StoreDigests(before);
    if (status.ok()) status = db_.Execute("COMMIT");
    jobs_.EndTransaction(status.ok());
    if (!status.ok()) {
      db_.RollBack();
      digests_ = before;
      return status;
    }
    point_.version = batch.version;
    if (const Status marked = Mark(); !marked.ok()) EndUnmarked(marked);
    return FaultPoint("store.after_commit");
  }

 private:
  bool OnDisk() const { return db_.path() != ":memory:"; }

  Status ReadRows(StoreSnapshot* snapshot) {
    LOCKSTEP_RETURN_IF_ERROR(
        jobs_.Load([&](const std::shared_ptr<const Job>& job) {
          snapshot->jobs.push_back(job);
        }));
    LOCKSTEP_RETURN_IF_ERROR(db_.ForEach(
        "SELECT record, name FROM nodes", [&](const Statement& row) -> Status {
          auto node = DecodeNode(row.Blob(0));
          if (!node.ok()) return BadRow(db_, row, node.status());
          snapshot->nodes.push_back(*std::move(node));
          return OkStatus();
        }));
    LOCKSTEP_RETURN_IF_ERROR(
        db_.ForEach("SELECT name FROM deleted_jobs", [&](const Statement& row) {
          snapshot->deleted_jobs.push_back(row.Text(0));
          return OkStatus();
        }));
    return db_.ForEach("SELECT record, id FROM requests",
                       [&](const Statement& row) -> Status {
                         auto request = DecodeRequest(row.Blob(0));
                         if (!request.ok())
                           return BadRow(db_, row, request.status());
                         snapshot->requests.push_back(*std::move(request));
                         return OkStatus();
                       });
  }

  Status BeginEpoch() {
    const std::string id = RandomHex(kHistoryDigits / 2);
    LOCKSTEP_RETURN_IF_ERROR(db_.Execute("BEGIN IMMEDIATE"));
    Status status = WriteEpoch(id);
    if (status.ok()) status = db_.Execute("COMMIT");
    if (!status.ok()) {
      db_.RollBack();
      return status;
    }
    ++point_.epoch;
    point_.epoch_id = id;
    return Mark();
  }

  Status WriteEpoch(const std::string& id) {
    const auto epoch = static_cast<int64_t>(point_.epoch) + 1;
    LOCKSTEP_RETURN_IF_ERROR(CheckEpoch());
    LOCKSTEP_RETURN_IF_ERROR(db_.SetCounter("epoch", epoch));
    Statement put(
        db_.get(),
        "INSERT OR REPLACE INTO epochs (epoch, version, id) VALUES (?, ?, ?)");
    put.Bind(1, epoch);
    put.Bind(2, point_.version);
    put.BindText(3, id);
    LOCKSTEP_RETURN_IF_ERROR(db_.Finish(&put));
    Statement prune(db_.get(), "DELETE FROM epochs WHERE epoch <= ?");
    prune.Bind(1, epoch - kKeptEpochs);
    return db_.Finish(&prune);
  }

  // The lock file keeps a second coordinator away, unless a person removed it.
  Status CheckEpoch() {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t epoch, db_.Counter("epoch"));
    if (static_cast<uint64_t>(epoch) == point_.epoch) return OkStatus();
    return Aborted(
        "{}: a coordinator of epoch {} has opened it, and this one is of epoch "
        "{}: two run on one directory, and this one must end",
        db_.path(), epoch, point_.epoch);
  }

  Status WriteMark() {
    LOCKSTEP_RETURN_IF_ERROR(FaultPoint("store.before_mark"));
    return mark_->Write(point_, SystemClock().Now().wall);
  }

  // Has the mark say `point_`.
  Status Mark() {
    if (!OnDisk()) return OkStatus();
    Status status = WriteMark();
    for (int i = 1; !status.ok() && i < kMarkTries; ++i) {
      std::this_thread::sleep_for(kMarkPause);
      status = WriteMark();
    }
    return status;
  }

  // The commit is durable, so it can be neither refused nor undone; and it must
  // not be answered, as the store could lose it without a trace. The caller
  // hears nothing, and its repeat finds the answer after the next start.
  [[noreturn]] void EndUnmarked(const Status& status) {
    LOG_ERROR(
        "version {} is in the store, and its mark cannot be written: {}. This "
        "process ends without an answer to it; whoever waits for one may ask "
        "again after the next start",
        point_.version, Message(status));
    LeaveProcess(1);
  }

  Status StoreDigests(const TableDigests& before) {
    for (const auto& [table, digest] : digests_) {
      const auto known = before.find(table);
      if (known != before.end() && known->second == digest) continue;
      LOCKSTEP_RETURN_IF_ERROR(StoreDigest(&db_, table, digest));
    }
    return OkStatus();
  }

  // Steps through `rows`, whose first column is a digest, and takes them out of
  // the table's.
  Status TakeOut(const std::string& table, Statement* rows) {
    while (rows->Row()) {
      digests_[table].Remove(static_cast<uint64_t>(rows->Int(0)));
    }
    return rows->ok() ? OkStatus() : db_.Failed("reading", rows->code());
  }

  Status TakeOutNode(const NodeName& name) {
    Statement* const known =
        db_.Prepared("SELECT digest FROM nodes WHERE name = ?");
    known->BindText(1, name);
    return TakeOut("nodes", known);
  }

  Status PutNode(const NodeRecord& node) {
    const NodeName& name = node.info.name;
    LOCKSTEP_RETURN_IF_ERROR(TakeOutNode(name));
    const std::string record = EncodeNode(node);
    const uint64_t digest = RowDigest(name, record);
    Statement* const put = db_.Prepared(
        "INSERT OR REPLACE INTO nodes (name, record, digest) VALUES (?, ?, ?)");
    put->BindText(1, name);
    put->Bind(2, record);
    put->Bind(3, static_cast<int64_t>(digest));
    digests_["nodes"].Add(digest);
    return db_.Finish(put);
  }

  Status ForgetNode(const NodeName& name) {
    LOCKSTEP_RETURN_IF_ERROR(TakeOutNode(name));
    Statement* const forget = db_.Prepared("DELETE FROM nodes WHERE name = ?");
    forget->BindText(1, name);
    return db_.Finish(forget);
  }

  Status NoteDeleted(const std::string& name) {
    Statement* const put =
        db_.Prepared("INSERT OR IGNORE INTO deleted_jobs VALUES (?)");
    put->BindText(1, name);
    LOCKSTEP_RETURN_IF_ERROR(db_.Finish(put));
    if (sqlite3_changes(db_.get()) > 0) {
      digests_["deleted_jobs"].Add(RowDigest(name, ""));
    }
    return OkStatus();
  }

  Status ForgetRequest(const RequestName& name) {
    Statement* const known =
        db_.Prepared("SELECT digest FROM requests WHERE client = ? AND id = ?");
    known->BindText(1, name.client);
    known->BindText(2, name.id);
    LOCKSTEP_RETURN_IF_ERROR(TakeOut("requests", known));
    Statement* const forget =
        db_.Prepared("DELETE FROM requests WHERE client = ? AND id = ?");
    forget->BindText(1, name.client);
    forget->BindText(2, name.id);
    return db_.Finish(forget);
  }

  Status ForgetRequestsBefore(WallTime time) {
    Statement* const known =
        db_.Prepared("SELECT digest FROM requests WHERE time < ?");
    known->Bind(1, ToUnixNanos(time));
    LOCKSTEP_RETURN_IF_ERROR(TakeOut("requests", known));
    Statement* const forget =
        db_.Prepared("DELETE FROM requests WHERE time < ?");
    forget->Bind(1, ToUnixNanos(time));
    return db_.Finish(forget);
  }

  Status PutRequest(const AnsweredRequest& request) {
    LOCKSTEP_RETURN_IF_ERROR(ForgetRequest({request.client, request.id}));
    const std::string record = EncodeRequest(request);
    const uint64_t digest =
        RowDigest(RowKey(request.client, request.id), record);
    Statement* const put = db_.Prepared(
        "INSERT INTO requests (client, id, time, record, digest) "
        "VALUES (?, ?, ?, ?, ?)");
    put->BindText(1, request.client);
    put->BindText(2, request.id);
    put->Bind(3, ToUnixNanos(request.time));
    put->Bind(4, record);
    put->Bind(5, static_cast<int64_t>(digest));
    digests_["requests"].Add(digest);
    return db_.Finish(put);
  }

  Status Write(const StoreBatch& batch) {
    for (const auto& job : batch.jobs) {
      LOCKSTEP_RETURN_IF_ERROR(jobs_.Put(job));
    }
    for (const NodeRecord* node : batch.nodes) {
      LOCKSTEP_RETURN_IF_ERROR(PutNode(*node));
    }
    for (const JobName& name : batch.delete_jobs) {
      LOCKSTEP_RETURN_IF_ERROR(NoteDeleted(name));
      LOCKSTEP_RETURN_IF_ERROR(jobs_.Delete(name));
    }
    for (const NodeName& name : batch.forget_nodes) {
      LOCKSTEP_RETURN_IF_ERROR(ForgetNode(name));
    }
    for (const RequestName& name : batch.forget_requests) {
      LOCKSTEP_RETURN_IF_ERROR(ForgetRequest(name));
    }
    if (batch.request) LOCKSTEP_RETURN_IF_ERROR(PutRequest(*batch.request));
    if (batch.forget_requests_before) {
      LOCKSTEP_RETURN_IF_ERROR(
          ForgetRequestsBefore(*batch.forget_requests_before));
    }
    return db_.SetCounter("version", batch.version);
  }

  // Of FILE.lock.
  const Fd lock_;
  Database db_;
  // Absent: in memory.
  std::optional<CommitMark> mark_;
  // Of the last commit.
  StorePoint point_;
  TableDigests digests_;
  JobTables jobs_;
};

}  // namespace

StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(Fd lock, LockStore(path));
  LOCKSTEP_ASSIGN_OR_RETURN(Database db, OpenStoreFile(path));
  auto store = std::make_unique<SqliteStore>(std::move(lock), std::move(db));
  LOCKSTEP_RETURN_IF_ERROR(store->Open());
  return store;
}

}  // namespace lockstep::server
