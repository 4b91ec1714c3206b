#include "server/logs/log_filter.h"

#include <re2/re2.h>

#include <algorithm>
#include <utility>

namespace lockstep::server {
namespace {

constexpr size_t kMaxPattern = 4096;
// Of a compiled pattern with its caches.
constexpr int64_t kMaxPatternMemory = 256 << 10;

}  // namespace

LogFilter::LogFilter(LogSelection selection)
    : selection_(std::move(selection)) {}
LogFilter::LogFilter(LogFilter&&) noexcept = default;
LogFilter::~LogFilter() = default;

StatusOr<LogFilter> LogFilter::Make(const LogSelection& selection) {
  LogFilter filter(selection);
  if (selection.grep.empty()) return filter;
  if (selection.grep.size() > kMaxPattern) {
    return InvalidArgument("a pattern has at most {} bytes, not {}",
                           kMaxPattern, selection.grep.size());
  }
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMaxPatternMemory);
  auto grep = std::make_unique<re2::RE2>(selection.grep, options);
  if (!grep->ok()) {
    return InvalidArgument("\"{}\" is not a valid RE2 expression: {}",
                           selection.grep, grep->error());
  }
  filter.grep_ = std::move(grep);
  return filter;
}

bool LogFilter::WantsText(int64_t unix_nanos, std::string_view text) const {
  if (unix_nanos < selection_.since || unix_nanos > selection_.until) {
    return false;
  }
  if (!grep_) return true;
  const size_t size = std::min(text.size(), kMaxMatchedBytes);
  return re2::RE2::PartialMatch(re2::StringPiece(text.data(), size), *grep_);
}

}  // namespace lockstep::server
