// Checks a request for logs and applies it to a job.
#ifndef LOCKSTEP_SERVER_LOG_STREAM_LOG_REQUEST_H_
#define LOCKSTEP_SERVER_LOG_STREAM_LOG_REQUEST_H_

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "lockstep/v1/job.pb.h"
#include "server/core/job.h"
#include "server/logs/log_filter.h"

namespace lockstep::server {

// Events of the job are lines of this task.
inline constexpr std::string_view kServiceTask = "service";

// InvalidArgument names the field.
Status CheckLogRequest(const v1::StreamLogsRequest& request);

// The following functions: REQUIRES CheckLogRequest is OK.

LogSelection SelectionOf(const v1::StreamLogsRequest& request);
// Returns a task's AI Platform name. Its chief has two names.
std::string ReplicaOf(const std::string& name);
// InvalidArgument for a rank, task or attempt that `job` lacks.
Status CheckLogSelection(const v1::StreamLogsRequest& request, const Job& job);
// True if the request selects no line written after `now`.
bool IsPast(const v1::StreamLogsRequest& request, WallTime now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_LOG_STREAM_LOG_REQUEST_H_
