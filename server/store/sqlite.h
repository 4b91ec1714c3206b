// SQLite as the store uses it: a connection and its statements, whose errors
// say what to do.
#ifndef LOCKSTEP_SERVER_STORE_SQLITE_H_
#define LOCKSTEP_SERVER_STORE_SQLITE_H_

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/status.h"

namespace lockstep::server {

// "LOCK": marks the file as ours (PRAGMA application_id).
inline constexpr int kApplicationId = 0x4c4f434b;

// One prepared statement. The first error stays, and makes the rest do nothing.
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
  // False: the SQL could not be prepared (see code()).
  bool prepared() const { return statement_ != nullptr; }
  // Forgets the rows and errors of the last run; what was bound stays.
  // REQUIRES: prepared().
  void Reset() {
    sqlite3_reset(statement_);
    code_ = SQLITE_OK;
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

// A connection to the store at a path. Not synchronised.
class Database {
 public:
  enum class Access {
    // Makes the file where it is missing.
    kWrite,
    kRead,
  };
  // `checked`: through CheckedVfs.
  static StatusOr<Database> Open(const std::string& path, Access access,
                                 bool checked);

  sqlite3* get() const { return db_.get(); }
  const std::string& path() const { return path_; }

  Status Execute(const char* sql);
  // Undoes the open transaction, if there is one.
  void RollBack();
  // `fn` takes the statement for each row and returns a Status.
  template <typename Fn>
  Status ForEach(const char* sql, Fn fn) {
    Statement statement(get(), sql);
    while (statement.Row()) {
      const Status status = fn(statement);
      if (!status.ok()) return status;
    }
    return statement.ok() ? OkStatus() : Failed("reading", statement.code());
  }
  // A statement that is kept: for SQL that is run often. Ready to be bound and
  // stepped to its end; valid until the next call with the same SQL.
  Statement* Prepared(std::string_view sql);
  // Steps a statement that writes to its end.
  Status Finish(Statement* statement);
  // The number that `sql` gives; 0: it gives no row.
  StatusOr<int64_t> Number(const char* sql);
  // A row of `counters`. DataLoss: it is not there.
  StatusOr<int64_t> Counter(const std::string& name);
  Status SetCounter(const std::string& name, int64_t value);

  // FailedPrecondition: the file is another program's. DataLoss: it is damaged.
  // Reads every page that is in use.
  Status CheckIdentity();
  // Makes `to`, which must not be there: a consistent copy of what this
  // connection reads, in pages with checksums. It is not synced.
  Status VacuumInto(const std::string& to);

  Status Failed(std::string_view what, int code) const;
  Status Damaged(std::string_view what, const std::string& detail) const;

 private:
  struct Closer {
    // Waits for the kept statements to go.
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  explicit Database(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::unique_ptr<sqlite3, Closer> db_;
  std::map<std::string, std::unique_ptr<Statement>, std::less<>> prepared_;
};

// Says of what is wrong with a row where it is: its second column names it.
Status BadRow(const Database& db, const Statement& row, const Status& status);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_SQLITE_H_
