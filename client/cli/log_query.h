// Filters of log entries in the language of Cloud Logging's queries, restricted
// to the fields that a job's lines have.
//
//   resource.labels.task_name="worker-replica-1" severity>=ERROR
//   textPayload:"loss" AND NOT textPayload=~"^step [0-9]+"
//   timestamp>="2026-11-21T10:00:00Z" (severity=ERROR OR labels.rank=0)
//   "out of memory"
//
//   field                                  operators          value
//   resource.labels.task_name              = != : =~ !~       task
//   resource.labels.job_id                 = != : =~ !~       job
//   resource.type                          = != : =~ !~       ml_job
//   textPayload, jsonPayload.message       = != : =~ !~       the line
//   severity                               = != < <= > >=     ERROR, 500 ...
//   timestamp                              = != < <= > >=     RFC 3339, a date
//   labels.rank, labels.attempt            = != < <= > >=     number
//   labels.stream                          = !=               stdout, stderr
//
// labels."ml.googleapis.com/task_name" and .../job_id are other names of the
// first two. A line's resource.type is ml_job or cloudml_job. ":" means
// contains; ":" and "=" ignore case in texts; "=~" is RE2. A bare text means
// textPayload:text. NOT (or -) binds closest, then OR, then AND, which may be
// omitted. field=("a" OR "b") is field="a" OR field="b". Pure.
// field="b". Pure.
#ifndef LOCKSTEP_CLIENT_CLI_LOG_QUERY_H_
#define LOCKSTEP_CLIENT_CLI_LOG_QUERY_H_

#include <optional>
#include <string>
#include <string_view>

#include "client/lib/client.h"
#include "common/base/status.h"
#include "common/filter/filter.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep::cli {

class LogQuery {
 public:
  // Matches everything.
  LogQuery() = default;

  // InvalidArgument names the column, the fault and the valid choices.
  static StatusOr<LogQuery> Parse(std::string_view text);

  bool Matches(const std::string& job, const v1::LogLine& line) const;

  // Narrows `options` by the parts of the query that the coordinator can
  // evaluate, without losing a matching line. Returns true if those are all
  // parts. Otherwise the caller applies Matches() to each line.
  bool Narrow(const std::string& job, LogOptions* options) const;

 private:
  std::optional<FilterNode> root_;
};

// Parses "error", "ERROR", "500" as v1::SEVERITY_ERROR. NOTICE counts as INFO,
// ALERT and EMERGENCY as CRITICAL. InvalidArgument lists the names.
StatusOr<v1::Severity> ParseSeverity(std::string_view text);
// Returns "ERROR"; "DEFAULT" if unspecified.
std::string Text(v1::Severity severity);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_LOG_QUERY_H_
