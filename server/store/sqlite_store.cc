#include "server/store/sqlite_store.h"

#include <sqlite3.h>

#include <utility>

#include "common/base/fault_point.h"
#include "server/store/record.h"

namespace lockstep {
namespace {

// "LOCK": marks the file as ours (PRAGMA application_id).
constexpr int kApplicationId = 0x4c4f434b;

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
};

class Statement {
 public:
  Statement(sqlite3* db, const char* sql) {
    code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void Bind(int index, std::string_view text) {
    Note(sqlite3_bind_blob(statement_, index, text.data(),
                           static_cast<int>(text.size()), SQLITE_TRANSIENT));
  }
  void BindText(int index, std::string_view text) {
    Note(sqlite3_bind_text(statement_, index, text.data(),
                           static_cast<int>(text.size()), SQLITE_TRANSIENT));
  }
  void Bind(int index, int64_t value) {
    Note(sqlite3_bind_int64(statement_, index, value));
  }
  // True: a row is there. False: the end, or an error (see code()).
  bool Row() {
    if (code_ != SQLITE_OK && code_ != SQLITE_ROW) return false;
    code_ = sqlite3_step(statement_);
    return code_ == SQLITE_ROW;
  }
  bool ok() const {
    return code_ == SQLITE_OK || code_ == SQLITE_ROW || code_ == SQLITE_DONE;
  }
  int code() const { return code_; }
  int64_t Int(int column) const {
    return sqlite3_column_int64(statement_, column);
  }
  std::string_view Blob(int column) const {
    const void* data = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return data == nullptr ? std::string_view()
                           : std::string_view(static_cast<const char*>(data),
                                              static_cast<size_t>(size));
  }
  std::string Text(int column) const { return std::string(Blob(column)); }

 private:
  void Note(int code) {
    if (code_ == SQLITE_OK) code_ = code;
  }
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

class SqliteStore final : public Store {
 public:
  explicit SqliteStore(std::string path) : path_(std::move(path)) {}
  ~SqliteStore() override { sqlite3_close(db_); }

  Status Open() {
    const int code = sqlite3_open_v2(
        path_.c_str(), &db_,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
        nullptr);
    if (code != SQLITE_OK) return Failed("opening", code);
    sqlite3_extended_result_codes(db_, 1);
    // The lock is taken here and kept until the end: a second coordinator on
    // this file gets SQLITE_BUSY. Nothing is written before the file is known
    // to be ours: journal_mode alone would change another program's.
    LOCKSTEP_RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE"));
    LOCKSTEP_RETURN_IF_ERROR(Execute("BEGIN EXCLUSIVE"));
    LOCKSTEP_RETURN_IF_ERROR(CheckIdentity());
    LOCKSTEP_RETURN_IF_ERROR(Execute("COMMIT"));
    LOCKSTEP_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
    LOCKSTEP_RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
    return Migrate();
  }

  StatusOr<StoreSnapshot> Load() override {
    LOCKSTEP_RETURN_IF_ERROR(
        Execute("UPDATE counters SET value = value + 1 WHERE name = 'epoch'"));
    StoreSnapshot snapshot;
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t epoch, Counter("epoch"));
    snapshot.epoch = static_cast<uint64_t>(epoch);
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
    LOCKSTEP_RETURN_IF_ERROR(ForEach(
        "SELECT record, id FROM requests", [&](const Statement& row) -> Status {
          auto request = DecodeRequest(row.Blob(0));
          if (!request.ok()) return BadRow(row, request.status());
          snapshot.requests.push_back(*std::move(request));
          return OkStatus();
        }));
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
    for (int64_t i = at; i < kNewest; ++i) {
      const std::string sql = fmt::format(
          "BEGIN IMMEDIATE; {} PRAGMA user_version = {}; PRAGMA "
          "application_id = {}; COMMIT",
          kMigrations[i], i + 1, kApplicationId);
      LOCKSTEP_RETURN_IF_ERROR(Execute(sql.c_str()));
    }
    return OkStatus();
  }

  Status Write(const StoreBatch& batch) {
    for (const Job* job : batch.jobs) {
      Statement put(db_, "INSERT OR REPLACE INTO jobs VALUES (?, ?)");
      put.BindText(1, job->spec.name);
      put.Bind(2, EncodeJob(*job));
      LOCKSTEP_RETURN_IF_ERROR(Finish(&put));
    }
    for (const NodeInfo* node : batch.nodes) {
      Statement put(db_, "INSERT OR REPLACE INTO nodes VALUES (?, ?)");
      put.BindText(1, node->name);
      put.Bind(2, EncodeNode(*node));
      LOCKSTEP_RETURN_IF_ERROR(Finish(&put));
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
  sqlite3* db_ = nullptr;
};

}  // namespace

StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path) {
  auto store = std::make_unique<SqliteStore>(path);
  LOCKSTEP_RETURN_IF_ERROR(store->Open());
  return store;
}

}  // namespace lockstep
