// Which rows of a job a commit writes: those whose values changed. Pure.
#ifndef LOCKSTEP_SERVER_STORE_JOB_ROWS_H_
#define LOCKSTEP_SERVER_STORE_JOB_ROWS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/core/job.h"
#include "server/store/job_record.h"

namespace lockstep::server {

// For each table of a list (all but `jobs`) the numbers of a job's rows, in the
// order of the list. Numbers rise. A row keeps its number while its value is in
// the list.
using RowNumbers = std::map<JobTable, std::vector<int64_t>>;

// A job as its rows are.
struct StoredVersion {
  std::shared_ptr<const Job> job;
  RowNumbers numbers;
};

struct JobRow {
  JobTable table = JobTable::kJobs;
  int64_t number = 0;
  std::string record;
  // No row has this number yet.
  bool is_new = true;
};

struct JobRowName {
  JobTable table = JobTable::kJobs;
  int64_t number = 0;
};

struct JobChanges {
  std::vector<JobRow> written;
  std::vector<JobRowName> removed;
  // As they are afterwards.
  RowNumbers numbers;
};

// What makes the rows of `job` of those of `before`. nullptr: there are none,
// and all are written. The state row always is: it has the commit's number.
JobChanges ChangesOf(const StoredVersion* before, const Job& job);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_JOB_ROWS_H_
