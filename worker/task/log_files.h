// The files of a rank's log, and the position of an offset in them.
//
// Offsets count the encoded bytes since the attempt began and never decrease.
//   LOG                        offsets 0 .. head - 1, kept permanently
//   LOG.00000000000016777216   a segment: its name is its first offset
// The shim fills the head, then segments of a quarter of the tail each, and
// removes the oldest before it begins a sixth: so the newest tail bytes are
// always kept. Files hold complete lines. A gap between two files was removed;
// readers show it as a line (common/base/log_line.h, LogGapText).
#ifndef LOCKSTEP_WORKER_TASK_LOG_FILES_H_
#define LOCKSTEP_WORKER_TASK_LOG_FILES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::worker::task {

// Number of full segments that hold the tail, besides the one being written.
inline constexpr int kTailSegments = 4;

// Returns the file next to `log_path` that starts at `offset`; `log_path` for
// 0.
std::string SegmentPath(std::string_view log_path, uint64_t offset);
// Parses the start offset if `name` is the log `base_name` or one of its
// segments.
bool ParseSegmentName(std::string_view base_name, std::string_view name,
                      uint64_t* offset);

struct LogSegment {
  uint64_t offset = 0;
  uint64_t size = 0;
};

struct LogPosition {
  bool found = false;   // False: nothing at or after the offset yet.
  size_t segment = 0;   // Index.
  uint64_t offset = 0;  // From here on there are bytes.
  uint64_t gap = 0;     // Bytes skipped from the offset asked for.
};

// Returns where to read for `offset`. `segments` are sorted by offset.
LogPosition FindLogPosition(const std::vector<LogSegment>& segments,
                            uint64_t offset);

}  // namespace lockstep::worker::task

#endif  // LOCKSTEP_WORKER_TASK_LOG_FILES_H_
