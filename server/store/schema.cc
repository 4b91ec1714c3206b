#include "server/store/schema.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "common/base/random.h"
#include "common/model/store_point.h"
#include "server/store/job_tables.h"
#include "server/store/record.h"

namespace lockstep::server {
namespace {

// Each brings the schema from its index to the next; never edited, only
// appended to.
constexpr const char* kMigrations[] = {
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "INSERT INTO counters VALUES ('epoch', 0), ('version', 0);"
    "CREATE TABLE jobs (name TEXT PRIMARY KEY, record BLOB NOT NULL);"
    "CREATE TABLE nodes (name TEXT PRIMARY KEY, record BLOB NOT NULL);"
    "CREATE TABLE requests (client TEXT NOT NULL, id TEXT NOT NULL,"
    " time INTEGER NOT NULL, record BLOB NOT NULL,"
    " PRIMARY KEY (client, id)) WITHOUT ROWID;"
    "CREATE INDEX requests_by_time ON requests (time);",
    // Nodes are StoredNode from here on: ConvertNodes.
    "CREATE TABLE deleted_jobs (name TEXT PRIMARY KEY) WITHOUT ROWID;",
    // Rows have digests from here on: FillDigests.
    "ALTER TABLE jobs ADD COLUMN digest INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE nodes ADD COLUMN digest INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE requests ADD COLUMN digest INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE digests (name TEXT PRIMARY KEY, row_count INTEGER NOT NULL,"
    " digest INTEGER NOT NULL) WITHOUT ROWID;"
    // The one row: which history this is.
    "CREATE TABLE history (id INTEGER PRIMARY KEY CHECK (id = 1),"
    " name TEXT NOT NULL);"
    // Those that an operator replaced by it, and how far this store knew them.
    "CREATE TABLE replaced_histories (name TEXT PRIMARY KEY,"
    " epoch INTEGER NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;"
    // The version with which each epoch began.
    "CREATE TABLE epochs (epoch INTEGER PRIMARY KEY,"
    " version INTEGER NOT NULL);"
    "INSERT INTO counters VALUES ('marked', 0), ('generation_floor', 0);",
    // Tells it from an epoch of the same number of a copy of this store.
    "ALTER TABLE epochs ADD COLUMN id TEXT NOT NULL DEFAULT '';",
    // Jobs have rows instead of one record: SplitJobs. Large rows are not in
    // the index that finds them.
    "ALTER TABLE jobs RENAME TO whole_jobs;"
    "CREATE TABLE jobs (job TEXT NOT NULL, number INTEGER NOT NULL,"
    " record BLOB NOT NULL, digest INTEGER NOT NULL,"
    " PRIMARY KEY (job, number));"
    "CREATE TABLE tasks (job TEXT NOT NULL, number INTEGER NOT NULL,"
    " record BLOB NOT NULL, digest INTEGER NOT NULL,"
    " PRIMARY KEY (job, number)) WITHOUT ROWID;"
    "CREATE TABLE attempts (job TEXT NOT NULL, number INTEGER NOT NULL,"
    " record BLOB NOT NULL, digest INTEGER NOT NULL,"
    " PRIMARY KEY (job, number));"
    "CREATE TABLE events (job TEXT NOT NULL, number INTEGER NOT NULL,"
    " record BLOB NOT NULL, digest INTEGER NOT NULL,"
    " PRIMARY KEY (job, number)) WITHOUT ROWID;"
    "CREATE TABLE holds (job TEXT NOT NULL, number INTEGER NOT NULL,"
    " record BLOB NOT NULL, digest INTEGER NOT NULL,"
    " PRIMARY KEY (job, number)) WITHOUT ROWID;",
};
constexpr int64_t kNewest = std::size(kMigrations);
static_assert(kNewest == kSchemaWithJobRows);

struct Rows {
  const char* table;
  // The columns that name a row, '' for one that there is not, the record, and
  // the digest.
  const char* select;
  // Two columns name a row.
  bool pair = false;
};
// Of schemas 3 and 4; never edited.
constexpr Rows kRowsOfSchema3[] = {
    {"jobs", "SELECT name, '', record, digest FROM jobs"},
    {"nodes", "SELECT name, '', record, digest FROM nodes"},
    {"requests", "SELECT client, id, record, digest FROM requests", true},
};
constexpr Rows kRows[] = {
    {"jobs", "SELECT job, number, record, digest FROM jobs", true},
    {"tasks", "SELECT job, number, record, digest FROM tasks", true},
    {"attempts", "SELECT job, number, record, digest FROM attempts", true},
    {"events", "SELECT job, number, record, digest FROM events", true},
    {"holds", "SELECT job, number, record, digest FROM holds", true},
    {"nodes", "SELECT name, '', record, digest FROM nodes"},
    {"requests", "SELECT client, id, record, digest FROM requests", true},
};

Status ConvertNodes(Database* db) {
  std::vector<std::pair<std::string, std::string>> nodes;
  LOCKSTEP_RETURN_IF_ERROR(db->ForEach(
      "SELECT record, name FROM nodes", [&](const Statement& row) -> Status {
        auto node = DecodeNodeOfSchema1(row.Blob(0));
        if (!node.ok()) return BadRow(*db, row, node.status());
        nodes.emplace_back(row.Text(1), EncodeNode(*node));
        return OkStatus();
      }));
  for (const auto& [name, record] : nodes) {
    Statement put(db->get(), "UPDATE nodes SET record = ? WHERE name = ?");
    put.Bind(1, record);
    put.BindText(2, name);
    LOCKSTEP_RETURN_IF_ERROR(db->Finish(&put));
  }
  return OkStatus();
}

uint64_t DigestOf(const Rows& rows, const Statement& row) {
  const std::string first = row.Text(0);
  return RowDigest(rows.pair ? RowKey(first, row.Text(1)) : first, row.Blob(2));
}

Status FillDigests(Database* db) {
  TableDigests digests;
  for (const Rows& rows : kRowsOfSchema3) {
    TableDigest& digest = digests[rows.table];
    std::vector<std::pair<std::pair<std::string, std::string>, uint64_t>> all;
    LOCKSTEP_RETURN_IF_ERROR(
        db->ForEach(rows.select, [&](const Statement& row) {
          all.push_back({{row.Text(0), row.Text(1)}, DigestOf(rows, row)});
          return OkStatus();
        }));
    const std::string sql = fmt::format(
        "UPDATE {} SET digest = ? WHERE {}", rows.table,
        rows.pair ? "client = ? AND id = ?" : "name = ? AND '' = ?");
    for (const auto& [key, value] : all) {
      digest.Add(value);
      Statement put(db->get(), sql.c_str());
      put.Bind(1, static_cast<int64_t>(value));
      put.BindText(2, key.first);
      put.BindText(3, key.second);
      LOCKSTEP_RETURN_IF_ERROR(db->Finish(&put));
    }
  }
  TableDigest& deleted = digests["deleted_jobs"];
  LOCKSTEP_RETURN_IF_ERROR(
      db->ForEach("SELECT name FROM deleted_jobs", [&](const Statement& row) {
        deleted.Add(RowDigest(row.Text(0), ""));
        return OkStatus();
      }));
  for (const auto& [table, digest] : digests) {
    LOCKSTEP_RETURN_IF_ERROR(StoreDigest(db, table, digest));
  }
  Statement draw(db->get(), "INSERT INTO history VALUES (1, ?)");
  draw.BindText(1, RandomHex(kHistoryDigits / 2));
  return db->Finish(&draw);
}

Status SplitJobs(Database* db) {
  TableDigests digests;
  for (const JobTable table : kAllJobTables) digests[std::string(Name(table))];
  LOCKSTEP_RETURN_IF_ERROR(db->ForEach(
      "SELECT record, name FROM whole_jobs",
      [&](const Statement& row) -> Status {
        const auto job = DecodeJobOfSchema4(row.Blob(0));
        if (!job.ok()) return BadRow(*db, row, job.status());
        return WriteRows(db, row.Text(1), ChangesOf(nullptr, *job), &digests);
      }));
  for (const auto& [table, digest] : digests) {
    LOCKSTEP_RETURN_IF_ERROR(StoreDigest(db, table, digest));
  }
  return db->Execute("DROP TABLE whole_jobs");
}

Status MigrateFrom(Database* db, int64_t schema) {
  LOCKSTEP_RETURN_IF_ERROR(db->Execute("BEGIN IMMEDIATE"));
  // Rows that are written anew have digests of what was read.
  if (schema == 4) LOCKSTEP_RETURN_IF_ERROR(CheckDigests(db));
  LOCKSTEP_RETURN_IF_ERROR(db->Execute(kMigrations[schema]));
  if (schema == 1) LOCKSTEP_RETURN_IF_ERROR(ConvertNodes(db));
  if (schema == 2) LOCKSTEP_RETURN_IF_ERROR(FillDigests(db));
  if (schema == 4) LOCKSTEP_RETURN_IF_ERROR(SplitJobs(db));
  const std::string sql = fmt::format(
      "PRAGMA user_version = {}; PRAGMA application_id = {}; COMMIT",
      schema + 1, kApplicationId);
  return db->Execute(sql.c_str());
}

// The way back, should the newer program not do.
Status KeepCopy(Database* db, int64_t schema) {
  const std::string copy = fmt::format("{}.schema-{}", db->path(), schema);
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->RemoveAll(copy));
  return db->VacuumInto(copy);
}

}  // namespace

Status BringUpToDate(Database* db, bool keep_copy) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t at,
                            db->Number("PRAGMA user_version"));
  if (at > kNewest) {
    return FailedPrecondition(
        "{} was written by a later version (schema {}, this program knows {})",
        db->path(), at, kNewest);
  }
  if (keep_copy && at > 0 && at < kNewest)
    LOCKSTEP_RETURN_IF_ERROR(KeepCopy(db, at));
  for (int64_t i = at; i < kNewest; ++i) {
    const Status status = MigrateFrom(db, i);
    if (status.ok()) continue;
    db->RollBack();
    return status;
  }
  return OkStatus();
}

StatusOr<TableDigests> DigestsOfRows(Database* db) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t schema,
                            db->Number("PRAGMA user_version"));
  const std::span<const Rows> tables =
      schema < kSchemaWithJobRows ? std::span<const Rows>(kRowsOfSchema3)
                                  : std::span<const Rows>(kRows);
  TableDigests digests;
  for (const Rows& rows : tables) {
    TableDigest& digest = digests[rows.table];
    LOCKSTEP_RETURN_IF_ERROR(
        db->ForEach(rows.select, [&](const Statement& row) -> Status {
          const uint64_t found = DigestOf(rows, row);
          if (found != static_cast<uint64_t>(row.Int(3))) {
            return db->Damaged("reading",
                               fmt::format("the digest of {} in {} differs",
                                           row.Text(0), rows.table));
          }
          digest.Add(found);
          return OkStatus();
        }));
  }
  TableDigest& deleted = digests["deleted_jobs"];
  LOCKSTEP_RETURN_IF_ERROR(
      db->ForEach("SELECT name FROM deleted_jobs", [&](const Statement& row) {
        deleted.Add(RowDigest(row.Text(0), ""));
        return OkStatus();
      }));
  return digests;
}

StatusOr<TableDigests> StoredDigests(Database* db) {
  TableDigests digests;
  LOCKSTEP_RETURN_IF_ERROR(db->ForEach(
      "SELECT name, row_count, digest FROM digests", [&](const Statement& row) {
        digests[row.Text(0)] = {row.Int(1), static_cast<uint64_t>(row.Int(2))};
        return OkStatus();
      }));
  return digests;
}

Status CheckDigests(Database* db) {
  LOCKSTEP_ASSIGN_OR_RETURN(const TableDigests found, DigestsOfRows(db));
  LOCKSTEP_ASSIGN_OR_RETURN(TableDigests stored, StoredDigests(db));
  for (const auto& [table, digest] : found) {
    const TableDigest& promised = stored[table];
    if (digest == promised) continue;
    return db->Damaged(
        "reading", fmt::format("{} has {} rows, and the last commit left {}{}",
                               table, digest.rows, promised.rows,
                               digest.rows == promised.rows ? " others" : ""));
  }
  return OkStatus();
}

Status StoreDigest(Database* db, const std::string& table,
                   const TableDigest& digest) {
  Statement* const put =
      db->Prepared("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)");
  put->BindText(1, table);
  put->Bind(2, digest.rows);
  put->Bind(3, static_cast<int64_t>(digest.sum));
  return db->Finish(put);
}

}  // namespace lockstep::server
