// Selects the lines of a log. Pure.
#ifndef LOCKSTEP_SERVER_LOGS_LOG_FILTER_H_
#define LOCKSTEP_SERVER_LOGS_LOG_FILTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "server/logs/severity.h"

namespace re2 {
class RE2;
}

namespace lockstep::server {

struct LogSelection {
  // Unix nanoseconds, both inclusive.
  int64_t since = INT64_MIN;
  int64_t until = INT64_MAX;
  // The least severity. Unset for all.
  std::optional<Severity> min_severity;
  // RE2, matched in the first kMaxMatchedBytes of the line. Empty for all.
  std::string grep;
};

// A pattern may cost its length for each byte, so this bounds the work between
// two checks for cancellation.
inline constexpr size_t kMaxMatchedBytes = 64 << 10;

// Immutable, so safe from any thread. Matching takes linear time and constant
// memory.
class LogFilter {
 public:
  // InvalidArgument if `grep` is not a pattern or takes too much memory.
  static StatusOr<LogFilter> Make(const LogSelection& selection);
  LogFilter(LogFilter&&) noexcept;
  ~LogFilter();

  // Checks time and pattern only. `text` may hold any bytes.
  bool WantsText(int64_t unix_nanos, std::string_view text) const;
  bool WantsSeverity(Severity severity) const {
    return !selection_.min_severity || severity >= *selection_.min_severity;
  }
  bool Wants(int64_t unix_nanos, Severity severity,
             std::string_view text) const {
    return WantsSeverity(severity) && WantsText(unix_nanos, text);
  }

 private:
  explicit LogFilter(LogSelection selection);

  LogSelection selection_;
  std::unique_ptr<const re2::RE2> grep_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_LOGS_LOG_FILTER_H_
