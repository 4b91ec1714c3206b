// What the library logs: warnings and errors, to stderr, which is the job's
// log. It takes the place of common/base/logging.cc, which needs spdlog.
#include <unistd.h>

#include <string>

#include "common/base/logging.h"

namespace lockstep {

void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args) {
  if (level < LogLevel::kWarn) return;
  const std::string line = "lockstep: " + fmt::vformat(format, args) + "\n";
  // One write, so that lines of several ranks are not mixed.
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace lockstep
