// What a reader of logs asks for: checks, and what it means for a job.
#ifndef LOCKSTEP_SERVER_LOG_STREAM_LOG_REQUEST_H_
#define LOCKSTEP_SERVER_LOG_STREAM_LOG_REQUEST_H_

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "lockstep/v1/job.pb.h"
#include "server/core/job.h"
#include "server/logs/log_filter.h"

namespace lockstep {

// What happens to a job are lines of this task.
inline constexpr std::string_view kServiceTask = "service";

// InvalidArgument names the field.
Status CheckLogRequest(const v1::StreamLogsRequest& request);

// Those below: REQUIRES CheckLogRequest is OK.

LogSelection SelectionOf(const v1::StreamLogsRequest& request);
// The name of a task as AI Platform has it; its chief goes by two names.
std::string ReplicaOf(const std::string& name);
// InvalidArgument: a rank, task or attempt that `job` does not have.
Status CheckLogSelection(const v1::StreamLogsRequest& request, const Job& job);
// Whether nothing that is written from `now` on is wanted.
bool IsPast(const v1::StreamLogsRequest& request, WallTime now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_LOG_STREAM_LOG_REQUEST_H_
