#include "server/store/sqlite_store.h"

#include <fcntl.h>
#include <sys/file.h>

#include <utility>

#include "common/base/fault_point.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "server/store/record.h"
#include "server/store/sqlite.h"

namespace lockstep {
namespace {

// Each brings the schema from its index to the next; never edited, only
// appended to.
constexpr const char* kMigrations[] = {
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "INSERT INTO counters VALUES ('epoch', 0), ('version', 0);"
    "CREATE TABLE jobs (name TEXT PRIMARY KEY, record BLOB NOT NULL);"
    "CREATE TABLE nodes (name TEXT PRIMARY KEY, record BLOB NOT NULL);"
    "CREATE TABLE requests (client TEXT NOT NULL, id TEXT NOT NULL,"
    " time INTEGER NOT NULL, record BLOB NOT NULL,"
    " PRIMARY KEY (client, id)) WITHOUT ROWID;"
    "CREATE INDEX requests_by_time ON requests (time);",
    // Nodes are StoredNode from here on: ConvertNodes.
    "CREATE TABLE deleted_jobs (name TEXT PRIMARY KEY) WITHOUT ROWID;",
};

// A person's sqlite3 at work; the lock file keeps other coordinators away.
constexpr int kBusyMillis = 1000;

class SqliteStore final : public Store {
 public:
  explicit SqliteStore(std::string path) : path_(std::move(path)) {}
  ~SqliteStore() override { sqlite3_close(db_); }

  Status Open() {
    LOCKSTEP_RETURN_IF_ERROR(Lock());
    // It holds the keys of generations: for nobody else's eyes. SQLite gives
    // its -wal and -shm the same mode.
    if (path_ != ":memory:") {
      Fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    }
    const int code = sqlite3_open_v2(
        path_.c_str(), &db_,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
        nullptr);
    if (code != SQLITE_OK) return Failed("opening", code);
    sqlite3_extended_result_codes(db_, 1);
    sqlite3_busy_timeout(db_, kBusyMillis);
    // Nothing is written before the file is known to be ours: journal_mode
    // alone would change another program's.
    LOCKSTEP_RETURN_IF_ERROR(Execute("BEGIN EXCLUSIVE"));
    LOCKSTEP_RETURN_IF_ERROR(CheckIdentity());
    LOCKSTEP_RETURN_IF_ERROR(Execute("COMMIT"));
    LOCKSTEP_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
    LOCKSTEP_RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
    return Migrate();
  }

  StatusOr<StoreSnapshot> Load() override {
    StoreSnapshot snapshot;
    LOCKSTEP_ASSIGN_OR_RETURN(snapshot.version, Counter("version"));
    LOCKSTEP_RETURN_IF_ERROR(ForEach("SELECT record, name FROM jobs",
                                     [&](const Statement& row) -> Status {
                                       auto job = DecodeJob(row.Blob(0));
                                       if (!job.ok())
                                         return BadRow(row, job.status());
                                       snapshot.jobs.push_back(*std::move(job));
                                       return OkStatus();
                                     }));
    LOCKSTEP_RETURN_IF_ERROR(ForEach(
        "SELECT record, name FROM nodes", [&](const Statement& row) -> Status {
          auto node = DecodeNode(row.Blob(0));
          if (!node.ok()) return BadRow(row, node.status());
          snapshot.nodes.push_back(*std::move(node));
          return OkStatus();
        }));
    LOCKSTEP_RETURN_IF_ERROR(
        ForEach("SELECT name FROM deleted_jobs", [&](const Statement& row) {
          snapshot.deleted_jobs.push_back(row.Text(0));
          return OkStatus();
        }));
    LOCKSTEP_RETURN_IF_ERROR(ForEach(
        "SELECT record, id FROM requests", [&](const Statement& row) -> Status {
          auto request = DecodeRequest(row.Blob(0));
          if (!request.ok()) return BadRow(row, request.status());
          snapshot.requests.push_back(*std::move(request));
          return OkStatus();
        }));
    // Last: a start that fails before must not use one up.
    LOCKSTEP_RETURN_IF_ERROR(
        Execute("UPDATE counters SET value = value + 1 WHERE name = 'epoch'"));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t epoch, Counter("epoch"));
    snapshot.epoch = static_cast<uint64_t>(epoch);
    return snapshot;
  }

  Status Commit(const StoreBatch& batch) override {
    LOCKSTEP_RETURN_IF_ERROR(FaultPoint("store.before_commit"));
    LOCKSTEP_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
    Status status = Write(batch);
    if (status.ok()) status = Execute("COMMIT");
    if (!status.ok()) {
      sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
      return status;
    }
    return FaultPoint("store.after_commit");
  }

 private:
  // Kept until this process ends, however it does.
  Status Lock() {
    if (path_ == ":memory:") return OkStatus();
    const std::string name = path_ + ".lock";
    lock_.Reset(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock_) return ErrnoStatus(errno, "opening " + name);
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return OkStatus();
    return Failed("opening", SQLITE_BUSY);
  }

  Status Failed(std::string_view what, int code) const {
    const std::string detail =
        db_ != nullptr ? sqlite3_errmsg(db_) : sqlite3_errstr(code);
    switch (code & 0xff) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        return FailedPrecondition(
            "{} {}: another process has it open; is a coordinator running on "
            "this directory already?",
            what, path_);
      case SQLITE_NOTADB:
      case SQLITE_CORRUPT:
        return Damaged(what, detail);
      case SQLITE_FULL:
        return ResourceExhausted("{} {}: the disk is full", what, path_);
      case SQLITE_CANTOPEN:
      case SQLITE_PERM:
      case SQLITE_READONLY:
        return PermissionDenied("{} {}: {}", what, path_, detail);
      default:
        return Unavailable("{} {}: {}", what, path_, detail);
    }
  }

  Status Damaged(std::string_view what, const std::string& detail) const {
    return DataLoss(
        "{} {}: it is damaged or no database ({}); restore it from a backup, "
        "or move it away to start empty",
        what, path_, detail);
  }

  // The second column names the row.
  Status BadRow(const Statement& row, const Status& status) const {
    return Annotate(status, fmt::format("{}: {}", path_, row.Text(1)));
  }

  Status Execute(const char* sql) {
    const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? OkStatus() : Failed("writing", code);
  }

  template <typename Fn>
  Status ForEach(const char* sql, Fn fn) {
    Statement statement(db_, sql);
    while (statement.Row()) LOCKSTEP_RETURN_IF_ERROR(fn(statement));
    return statement.ok() ? OkStatus() : Failed("reading", statement.code());
  }

  StatusOr<int64_t> Pragma(const char* sql) {
    int64_t value = 0;
    LOCKSTEP_RETURN_IF_ERROR(ForEach(sql, [&](const Statement& row) {
      value = row.Int(0);
      return OkStatus();
    }));
    return value;
  }

  StatusOr<int64_t> Counter(const std::string& name) {
    Statement statement(db_, "SELECT value FROM counters WHERE name = ?");
    statement.BindText(1, name);
    if (statement.Row()) return statement.Int(0);
    if (!statement.ok()) return Failed("reading", statement.code());
    return DataLoss("{}: its counter {} is missing", path_, name);
  }

  Status CheckIdentity() {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t id,
                              Pragma("PRAGMA application_id"));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const int64_t tables,
        Pragma("SELECT count(*) FROM sqlite_master WHERE type = 'table'"));
    if (id != kApplicationId && tables > 0) {
      return FailedPrecondition(
          "{} is a database of another program: give lockstep a directory of "
          "its own",
          path_);
    }
    std::string found;
    LOCKSTEP_RETURN_IF_ERROR(
        ForEach("PRAGMA quick_check(1)", [&](const Statement& row) {
          found = row.Text(0);
          return OkStatus();
        }));
    return found == "ok" ? OkStatus() : Damaged("checking", found);
  }

  Status Migrate() {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t at, Pragma("PRAGMA user_version"));
    constexpr int64_t kNewest = std::size(kMigrations);
    if (at > kNewest) {
      return FailedPrecondition(
          "{} was written by a later version (schema {}, this program knows "
          "{})",
          path_, at, kNewest);
    }
    if (at > 0 && at < kNewest) LOCKSTEP_RETURN_IF_ERROR(KeepCopy(at));
    for (int64_t i = at; i < kNewest; ++i) {
      const Status status = MigrateFrom(i);
      if (status.ok()) continue;
      sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
      return status;
    }
    return OkStatus();
  }

  Status MigrateFrom(int64_t schema) {
    LOCKSTEP_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
    LOCKSTEP_RETURN_IF_ERROR(Execute(kMigrations[schema]));
    if (schema == 1) LOCKSTEP_RETURN_IF_ERROR(ConvertNodes());
    const std::string sql = fmt::format(
        "PRAGMA user_version = {}; PRAGMA application_id = {}; COMMIT",
        schema + 1, kApplicationId);
    return Execute(sql.c_str());
  }

  // The way back, should the newer program not do.
  Status KeepCopy(int64_t schema) {
    const std::string copy = fmt::format("{}.schema-{}", path_, schema);
    LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->RemoveAll(copy));
    return VacuumInto(db_, path_, copy);
  }

  Status ConvertNodes() {
    std::vector<NodeRecord> nodes;
    LOCKSTEP_RETURN_IF_ERROR(ForEach(
        "SELECT record, name FROM nodes", [&](const Statement& row) -> Status {
          auto node = DecodeNodeOfSchema1(row.Blob(0));
          if (!node.ok()) return BadRow(row, node.status());
          nodes.push_back(*std::move(node));
          return OkStatus();
        }));
    for (const NodeRecord& node : nodes) {
      LOCKSTEP_RETURN_IF_ERROR(WriteNode(node));
    }
    return OkStatus();
  }

  Status WriteNode(const NodeRecord& node) {
    Statement put(db_, "INSERT OR REPLACE INTO nodes VALUES (?, ?)");
    put.BindText(1, node.info.name);
    put.Bind(2, EncodeNode(node));
    return Finish(&put);
  }

  Status Delete(const char* sql, const std::string& name) {
    Statement statement(db_, sql);
    statement.BindText(1, name);
    return Finish(&statement);
  }

  Status Write(const StoreBatch& batch) {
    for (const Job* job : batch.jobs) {
      Statement put(db_, "INSERT OR REPLACE INTO jobs VALUES (?, ?)");
      put.BindText(1, job->spec.name);
      put.Bind(2, EncodeJob(*job));
      LOCKSTEP_RETURN_IF_ERROR(Finish(&put));
    }
    for (const NodeRecord* node : batch.nodes) {
      LOCKSTEP_RETURN_IF_ERROR(WriteNode(*node));
    }
    for (const JobName& name : batch.delete_jobs) {
      LOCKSTEP_RETURN_IF_ERROR(
          Delete("INSERT OR IGNORE INTO deleted_jobs VALUES (?)", name));
      LOCKSTEP_RETURN_IF_ERROR(Delete("DELETE FROM jobs WHERE name = ?", name));
    }
    for (const NodeName& name : batch.forget_nodes) {
      LOCKSTEP_RETURN_IF_ERROR(
          Delete("DELETE FROM nodes WHERE name = ?", name));
    }
    for (const RequestName& name : batch.forget_requests) {
      Statement forget(db_, "DELETE FROM requests WHERE client = ? AND id = ?");
      forget.BindText(1, name.client);
      forget.BindText(2, name.id);
      LOCKSTEP_RETURN_IF_ERROR(Finish(&forget));
    }
    if (batch.request) {
      Statement put(db_, "INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?)");
      put.BindText(1, batch.request->client);
      put.BindText(2, batch.request->id);
      put.Bind(3, ToUnixNanos(batch.request->time));
      put.Bind(4, EncodeRequest(*batch.request));
      LOCKSTEP_RETURN_IF_ERROR(Finish(&put));
    }
    if (batch.forget_requests_before) {
      Statement forget(db_, "DELETE FROM requests WHERE time < ?");
      forget.Bind(1, ToUnixNanos(*batch.forget_requests_before));
      LOCKSTEP_RETURN_IF_ERROR(Finish(&forget));
    }
    Statement version(db_,
                      "UPDATE counters SET value = ? WHERE name = 'version'");
    version.Bind(1, batch.version);
    return Finish(&version);
  }

  Status Finish(Statement* statement) {
    while (statement->Row()) {
    }
    return statement->ok() ? OkStatus() : Failed("writing", statement->code());
  }

  const std::string path_;
  // Of FILE.lock.
  Fd lock_;
  sqlite3* db_ = nullptr;
};

}  // namespace

StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path) {
  auto store = std::make_unique<SqliteStore>(path);
  LOCKSTEP_RETURN_IF_ERROR(store->Open());
  return store;
}

}  // namespace lockstep
