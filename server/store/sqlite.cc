#include "server/store/sqlite.h"

#include <optional>

#include "server/store/checked_vfs.h"

namespace lockstep::server {
namespace {

// A person's sqlite3 at work; the lock file keeps other coordinators away.
constexpr int kBusyMillis = 1000;
// A coordinator that writes is never waited for: readers see the last commit.
constexpr int kReaderBusyMillis = 5000;

// A path as a URI that names the VFS: VACUUM INTO has no other way to say it.
std::string CheckedUri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       (c >= '0' && c <= '9') ||
                       std::string_view("-._~/").find(c) != std::string::npos;
    if (plain) {
      uri += c;
    } else {
      uri += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return uri + "?vfs=" + CheckedVfs();
}

}  // namespace

StatusOr<Database> Database::Open(const std::string& path, Access access,
                                  bool checked) {
  Database database(path);
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
  flags |= access == Access::kRead ? SQLITE_OPEN_READONLY
                                   : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  // The path itself is no URI: one that begins with "file:" is relative.
  const std::string name = path.starts_with("file:") ? "./" + path : path;
  const char* const vfs = checked ? CheckedVfs() : nullptr;
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &opened, flags, vfs);
  database.db_.reset(opened);
  if (code != SQLITE_OK) return database.Failed("opening", code);
  sqlite3_extended_result_codes(opened, 1);
  sqlite3_busy_timeout(
      opened, access == Access::kRead ? kReaderBusyMillis : kBusyMillis);
  if (access == Access::kWrite) {
    if (const int reserved = ReservePageChecks(opened); reserved != SQLITE_OK) {
      return database.Failed("opening", reserved);
    }
  }
  return database;
}

Status Database::Failed(std::string_view what, int code) const {
  const std::string detail =
      db_ != nullptr ? sqlite3_errmsg(get()) : sqlite3_errstr(code);
  if (code == SQLITE_IOERR_DATA) {
    return Damaged(what, "the checksum of a page differs");
  }
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

Status Database::Damaged(std::string_view what,
                         const std::string& detail) const {
  return DataLoss(
      "{} {}: it is damaged or no database ({}); restore it from a backup "
      "(`lockstep-coordinator restore FILE DIR`), or move it and its .mark "
      "away to start empty",
      what, path_, detail);
}

Status Database::Execute(const char* sql) {
  const int code = sqlite3_exec(get(), sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? OkStatus()
                           : Failed("writing", sqlite3_extended_errcode(get()));
}

void Database::RollBack() {
  sqlite3_exec(get(), "ROLLBACK", nullptr, nullptr, nullptr);
}

Statement* Database::Prepared(std::string_view sql) {
  auto known = prepared_.find(sql);
  if (known == prepared_.end()) known = prepared_.emplace(sql, nullptr).first;
  std::unique_ptr<Statement>& kept = known->second;
  if (kept != nullptr && kept->prepared()) {
    kept->Reset();
  } else {
    kept = std::make_unique<Statement>(get(), known->first.c_str());
  }
  return kept.get();
}

Status Database::Finish(Statement* statement) {
  while (statement->Row()) {
  }
  return statement->ok() ? OkStatus() : Failed("writing", statement->code());
}

StatusOr<int64_t> Database::Number(const char* sql) {
  int64_t value = 0;
  LOCKSTEP_RETURN_IF_ERROR(ForEach(sql, [&](const Statement& row) {
    value = row.Int(0);
    return OkStatus();
  }));
  return value;
}

StatusOr<int64_t> Database::Counter(const std::string& name) {
  Statement* const get_value =
      Prepared("SELECT value FROM counters WHERE name = ?");
  get_value->BindText(1, name);
  std::optional<int64_t> value;
  while (get_value->Row()) value = get_value->Int(0);
  if (!get_value->ok()) return Failed("reading", get_value->code());
  if (value) return *value;
  return DataLoss("{}: its counter {} is missing", path_, name);
}

Status Database::SetCounter(const std::string& name, int64_t value) {
  Statement* const set =
      Prepared("INSERT OR REPLACE INTO counters VALUES (?, ?)");
  set->BindText(1, name);
  set->Bind(2, value);
  return Finish(set);
}

Status Database::CheckIdentity() {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t id, Number("PRAGMA application_id"));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const int64_t tables,
      Number("SELECT count(*) FROM sqlite_master WHERE type = 'table'"));
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

Status Database::VacuumInto(const std::string& to) {
  // A connection to a file from before checksums keeps its own page size else.
  int bytes = kPageCheckBytes;
  sqlite3_file_control(get(), "main", SQLITE_FCNTL_RESERVE_BYTES, &bytes);
  Statement copy(get(), "VACUUM INTO ?");
  copy.BindText(1, CheckedUri(to));
  while (copy.Row()) {
  }
  if (copy.ok()) return OkStatus();
  const std::string detail = sqlite3_errmsg(get());
  if (copy.code() == SQLITE_IOERR_DATA) return Failed("copying", copy.code());
  switch (copy.code() & 0xff) {
    case SQLITE_FULL:
      return ResourceExhausted("copying {} to {}: the disk is full", path_, to);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return DataLoss("copying {} to {}: {} is damaged ({})", path_, to, path_,
                      detail);
    default:
      return Unavailable("copying {} to {}: {}", path_, to, detail);
  }
}

Status BadRow(const Database& db, const Statement& row, const Status& status) {
  return Annotate(status, fmt::format("{}: {}", db.path(), row.Text(1)));
}

}  // namespace lockstep::server
