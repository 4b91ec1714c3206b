// For tests: values with every field set to something other than its default,
// and stores as earlier versions wrote them.
#ifndef LOCKSTEP_SERVER_STORE_TESTING_H_
#define LOCKSTEP_SERVER_STORE_TESTING_H_

#include <string>

#include "server/store/job_record.h"
#include "server/store/store.h"

namespace lockstep::server {

Job FullJob();
NodeRecord FullNode();
AnsweredRequest FullRequest();
// A job of so many tasks on as many nodes, each with a hold.
Job WideJob(int tasks);

// All rows of the job, merged.
StatusOr<v1::StoredJob> MergedRows(const Job& job);
// Through its rows and back.
StatusOr<Job> ReadAgain(const Job& job);
// As schemas 1 to 4 kept it.
std::string RecordOfSchema4(const Job& job);
// Makes the store at `path`, which is not open, one of schema 4.
Status MakeSchema4(const std::string& path);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_TESTING_H_
