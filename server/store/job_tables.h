// The tables that have rows of jobs: `jobs`, `tasks`, `attempts`, `events`,
// `holds`. A commit writes the rows whose values differ from those of the last
// one.
#ifndef LOCKSTEP_SERVER_STORE_JOB_TABLES_H_
#define LOCKSTEP_SERVER_STORE_JOB_TABLES_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "common/base/status.h"
#include "server/core/job.h"
#include "server/store/job_rows.h"
#include "server/store/row_digest.h"
#include "server/store/sqlite.h"

namespace lockstep::server {

// Each job, in the order of names, as its rows say. DataLoss names the job that
// cannot be read.
Status ForEachJob(Database* db,
                  const std::function<Status(const StoredVersion&)>& fn);
// Writes rows of one job, in an open transaction, and keeps `digests` equal to
// the tables.
Status WriteRows(Database* db, const JobName& name, const JobChanges& changes,
                 TableDigests* digests);

// Knows the jobs as they are stored. Thread-compatible.
class JobTables {
 public:
  // Both outlive it. `digests` are those of the tables; who undoes a
  // transaction puts them back.
  JobTables(Database* db, TableDigests* digests) : db_(db), digests_(digests) {}

  // Calls `fn` with each job that is stored, and keeps it as the version that
  // the next commit is compared with.
  Status Load(const std::function<void(std::shared_ptr<const Job>)>& fn);

  // In a transaction, which EndTransaction follows in any case. After an error
  // it must be undone.
  Status Put(const std::shared_ptr<const Job>& job);
  Status Delete(const JobName& name);
  void EndTransaction(bool committed);

 private:
  // nullptr: none is known.
  const StoredVersion* Find(const JobName& name) const;
  Status DeleteRows(const JobName& name);

  Database* const db_;
  TableDigests* const digests_;
  std::map<JobName, StoredVersion> stored_;
  // Of the open transaction. nullopt: deleted.
  std::map<JobName, std::optional<StoredVersion>> pending_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_JOB_TABLES_H_
