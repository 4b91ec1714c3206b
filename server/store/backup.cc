// A copy of a store that may be in use.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "server/store/sqlite.h"
#include "server/store/sqlite_store.h"

namespace lockstep {
namespace {

// A coordinator that writes is never waited for: readers see the last commit.
constexpr int kBusyMillis = 5000;

struct Closer {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};

Status CheckIsOurs(sqlite3* db, const std::string& path) {
  Statement id(db, "PRAGMA application_id");
  const bool row = id.Row();
  if (row && id.Int(0) == kApplicationId) return OkStatus();
  const int code = id.code() & 0xff;
  if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
    return DataLoss("{}: it is damaged or no database ({})", path,
                    sqlite3_errmsg(db));
  }
  if (!row) return Unavailable("reading {}: {}", path, sqlite3_errmsg(db));
  return FailedPrecondition("{} is no store of a coordinator", path);
}

Status SyncFile(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, "opening " + path);
  if (::fchmod(fd.get(), 0600) != 0 || ::fsync(fd.get()) != 0) {
    return ErrnoStatus(errno, "syncing " + path);
  }
  return OkStatus();
}

Status Copy(const std::string& path, const std::string& part) {
  sqlite3* opened = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &opened,
                      SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, nullptr);
  const std::unique_ptr<sqlite3, Closer> db(opened);
  if (code != SQLITE_OK) {
    return PermissionDenied("opening {}: {}", path, sqlite3_errstr(code));
  }
  sqlite3_extended_result_codes(db.get(), 1);
  sqlite3_busy_timeout(db.get(), kBusyMillis);
  LOCKSTEP_RETURN_IF_ERROR(CheckIsOurs(db.get(), path));
  LOCKSTEP_RETURN_IF_ERROR(VacuumInto(db.get(), path, part));
  return SyncFile(part);
}

}  // namespace

Status VacuumInto(sqlite3* db, const std::string& path, const std::string& to) {
  Statement copy(db, "VACUUM INTO ?");
  copy.BindText(1, to);
  while (copy.Row()) {
  }
  if (copy.ok()) return OkStatus();
  const std::string detail = sqlite3_errmsg(db);
  switch (copy.code() & 0xff) {
    case SQLITE_FULL:
      return ResourceExhausted("copying {} to {}: the disk is full", path, to);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return DataLoss("copying {} to {}: {} is damaged ({})", path, to, path,
                      detail);
    default:
      return Unavailable("copying {} to {}: {}", path, to, detail);
  }
}

Status BackupSqliteStore(const std::string& path, const std::string& to) {
  FileSystem* files = RealFileSystem();
  if (!files->Exists(path)) return NotFound("there is no store {}", path);
  if (files->Exists(to)) {
    return AlreadyExists("{} is there already: name a new file", to);
  }
  // Never a half under the name that was asked for.
  const std::string part = to + ".part";
  LOCKSTEP_RETURN_IF_ERROR(files->RemoveAll(part));
  Status status = Copy(path, part);
  if (status.ok()) status = files->Rename(part, to);
  if (!status.ok()) {
    (void)files->RemoveAll(part);
    return status;
  }
  const std::string directory =
      std::filesystem::path(to).parent_path().string();
  return files->SyncDir(directory.empty() ? "." : directory);
}

}  // namespace lockstep
