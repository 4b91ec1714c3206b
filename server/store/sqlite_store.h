// Store in one SQLite file: WAL, synchronous=FULL, pages with checksums
// (checked_vfs.h). Beside it lie FILE.mark (commit_mark.h) and FILE.lock, which
// the process that has the store open keeps locked; others may read the file
// all the while.
//
// What a power loss may take, it takes silently: commits that were never
// answered. Whatever else is missing or differs is an error of Open or Load.
#ifndef LOCKSTEP_SERVER_STORE_SQLITE_STORE_H_
#define LOCKSTEP_SERVER_STORE_SQLITE_STORE_H_

#include <memory>
#include <string>

#include "server/store/store.h"

namespace lockstep::server {

// Opens or makes the file at `path` (":memory:" for tests) and brings its
// schema up to date. Errors, each with the path and what to do:
//   FailedPrecondition  another process has it open; it is not lockstep's; it
//                       was written by a later version
//   DataLoss            it is damaged, or older than its mark
// Before a migration the file is copied to PATH.schema-N.
StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path);

// Writes the store at `path` as it is now, one commit or another, to the new
// file `to`, and syncs it; changes nothing of `path`, which may be in use.
// AlreadyExists: `to` is there. FailedPrecondition, DataLoss as above.
Status BackupSqliteStore(const std::string& path, const std::string& to);

// What VerifySqliteStore found.
struct StoreReport {
  StorePoint point;
  int64_t jobs = 0;
  int64_t nodes = 0;
};

// Reads all of the store at `path`, which may be in use: pages, digests,
// records, mark. Changes nothing. DataLoss says what differs. A backup has no
// mark: `with_mark` false.
StatusOr<StoreReport> VerifySqliteStore(const std::string& path,
                                        bool with_mark);

// Makes the store at `path` from the backup at `from`, which is verified
// first. What is there is kept as PATH.replaced-N. The new store has a history
// of its own, which replaces those of the backup and of what was there.
// FailedPrecondition: a coordinator has it open.
StatusOr<StoreReport> RestoreSqliteStore(const std::string& from,
                                         const std::string& path);

// Takes the store at `path` as it is, although its mark, or nodes, know of
// later commits: these are given up, and a new history begins. Damage that can
// be read past is not repaired: DataLoss, restore a backup.
StatusOr<StoreReport> AcceptLossOfSqliteStore(const std::string& path);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_SQLITE_STORE_H_
