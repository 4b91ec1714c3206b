// The last lines of ranks' logs, by a bounded read of each file.
#ifndef LOCKSTEP_SERVER_LOGS_LOG_TAIL_H_
#define LOCKSTEP_SERVER_LOGS_LOG_TAIL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/logs/log_store.h"
#include "server/logs/severity.h"

namespace lockstep::server {

struct TailLine {
  int64_t unix_nanos = 0;
  int32_t rank = 0;
  bool is_stderr = false;
  Severity severity = Severity::kInfo;
  std::string text;
};

struct LogTail {
  // By time; lines of one rank stay in order.
  std::vector<TailLine> lines;
  // There are earlier lines that were not read or did not fit.
  bool cut = false;
};

struct TailLimits {
  // The lines that are returned.
  size_t lines = 200;
  // Read of all files together.
  size_t bytes = size_t{2} << 20;
  // Of one line; the rest is cut.
  size_t line_bytes = 2000;
};

// Returns the newest lines of these logs that `wants` selects, an unfinished
// last line included. A log without a file has none. Errors of reading.
StatusOr<LogTail> ReadTail(LogStore* logs, const std::vector<LogKey>& keys,
                           const std::function<bool(const TailLine&)>& wants,
                           const TailLimits& limits);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_LOGS_LOG_TAIL_H_
