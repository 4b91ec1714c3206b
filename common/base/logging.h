// A daemon's log: spdlog to stderr, one line per event. If stderr is the
// systemd journal, each line carries its priority for `journalctl -p err`.
//
// LOG_INFO("job {} g{}: formed in {}", ...). A line about a job names job,
// generation and rank. Before InitLogging the default logger writes to stderr,
// too. Safe from any thread.
#ifndef LOCKSTEP_COMMON_BASE_LOGGING_H_
#define LOCKSTEP_COMMON_BASE_LOGGING_H_

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "common/base/status.h"

#define LOG_DEBUG(...) \
  ::lockstep::Log(::lockstep::LogLevel::kDebug, __VA_ARGS__)
#define LOG_INFO(...) ::lockstep::Log(::lockstep::LogLevel::kInfo, __VA_ARGS__)
#define LOG_WARN(...) ::lockstep::Log(::lockstep::LogLevel::kWarn, __VA_ARGS__)
#define LOG_ERROR(...) \
  ::lockstep::Log(::lockstep::LogLevel::kError, __VA_ARGS__)

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Formats and writes a line if the level is on. It is not a template, and this
// header does not include spdlog, because most files include this header.
void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  WriteLog(level, format, fmt::make_format_args(args...));
}

// Checks a flag. InvalidArgument unless `level` is debug, info, warn or error.
Status CheckLogLevel(const std::string& level);

// Sets the format ("2026-01-31T12:00:00.123Z info coordinator: text") and the
// level (debug, info, warn, error; other values mean info). Each line is
// flushed, so lines before a crash are not lost.
void InitLogging(const std::string& program, const std::string& level);

// True if `fd` is the stream that $JOURNAL_STREAM ("DEVICE:INODE") names. The
// variable alone does not suffice, because programs whose stderr is a file
// inherit it, too.
bool IsJournal(int fd, const char* journal_stream);

// Returns the prefix of an error line that is written without the logger: "<3>"
// if stderr is the journal, otherwise "".
std::string_view ErrorPrefix();

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_LOGGING_H_
