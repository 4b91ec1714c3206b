// Store in one SQLite file: WAL, synchronous=FULL. Beside it lies FILE.lock,
// which the process that has the store open keeps locked; others may read the
// file all the while.
#ifndef LOCKSTEP_SERVER_STORE_SQLITE_STORE_H_
#define LOCKSTEP_SERVER_STORE_SQLITE_STORE_H_

#include <memory>
#include <string>

#include "server/store/store.h"

namespace lockstep {

// Opens or makes the file at `path` (":memory:" for tests) and brings its
// schema up to date. Errors, each with the path and what to do:
//   FailedPrecondition  another process has it open; it is not lockstep's; it
//                       was written by a later version
//   DataLoss            it is damaged
// Before a migration the file is copied to PATH.schema-N.
StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path);

// Writes the store at `path` as it is now, one commit or another, to the new
// file `to`, and syncs it; changes nothing of `path`, which may be in use.
// AlreadyExists: `to` is there. FailedPrecondition, DataLoss as above.
Status BackupSqliteStore(const std::string& path, const std::string& to);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_STORE_SQLITE_STORE_H_
