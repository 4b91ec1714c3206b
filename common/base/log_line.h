// Lines of a rank's log, in the form of the Kubernetes Container Runtime
// Interface (kubernetes: pkg/kubelet/kuberuntime/logs/logs.go):
//
//   2026-01-31T12:00:00.123456789Z stdout F the text
//
// F ends a line of output. P is a part of a line that continues in the next
// record of the same stream. The text never holds a newline. A carriage return
// acts as on a terminal: the text after it overwrites the text before it.
//
// The shim writes the lines; daemon and coordinator read them. This file
// includes only libc and std, because lockstep-shim compiles it, too.
#ifndef LOCKSTEP_COMMON_BASE_LOG_LINE_H_
#define LOCKSTEP_COMMON_BASE_LOG_LINE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::cri {

// The largest text in one line. Longer output is split into P lines.
inline constexpr size_t kMaxLogText = 16 << 10;
// The largest encoded line with its newline.
inline constexpr size_t kMaxLogLine = kMaxLogText + 64;

enum class LogStream : uint8_t { kStdout, kStderr };

struct LogLine {
  int64_t unix_nanos = 0;
  LogStream stream = LogStream::kStdout;
  bool full = true;       // F.
  std::string_view text;  // Points into the parsed bytes.
};

// Appends the line and its newline. REQUIRES: no newline in line.text.
void AppendLogLine(const LogLine& line, std::string* out);
// `bytes` may lack the final newline.
bool ParseLogLine(std::string_view bytes, LogLine* line, std::string* error);

// Appends the text of a part, or of the end of a line, to the line so far. Text
// that a carriage return overwrites is dropped, so `*line` stays short however
// often a progress bar is redrawn. A final carriage return is kept until the
// next text is known.
void AppendToLine(std::string_view text, std::string* line);
// Returns what a terminal shows of a line made by AppendToLine.
std::string_view ShownLine(std::string_view line);

// Returns the text of the line that stands for lost output.
std::string LogGapText(uint64_t bytes);

// "2026-01-31T12:00:00.123456789Z", always with nine digits.
std::string FormatRfc3339Nano(int64_t unix_nanos);
// Parses RFC 3339 with 0 to 9 digits of a second, in UTC ("Z") or with an
// offset.
bool ParseRfc3339Nano(std::string_view text, int64_t* unix_nanos);

}  // namespace lockstep::cri

#endif  // LOCKSTEP_COMMON_BASE_LOG_LINE_H_
