// Reads a rank's log by offset, over all its files (worker/task/log_files.h).
// The shim may write, and remove old segments, at the same time.
#ifndef LOCKSTEP_WORKER_SHIM_LOG_READER_H_
#define LOCKSTEP_WORKER_SHIM_LOG_READER_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace lockstep {

struct LogChunk {
  // Whole lines (common/base/log_line.h). Empty: nothing at or after the
  // offset that was asked for, yet.
  std::string bytes;
  uint64_t offset = 0;       // Offset of the first byte.
  uint64_t next_offset = 0;  // Where to read on: offset + bytes.size().
  // Bytes between what was asked for and `offset` that are not kept any more:
  // then show cri::LogGapText(gap) first.
  uint64_t gap = 0;
};

// Reads about `max_bytes` at most, but at least one line. NotFound if there is
// no log.
StatusOr<LogChunk> ReadLog(const std::string& log_path, uint64_t offset,
                           uint64_t max_bytes);
// Where the log ends now; 0 when there is none.
uint64_t LogEnd(const std::string& log_path);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_SHIM_LOG_READER_H_
