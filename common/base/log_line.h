// Lines of a rank's log, in the form of the Kubernetes Container Runtime
// Interface (kubernetes: pkg/kubelet/kuberuntime/logs/logs.go):
//
//   2026-01-31T12:00:00.123456789Z stdout F the text
//
// F ends a line of output, P is a part of one that goes on in the next line
// of the same stream. The text never holds a newline. A carriage return in it
// means what it means to a terminal: what stands before it in the line is
// written over by what comes after it.
//
// The shim writes them, daemon and coordinator read them. Of libc and std
// only: lockstep-shim compiles this file once more.
#ifndef LOCKSTEP_COMMON_BASE_LOG_LINE_H_
#define LOCKSTEP_COMMON_BASE_LOG_LINE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::cri {

// The most text in one line; longer output is cut into P lines.
inline constexpr size_t kMaxLogText = 16 << 10;
// The most bytes of an encoded line, with its newline.
inline constexpr size_t kMaxLogLine = kMaxLogText + 64;

enum class LogStream : uint8_t { kStdout, kStderr };

struct LogLine {
  int64_t unix_nanos = 0;
  LogStream stream = LogStream::kStdout;
  bool full = true;       // F.
  std::string_view text;  // Of the parsed bytes: lives as long as they do.
};

// Appends the line and its newline. REQUIRES: no newline in line.text.
void AppendLogLine(const LogLine& line, std::string* out);
// `bytes` with or without the final newline.
bool ParseLogLine(std::string_view bytes, LogLine* line, std::string* error);

// Appends the text of a part, or of the end of a line, to what there is of the
// line: what a carriage return overwrites is dropped, so `*line` stays short
// however often a progress bar is redrawn. One at the end is kept until it is
// known what follows.
void AppendToLine(std::string_view text, std::string* line);
// What a terminal shows of a line made by AppendToLine.
std::string_view ShownLine(std::string_view line);

// The text of the line that stands for output that was not kept.
std::string LogGapText(uint64_t bytes);

// "2026-01-31T12:00:00.123456789Z", always with nine digits.
std::string FormatRfc3339Nano(int64_t unix_nanos);
// Of RFC 3339 with 0 to 9 digits of a second, in UTC ("Z") or with an offset.
bool ParseRfc3339Nano(std::string_view text, int64_t* unix_nanos);

}  // namespace lockstep::cri

#endif  // LOCKSTEP_COMMON_BASE_LOG_LINE_H_
