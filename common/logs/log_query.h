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
#ifndef LOCKSTEP_COMMON_LOGS_LOG_QUERY_H_
#define LOCKSTEP_COMMON_LOGS_LOG_QUERY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/filter/filter.h"

namespace lockstep {

// The numbers of lockstep.v1.Severity: DEBUG 1, INFO 2, WARNING 3, ERROR 4,
// CRITICAL 5. 0: unspecified.
inline constexpr int kMaxLogSeverity = 5;

// A line, and where it comes from.
struct LogEntry {
  std::string_view job;
  // "worker-replica-1".
  std::string_view task;
  std::string_view text;
  // "stdout", "stderr".
  std::string_view stream;
  int severity = 0;
  int64_t unix_nanos = 0;
  int32_t rank = 0;
  int32_t attempt = 0;
};

// What every line that matches keeps to. An empty or 0 field bounds nothing.
struct LogBounds {
  std::vector<std::string> tasks;
  // Unix nanoseconds, both inclusive.
  std::optional<int64_t> since;
  std::optional<int64_t> until;
  int min_severity = 0;
  // RE2.
  std::string grep;
  int32_t attempt = 0;
};

class LogQuery {
 public:
  // Matches everything.
  LogQuery() = default;

  // InvalidArgument names the column, the fault and the valid choices.
  static StatusOr<LogQuery> Parse(std::string_view text);

  bool Matches(const LogEntry& entry) const;

  // Narrows `bounds` by the parts of the query that they can express, without
  // losing a line of `job` that matches. Returns true if those are all parts.
  // Otherwise the caller applies Matches() to each line.
  bool Narrow(const std::string& job, LogBounds* bounds) const;

 private:
  std::optional<FilterNode> root_;
};

// Parses "error", "ERROR", "500" as 4. NOTICE counts as INFO, ALERT and
// EMERGENCY as CRITICAL. InvalidArgument lists the names.
StatusOr<int> ParseLogSeverity(std::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_LOGS_LOG_QUERY_H_
