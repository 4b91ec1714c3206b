#include "common/base/logging.h"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <iterator>
#include <memory>
#include <utility>

#include "common/base/one_line.h"

namespace lockstep {
namespace {

// sd-daemon(3): "<N>" before a line is its syslog priority.
std::string_view PriorityPrefix(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
      return "<2>";
    case spdlog::level::err:
      return "<3>";
    case spdlog::level::warn:
      return "<4>";
    case spdlog::level::info:
      return "<6>";
    default:
      return "<7>";
  }
}

// The flag %* of the pattern.
class PriorityFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string_view prefix = PriorityPrefix(message.level);
    out.append(prefix.data(), prefix.data() + prefix.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PriorityFlag>();
  }
};

// The flag %& of the pattern: the text as one line. A message may quote bytes
// of a peer or of a library's log, which must not begin a line or move a
// terminal's cursor.
class OneLineFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string line = OneLine(
        std::string_view(message.payload.data(), message.payload.size()));
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<OneLineFlag>();
  }
};

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

bool StderrIsJournal() {
  return IsJournal(STDERR_FILENO, std::getenv("JOURNAL_STREAM"));
}

}  // namespace

void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  if (!logger->should_log(LevelOf(level))) return;
  fmt::memory_buffer line;
  fmt::vformat_to(std::back_inserter(line), format, args);
  logger->log(LevelOf(level), spdlog::string_view_t(line.data(), line.size()));
}

Status CheckLogLevel(const std::string& level) {
  if (level == "debug" || level == "info" || level == "warn" ||
      level == "error") {
    return OkStatus();
  }
  return InvalidArgument(
      "there is no log level \"{}\": use debug, info, warn or error", level);
}

void InitLogging(const std::string& program, const std::string& level) {
  auto logger = spdlog::get(program);
  if (logger == nullptr) logger = spdlog::stderr_color_mt(program);
  auto formatter = std::make_unique<spdlog::pattern_formatter>(
      spdlog::pattern_time_type::utc);
  const std::string line = "%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %n: %&";
  formatter->add_flag<PriorityFlag>('*').add_flag<OneLineFlag>('&').set_pattern(
      StderrIsJournal() ? "%*" + line : line);
  logger->set_formatter(std::move(formatter));
  const auto parsed = spdlog::level::from_str(level);
  logger->set_level(parsed == spdlog::level::off ? spdlog::level::info
                                                 : parsed);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(logger);
}

bool IsJournal(int fd, const char* journal_stream) {
  struct stat info {};
  if (journal_stream == nullptr || ::fstat(fd, &info) != 0) return false;
  return journal_stream == fmt::format("{}:{}", info.st_dev, info.st_ino);
}

std::string_view ErrorPrefix() {
  return StderrIsJournal() ? PriorityPrefix(spdlog::level::err) : "";
}

}  // namespace lockstep
