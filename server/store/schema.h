// The store's tables, and how a file of an earlier version becomes one of this.
#ifndef LOCKSTEP_SERVER_STORE_SCHEMA_H_
#define LOCKSTEP_SERVER_STORE_SCHEMA_H_

#include <cstdint>

#include "common/base/status.h"
#include "server/store/row_digest.h"
#include "server/store/sqlite.h"

namespace lockstep::server {

// The first schema with a history, row digests and a mark.
inline constexpr int64_t kSchemaWithMark = 3;
// The first whose epochs have ids.
inline constexpr int64_t kSchemaWithEpochIds = 4;
// The first with a row for each task, attempt, event and hold of a job.
inline constexpr int64_t kSchemaWithJobRows = 5;

// Brings the tables up to date, in one transaction a step. With `keep_copy` a
// file that has any is copied to PATH.schema-N before.
// FailedPrecondition: a later version wrote it.
Status BringUpToDate(Database* db, bool keep_copy = true);

// Of a schema with digests. Digests as the rows themselves give them. DataLoss
// names the first row whose own digest differs from its bytes.
StatusOr<TableDigests> DigestsOfRows(Database* db);
// Digests as the last commit left them.
StatusOr<TableDigests> StoredDigests(Database* db);
// DataLoss: they differ.
Status CheckDigests(Database* db);
Status StoreDigest(Database* db, const std::string& table,
                   const TableDigest& digest);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_SCHEMA_H_
