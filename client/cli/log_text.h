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

// "[0 chief 0] 2026-01-31T12:00:00.123Z text\n"; the text byte for byte.
std::string FormatLogLine(const v1::LogLine& line, const LogFormat& format,
                          const Style& style);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_LOG_TEXT_H_
