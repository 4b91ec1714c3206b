// Which lines of a log a reader wants. Pure.
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

namespace lockstep {

struct LogSelection {
  // Unix nanoseconds, both inclusive.
  int64_t since = INT64_MIN;
  int64_t until = INT64_MAX;
  // These and worse; unset: all.
  std::optional<Severity> min_severity;
  // RE2, somewhere in the first kMaxMatchedBytes of the line; empty: all.
  std::string grep;
};

// A pattern may cost as much as its length for each byte: so many bytes are
// done before anybody can ask whether the reader is still there.
inline constexpr size_t kMaxMatchedBytes = 64 << 10;

// Immutable, so safe from any thread. Matching takes time linear in what is
// matched of the line, and memory that does not depend on it.
class LogFilter {
 public:
  // InvalidArgument: `grep` is no pattern, or one that takes too much memory.
  static StatusOr<LogFilter> Make(const LogSelection& selection);
  LogFilter(LogFilter&&) noexcept;
  ~LogFilter();

  // By time and pattern alone; `text` may be any bytes.
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

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_LOGS_LOG_FILTER_H_
