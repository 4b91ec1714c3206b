// The bytes of a job's rows (proto/lockstep/v1/store.proto), and the job as
// the API shows it, which is made of the same messages.
//
// StoredJob has all of a job, and each row has some of its fields: the rows of
// a job, merged, are the job. Schema 4 kept one record of all of it.
#ifndef LOCKSTEP_SERVER_STORE_JOB_RECORD_H_
#define LOCKSTEP_SERVER_STORE_JOB_RECORD_H_

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/store.pb.h"
#include "server/core/job.h"

namespace lockstep::server {

// The tables that have rows of jobs.
enum class JobTable { kJobs, kTasks, kAttempts, kEvents, kHolds };
inline constexpr JobTable kAllJobTables[] = {
    JobTable::kJobs, JobTable::kTasks, JobTable::kAttempts, JobTable::kEvents,
    JobTable::kHolds};
// "jobs", "tasks": the table's name in the file.
std::string_view Name(JobTable table);

// The rows of one job in `jobs`, by their number. The state is what changes
// often, and is small.
enum class JobPart { kState = 0, kSpec = 1, kCluster = 2, kPlan = 3 };
inline constexpr JobPart kAllJobParts[] = {JobPart::kState, JobPart::kSpec,
                                           JobPart::kCluster, JobPart::kPlan};

// REQUIRES: for kCluster, the job has a cluster spec.
std::string EncodePart(const Job& job, JobPart part);
// Rows of the other tables.
std::string EncodeRow(const TaskStatus& task);
std::string EncodeRow(const Attempt& attempt);
std::string EncodeRow(const Event& event);
std::string EncodeRow(const Hold& hold);

// Adds a row to what was read of its job. Rows of one table come in the order
// of their numbers. DataLoss: the bytes are no record.
Status AddRow(JobTable table, std::string_view record, v1::StoredJob* stored);
// The job of all its rows. Reads without the limits of the API's input.
// DataLoss: they are no job.
StatusOr<Job> DecodeJob(const v1::StoredJob& stored);
// The one record that schemas 1 to 4 had of a job. DataLoss: it is none.
StatusOr<Job> DecodeJobOfSchema4(std::string_view bytes);

// What the store says of a job, without progress.
v1::Job ToJobMessage(const Job& job);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_JOB_RECORD_H_
