// Copies of a store: made, checked, and put back.
#include <algorithm>
#include <optional>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "server/store/checked_vfs.h"
#include "server/store/commit_mark.h"
#include "server/store/job_tables.h"
#include "server/store/record.h"
#include "server/store/schema.h"
#include "server/store/sqlite_store.h"
#include "server/store/store_file.h"

namespace lockstep::server {
namespace {

StatusOr<Database> OpenToRead(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PageFormat format, PageFormatOf(path));
  if (format == PageFormat::kNone)
    return NotFound("there is no store {}", path);
  LOCKSTEP_ASSIGN_OR_RETURN(Database db,
                            Database::Open(path, Database::Access::kRead,
                                           format == PageFormat::kChecked));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t id,
                            db.Number("PRAGMA application_id"));
  if (id == kApplicationId) return db;
  return FailedPrecondition("{} is no store of a coordinator", path);
}

Status Copy(const std::string& path, const std::string& part) {
  LOCKSTEP_ASSIGN_OR_RETURN(Database db, OpenToRead(path));
  LOCKSTEP_RETURN_IF_ERROR(db.VacuumInto(part));
  return SyncStoreFile(part);
}

// Every job, and how many.
Status ReadJobs(Database* db, int64_t* jobs) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t schema,
                            db->Number("PRAGMA user_version"));
  if (schema >= kSchemaWithJobRows) {
    return ForEachJob(db, [&](const StoredVersion&) {
      ++*jobs;
      return OkStatus();
    });
  }
  return db->ForEach("SELECT record FROM jobs",
                     [&](const Statement& row) -> Status {
                       ++*jobs;
                       return DecodeJobOfSchema4(row.Blob(0)).status();
                     });
}

// Every record, and how many.
StatusOr<StoreReport> ReadAll(Database* db) {
  LOCKSTEP_RETURN_IF_ERROR(db->CheckIdentity());
  LOCKSTEP_RETURN_IF_ERROR(CheckDigests(db));
  StoreReport report;
  LOCKSTEP_ASSIGN_OR_RETURN(report.point, PointOf(db));
  LOCKSTEP_RETURN_IF_ERROR(ReadJobs(db, &report.jobs));
  LOCKSTEP_RETURN_IF_ERROR(db->ForEach(
      "SELECT record FROM nodes", [&](const Statement& row) -> Status {
        ++report.nodes;
        return DecodeNode(row.Blob(0)).status();
      }));
  return report;
}

// Nothing is there yet: PATH.replaced-1 and so on.
std::string NameForReplaced(const std::string& path) {
  for (int i = 1;; ++i) {
    std::string name = fmt::format("{}.replaced-{}", path, i);
    if (!RealFileSystem()->Exists(name)) return name;
  }
}

// Histories of what is at `path`, as far as they can be read: of the mark, and
// of the store.
std::vector<StorePoint> HistoriesAt(const std::string& path) {
  std::vector<StorePoint> known;
  if (const auto mark = CommitMark::Read(MarkPath(path)); mark.ok() && *mark) {
    known.push_back((*mark)->point);
  }
  auto db = OpenToRead(path);
  if (!db.ok()) return known;
  if (const auto point = PointOf(&*db); point.ok()) known.push_back(*point);
  if (const auto replaced = ReplacedHistories(&*db); replaced.ok()) {
    known.insert(known.end(), replaced->begin(), replaced->end());
  }
  return known;
}

// The log goes with its store: SQLite would play it into another one.
Status SetAside(const std::string& path) {
  FileSystem* files = RealFileSystem();
  if (!files->Exists(path)) return OkStatus();
  const std::string aside = NameForReplaced(path);
  for (const char* suffix : {"", "-wal", "-shm"}) {
    if (!files->Exists(path + suffix)) continue;
    LOCKSTEP_RETURN_IF_ERROR(files->Rename(path + suffix, aside + suffix));
  }
  return OkStatus();
}

}  // namespace

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
  return SyncParent(to);
}

StatusOr<StoreReport> VerifySqliteStore(const std::string& path,
                                        bool with_mark) {
  // The mark is read first: it is never ahead of what is read after it, while a
  // coordinator writes.
  const auto mark = CommitMark::Read(MarkPath(path));
  auto opened = OpenToRead(path);
  if (opened.status().code() == StatusCode::kFailedPrecondition && with_mark &&
      mark.ok() && *mark) {
    return DataLoss(
        "{} has lost commits that were answered: {} says {}, and the store is "
        "empty",
        path, MarkPath(path), Describe(**mark));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Database db, std::move(opened));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t schema,
                            db.Number("PRAGMA user_version"));
  if (schema < kSchemaWithMark) {
    if (with_mark) LOCKSTEP_RETURN_IF_ERROR(CheckMark(&db, mark));
    return FailedPrecondition(
        "{} was written by an earlier version, which kept no checksums: start "
        "this coordinator once on it",
        path);
  }
  LOCKSTEP_RETURN_IF_ERROR(db.Execute("BEGIN"));
  LOCKSTEP_ASSIGN_OR_RETURN(const StoreReport report, ReadAll(&db));
  if (!with_mark) return report;
  LOCKSTEP_RETURN_IF_ERROR(CheckMark(&db, mark));
  return report;
}

StatusOr<StoreReport> RestoreSqliteStore(const std::string& from,
                                         const std::string& path) {
  FileSystem* files = RealFileSystem();
  LOCKSTEP_ASSIGN_OR_RETURN(const Fd lock, LockStore(path));
  const std::string part = path + ".part";
  LOCKSTEP_RETURN_IF_ERROR(files->RemoveAll(part));
  Status status = Copy(from, part);
  if (status.ok()) {
    auto db = OpenStoreFile(part);
    status = db.ok() ? BringUpToDate(&*db, /*keep_copy=*/false) : db.status();
    if (status.ok()) status = ReadAll(&*db).status();
  }
  if (!status.ok()) {
    (void)files->RemoveAll(part);
    return Annotate(status, "restoring " + from);
  }
  const std::vector<StorePoint> replaced = HistoriesAt(path);
  LOCKSTEP_RETURN_IF_ERROR(SetAside(path));
  // The mark of what was there stays until the new history is there: a crash
  // in between is refused at the next start, and restored again.
  LOCKSTEP_RETURN_IF_ERROR(files->Rename(part, path));
  LOCKSTEP_RETURN_IF_ERROR(SyncParent(path));
  LOCKSTEP_ASSIGN_OR_RETURN(Database db, OpenStoreFile(path));
  LOCKSTEP_RETURN_IF_ERROR(BeginHistory(&db, replaced));
  return ReadAll(&db);
}

StatusOr<StoreReport> AcceptLossOfSqliteStore(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Fd lock, LockStore(path));
  if (!RealFileSystem()->Exists(path)) {
    return NotFound("there is no store {}", path);
  }
  const std::vector<StorePoint> replaced = HistoriesAt(path);
  LOCKSTEP_ASSIGN_OR_RETURN(Database db, OpenStoreFile(path));
  LOCKSTEP_RETURN_IF_ERROR(BringUpToDate(&db));
  LOCKSTEP_RETURN_IF_ERROR(ReadAll(&db).status());
  LOCKSTEP_RETURN_IF_ERROR(BeginHistory(&db, replaced));
  return ReadAll(&db);
}

}  // namespace lockstep::server
