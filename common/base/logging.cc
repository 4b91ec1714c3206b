#include "common/base/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>

namespace lockstep {

Status CheckLogLevel(const std::string& level) {
  if (level == "debug" || level == "info" || level == "warn" ||
      level == "error") {
    return OkStatus();
  }
  return InvalidArgument(
      "there is no log level \"{}\": it is debug, info, warn or error", level);
}

void InitLogging(const std::string& program, const std::string& level) {
  auto logger = spdlog::get(program);
  if (logger == nullptr) logger = spdlog::stderr_color_mt(program);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %n: %v",
                      spdlog::pattern_time_type::utc);
  const auto parsed = spdlog::level::from_str(level);
  logger->set_level(parsed == spdlog::level::off ? spdlog::level::info
                                                 : parsed);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(logger);
}

}  // namespace lockstep
