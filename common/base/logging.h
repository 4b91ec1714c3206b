// Logs of a daemon: spdlog to stderr, one line an event. Where stderr is the
// systemd journal, each line carries its priority, for `journalctl -p err`.
//
// LOG_INFO("job {} g{}: formed in {}", ...). A line about a job says job,
// generation and rank. Before InitLogging the default logger writes to stderr
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

// Formats and writes a line if the level is on. Not a template, and spdlog is
// not in this header, because most files include it: that took a tenth of the
// time to compile.
void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  WriteLog(level, format, fmt::make_format_args(args...));
}

// InvalidArgument unless `level` is debug, info, warn or error: for flags.
Status CheckLogLevel(const std::string& level);

// Sets the format ("2026-01-31T12:00:00.123Z info coordinator: text"), the
// level (debug, info, warn, error; others mean info) and flushing at each
// line, so that what was logged before a crash is there.
void InitLogging(const std::string& program, const std::string& level);

// Whether `fd` is the stream that $JOURNAL_STREAM ("DEVICE:INODE") names. The
// variable alone says little: it is inherited also where stderr is a file.
bool IsJournal(int fd, const char* journal_stream);

// "<3>" where stderr is the journal, else "": what begins a line of an error
// that is written without the logger.
std::string_view ErrorPrefix();

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_LOGGING_H_
