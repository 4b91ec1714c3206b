// Logs of a daemon: spdlog to stderr, one line an event. Where stderr is the
// systemd journal, each line carries its priority, for `journalctl -p err`.
//
// LOG_INFO("job {} g{}: formed in {}", ...). A line about a job says job,
// generation and rank. Before InitLogging the default logger writes to stderr
// too. Safe from any thread.
#ifndef LOCKSTEP_COMMON_BASE_LOGGING_H_
#define LOCKSTEP_COMMON_BASE_LOGGING_H_

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

#include "common/base/status.h"

#define LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define LOG_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)

namespace lockstep {

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
