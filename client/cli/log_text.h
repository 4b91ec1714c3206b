// A rank's output line as it is shown. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_LOG_TEXT_H_
#define LOCKSTEP_CLIENT_CLI_LOG_TEXT_H_

#include <string>

#include "client/cli/text.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep {

struct LogFormat {
  bool timestamps = false;
  bool prefix = false;
};

// "[0 chief 0] 2026-01-31T12:00:00.123Z text\n"; the text byte for byte. Of an
// event of the job "[service] ...".
std::string FormatLogLine(const v1::LogLine& line, const LogFormat& format,
                          const Style& style);

// As gcloud prints it, between tabs: severity, "2026-01-31 12:00:00 +0000",
// task ("unknown_task" where there is none), trial (none), text.
std::string FormatStreamedLine(const v1::LogLine& line);

// One JSON object a line, with the names of Cloud Logging, which the filter
// takes, too: timestamp, severity, resource.labels.{job_id,task_name},
// labels.{rank,attempt,stream}, textPayload. Bytes that are no UTF-8 are
// replaced.
std::string FormatLogJson(const std::string& job, const v1::LogLine& line);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_LOG_TEXT_H_
