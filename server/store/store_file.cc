#include "server/store/store_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "common/base/file.h"
#include "common/base/random.h"
#include "server/store/checked_vfs.h"
#include "server/store/commit_mark.h"
#include "server/store/job_tables.h"
#include "server/store/schema.h"

namespace lockstep::server {
namespace {

constexpr char kMemory[] = ":memory:";
// More than a job can have started since any backup that is worth restoring.
constexpr int64_t kGenerationGap = 1000;

std::string HowToGoOn(const std::string& path) {
  const std::string dir = std::filesystem::path(path).parent_path().string();
  return fmt::format(
      "Restore a backup (`lockstep-coordinator restore FILE {0}`), or go on "
      "without what is lost (`lockstep-coordinator accept-loss {0}`)",
      dir.empty() ? "." : dir);
}

// A file of a version whose pages had no checksums. Closing its only connection
// empties the log, so that the file alone is the store.
Status ConvertPages(Database db) {
  const std::string path = db.path();
  const std::string part = path + ".part";
  FileSystem* files = RealFileSystem();
  LOCKSTEP_RETURN_IF_ERROR(files->RemoveAll(part));
  LOCKSTEP_RETURN_IF_ERROR(db.Execute("PRAGMA journal_mode=DELETE"));
  LOCKSTEP_RETURN_IF_ERROR(db.VacuumInto(part));
  LOCKSTEP_RETURN_IF_ERROR(SyncStoreFile(part));
  { const Database closed = std::move(db); }
  LOCKSTEP_RETURN_IF_ERROR(files->Rename(part, path));
  return SyncParent(path);
}

StatusOr<int64_t> HighestGeneration(Database* db) {
  int64_t highest = 0;
  LOCKSTEP_RETURN_IF_ERROR(ForEachJob(db, [&](const StoredVersion& version) {
    highest = std::max(highest, static_cast<int64_t>(version.job->generation));
    return OkStatus();
  }));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t floor,
                            db->Counter("generation_floor"));
  return std::max(highest, floor);
}

// Of an epoch of this history; empty: it is not known.
StatusOr<std::string> EpochId(Database* db, uint64_t epoch) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t schema,
                            db->Number("PRAGMA user_version"));
  if (schema < kSchemaWithEpochIds) return std::string();
  Statement get(db->get(), "SELECT id FROM epochs WHERE epoch = ?");
  get.Bind(1, static_cast<int64_t>(epoch));
  std::string id;
  if (get.Row()) id = get.Text(0);
  if (!get.ok()) return db->Failed("reading", get.code());
  return id;
}

// What a store at `point` lacks of what was promised.
std::string Lost(const StorePoint& point, const StorePoint& promised) {
  const int64_t commits = promised.version - point.version;
  if (commits > 0) {
    return commits == 1 ? "1 commit is lost"
                        : fmt::format("{} commits are lost", commits);
  }
  // The start of a coordinator is a commit of its own, without a number.
  return commits == 0
             ? fmt::format(
                   "No change of a job or node is lost, but the start of epoch "
                   "{} is, which nodes may have obeyed",
                   promised.epoch)
             : fmt::format(
                   "It is a copy that was used after it was taken, and all "
                   "that epoch {} committed is lost",
                   promised.epoch);
}

Status Replace(Database* db, const StorePoint& point) {
  // One that was replaced before keeps the point that is known the best.
  Statement put(db->get(),
                "INSERT INTO replaced_histories VALUES (?, ?, ?) ON CONFLICT "
                "(name) DO NOTHING");
  put.BindText(1, point.history);
  put.Bind(2, static_cast<int64_t>(point.epoch));
  put.Bind(3, point.version);
  return db->Finish(&put);
}

Status WriteHistory(Database* db, const std::vector<StorePoint>& others) {
  LOCKSTEP_ASSIGN_OR_RETURN(const StorePoint own, PointOf(db));
  LOCKSTEP_RETURN_IF_ERROR(Replace(db, own));
  for (const StorePoint& other : others) {
    LOCKSTEP_RETURN_IF_ERROR(Replace(db, other));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t highest, HighestGeneration(db));
  LOCKSTEP_RETURN_IF_ERROR(
      db->SetCounter("generation_floor", highest + kGenerationGap));
  LOCKSTEP_RETURN_IF_ERROR(db->SetCounter("marked", 1));
  LOCKSTEP_RETURN_IF_ERROR(db->Execute("DELETE FROM epochs"));
  Statement draw(db->get(), "UPDATE history SET name = ?");
  draw.BindText(1, RandomHex(kHistoryDigits / 2));
  return db->Finish(&draw);
}

}  // namespace

Status SyncStoreFile(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, "opening " + path);
  if (::fchmod(fd.get(), 0600) != 0 || ::fsync(fd.get()) != 0) {
    return ErrnoStatus(errno, "syncing " + path);
  }
  return OkStatus();
}

Status SyncParent(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return RealFileSystem()->SyncDir(parent.empty() ? "." : parent);
}

std::string MarkPath(const std::string& path) { return path + ".mark"; }

StatusOr<Fd> LockStore(const std::string& path) {
  if (path == kMemory) return Fd();
  const std::string name = path + ".lock";
  Fd lock(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return ErrnoStatus(errno, "opening " + name);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  return FailedPrecondition(
      "opening {}: another process has it open; is a coordinator running on "
      "this directory already?",
      path);
}

StatusOr<Database> OpenStoreFile(const std::string& path) {
  using Access = Database::Access;
  if (path == kMemory) return Database::Open(path, Access::kWrite, false);
  LOCKSTEP_ASSIGN_OR_RETURN(const PageFormat format, PageFormatOf(path));
  const bool had_mark = RealFileSystem()->Exists(MarkPath(path));
  if (format == PageFormat::kNone && had_mark) {
    return DataLoss(
        "{} is missing or empty, and {} says that it was not. Restore a backup "
        "(`lockstep-coordinator restore FILE DIR`), or move the mark away to "
        "start empty",
        path, MarkPath(path));
  }
  // It holds the keys of generations: no one but its owner reads it. SQLite
  // gives its -wal and -shm the same mode.
  Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const bool checked =
      format == PageFormat::kNone || format == PageFormat::kChecked;
  LOCKSTEP_ASSIGN_OR_RETURN(Database db,
                            Database::Open(path, Access::kWrite, checked));
  // Nothing is written before the file is known to be ours: journal_mode alone
  // would change another program's.
  LOCKSTEP_RETURN_IF_ERROR(db.Execute("BEGIN EXCLUSIVE"));
  LOCKSTEP_RETURN_IF_ERROR(db.CheckIdentity());
  LOCKSTEP_RETURN_IF_ERROR(db.Execute("COMMIT"));
  if (!checked && (had_mark || format == PageFormat::kForeign)) {
    return db.Damaged("opening", "its first page");
  }
  if (!checked) {
    LOCKSTEP_RETURN_IF_ERROR(ConvertPages(std::move(db)));
    return OpenStoreFile(path);
  }
  return db;
}

StatusOr<StorePoint> PointOf(Database* db) {
  StorePoint point;
  LOCKSTEP_RETURN_IF_ERROR(
      db->ForEach("SELECT name FROM history", [&](const Statement& row) {
        point.history = row.Text(0);
        return OkStatus();
      }));
  if (point.history.size() != kHistoryDigits) {
    return db->Damaged("reading", "it names no history");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t epoch, db->Counter("epoch"));
  point.epoch = static_cast<uint64_t>(epoch);
  LOCKSTEP_ASSIGN_OR_RETURN(point.version, db->Counter("version"));
  LOCKSTEP_ASSIGN_OR_RETURN(point.epoch_id, EpochId(db, point.epoch));
  return point;
}

StatusOr<std::vector<StorePoint>> ReplacedHistories(Database* db) {
  std::vector<StorePoint> replaced;
  LOCKSTEP_RETURN_IF_ERROR(db->ForEach(
      "SELECT name, epoch, version FROM replaced_histories",
      [&](const Statement& row) {
        replaced.push_back(
            {row.Text(0), static_cast<uint64_t>(row.Int(1)), row.Int(2)});
        return OkStatus();
      }));
  return replaced;
}

Status CheckMark(Database* db) {
  return CheckMark(db, CommitMark::Read(MarkPath(db->path())));
}

Status CheckMark(Database* db, const StatusOr<std::optional<Promise>>& read) {
  const std::string mark_path = MarkPath(db->path());
  if (!read.ok()) {
    return Status(
        read.status().code(),
        fmt::format("{}. {}", Message(read.status()), HowToGoOn(db->path())));
  }
  const std::optional<Promise>& mark = *read;
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t schema,
                            db->Number("PRAGMA user_version"));
  if (schema < kSchemaWithMark) {
    // Of an earlier version, or its log lost even the making of its tables.
    if (!mark) return OkStatus();
    return DataLoss(
        "{} has lost commits that were answered: {} says {}, and the store is "
        "from before. {}",
        db->path(), mark_path, Describe(*mark), HowToGoOn(db->path()));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const StorePoint point, PointOf(db));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t marked, db->Counter("marked"));
  if (!mark) {
    if (marked == 0) return OkStatus();
    return DataLoss("{} is missing: it says which commits {} must have. {}",
                    mark_path, db->path(), HowToGoOn(db->path()));
  }
  const StorePoint& promised = mark->point;
  if (promised.history != point.history) {
    return DataLoss(
        "{} is of another history than {} says: it was put there "
        "by hand. {}",
        db->path(), mark_path, HowToGoOn(db->path()));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string known,
                            EpochId(db, promised.epoch));
  if (promised.version <= point.version && promised.epoch <= point.epoch) {
    if (known.empty() || promised.epoch_id.empty() ||
        known == promised.epoch_id) {
      return OkStatus();
    }
    return DataLoss(
        "{} is a copy of the store that {} speaks of: it went on by itself in "
        "epoch {}. What the other one committed since is lost; it was at {}. "
        "{}",
        db->path(), mark_path, promised.epoch, Describe(*mark),
        HowToGoOn(db->path()));
  }
  return DataLoss(
      "{} has lost commits that were answered: it is at {}, and {} says {}. "
      "{}. {}",
      db->path(), Describe(point), mark_path, Describe(*mark),
      Lost(point, promised), HowToGoOn(db->path()));
}

Status BeginHistory(Database* db, const std::vector<StorePoint>& others) {
  LOCKSTEP_RETURN_IF_ERROR(db->Execute("BEGIN IMMEDIATE"));
  Status status = WriteHistory(db, others);
  if (status.ok()) status = db->Execute("COMMIT");
  if (!status.ok()) {
    db->RollBack();
    return status;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(CommitMark mark,
                            CommitMark::Open(MarkPath(db->path())));
  LOCKSTEP_ASSIGN_OR_RETURN(const StorePoint point, PointOf(db));
  return mark.Write(point, SystemClock().Now().wall);
}

}  // namespace lockstep::server
