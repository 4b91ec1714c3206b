// The files of one store, and what must be true of them before it is used:
// shared by the store, verify, restore and accept-loss.
#ifndef LOCKSTEP_SERVER_STORE_STORE_FILE_H_
#define LOCKSTEP_SERVER_STORE_STORE_FILE_H_

#include <optional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/model/store_point.h"
#include "server/store/commit_mark.h"
#include "server/store/sqlite.h"

namespace lockstep::server {

// Makes the file at `path`, which SQLite wrote, durable, and readable by its
// owner alone.
Status SyncStoreFile(const std::string& path);
// Makes durable that `path` has its name.
Status SyncParent(const std::string& path);

std::string MarkPath(const std::string& path);

// Locks PATH.lock until the Fd goes, however this process ends.
// FailedPrecondition: another process has it.
StatusOr<Fd> LockStore(const std::string& path);

// Opens the file at `path` for writing, new or old, as a lockstep store whose
// pages have checksums: one from before them is converted. Its schema may be
// old. ":memory:" is fine.
StatusOr<Database> OpenStoreFile(const std::string& path);

// Of a store whose schema has a history.
StatusOr<StorePoint> PointOf(Database* db);
StatusOr<std::vector<StorePoint>> ReplacedHistories(Database* db);

// DataLoss: `db` is older than its mark at MarkPath, or of another history, or
// the mark is missing though the store had one. A store that never had a mark
// is fine.
Status CheckMark(Database* db);
// The same with what was read of the mark before.
Status CheckMark(Database* db, const StatusOr<std::optional<Promise>>& read);

// Of a store whose schema is up to date. Begins a new history, which replaces
// the store's own and `others`, in one transaction, and marks it. Generations
// below 1,000 above all known ones are not used again.
Status BeginHistory(Database* db, const std::vector<StorePoint>& others);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_STORE_FILE_H_
