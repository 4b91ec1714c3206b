// Formats a rank's output line. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_LOG_TEXT_H_
#define LOCKSTEP_CLIENT_CLI_LOG_TEXT_H_

#include <string>

#include "client/cli/text.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep::cli {

// "ERROR"; "DEFAULT" if unspecified.
std::string Text(v1::Severity severity);

struct LogFormat {
  bool timestamps = false;
  bool prefix = false;
};

// "[0 chief 0] 2026-01-31T12:00:00.123Z text\n" with the text unchanged. For an
// event of the job "[service] ...".
std::string FormatLogLine(const v1::LogLine& line, const LogFormat& format,
                          const Style& style);

// gcloud's form, separated by tabs: severity, "2026-01-31 12:00:00 +0000", task
// ("unknown_task" if none), trial (empty), text.
std::string FormatStreamedLine(const v1::LogLine& line);

// One JSON object per line with the names of Cloud Logging, which filters use,
// too: timestamp, severity, resource.labels.{job_id,task_name},
// labels.{rank,attempt,stream}, textPayload. Bytes that are not UTF-8 are
// replaced.
std::string FormatLogJson(const std::string& job, const v1::LogLine& line);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_LOG_TEXT_H_
