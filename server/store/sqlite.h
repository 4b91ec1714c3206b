// What sqlite_store.cc and backup.cc share of SQLite.
#ifndef LOCKSTEP_SERVER_STORE_SQLITE_H_
#define LOCKSTEP_SERVER_STORE_SQLITE_H_

#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep {

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

// Makes `to`, which must not be there: a consistent copy of what `db`, the
// store at `path`, reads. It is not synced.
Status VacuumInto(sqlite3* db, const std::string& path, const std::string& to);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_STORE_SQLITE_H_
