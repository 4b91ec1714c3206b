// Reads a rank's log by offset, over all its files (worker/task/log_files.h).
// The shim may write, and remove old segments, at the same time.
#ifndef LOCKSTEP_WORKER_SHIM_LOG_READER_H_
#define LOCKSTEP_WORKER_SHIM_LOG_READER_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace lockstep::worker::shim {

struct LogChunk {
  // Complete lines (common/base/log_line.h). Empty if there is nothing at or
  // after the requested offset yet.
  std::string bytes;
  uint64_t offset = 0;       // Offset of the first byte.
  uint64_t next_offset = 0;  // Where to read on: offset + bytes.size().
  // Number of bytes between the requested offset and `offset` that are no
  // longer kept: show cri::LogGapText(gap) first.
  uint64_t gap = 0;
};

// Reads about `max_bytes` at most, but at least one line. NotFound if there is
// no log.
StatusOr<LogChunk> ReadLog(const std::string& log_path, uint64_t offset,
                           uint64_t max_bytes);
// Current end of the log; 0 if there is none.
uint64_t LogEnd(const std::string& log_path);
// The complete lines of about the last `bytes` of a log; "" if there is none.
std::string LogTail(const std::string& log_path, uint64_t bytes);

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_LOG_READER_H_
