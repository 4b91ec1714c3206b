// Store in one SQLite file: WAL, synchronous=FULL, locked by this process.
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
StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_STORE_SQLITE_STORE_H_
