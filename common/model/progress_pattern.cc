#include "common/model/progress_pattern.h"

#include <re2/re2.h>

#include <array>
#include <utility>

namespace lockstep {

ProgressPattern::ProgressPattern(std::shared_ptr<const re2::RE2> expression)
    : expression_(std::move(expression)),
      groups_(expression_->NumberOfCapturingGroups()) {}

StatusOr<ProgressPattern> ProgressPattern::Make(const std::string& text) {
  if (text.empty()) return InvalidArgument("the expression is empty");
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(1 << 20);
  auto expression = std::make_shared<re2::RE2>(text, options);
  if (!expression->ok()) {
    return InvalidArgument("\"{}\" is no expression of RE2: {}", text,
                           expression->error());
  }
  if (expression->NumberOfCapturingGroups() > kMaxGroups) {
    return InvalidArgument("\"{}\" has {} groups, and at most {} are allowed",
                           text, expression->NumberOfCapturingGroups(),
                           kMaxGroups);
  }
  return ProgressPattern(std::move(expression));
}

std::optional<std::vector<std::string>> ProgressPattern::Match(
    std::string_view line) const {
  // The first is the whole match.
  std::array<re2::StringPiece, kMaxGroups + 1> parts;
  const re2::StringPiece text(line.data(), line.size());
  if (!expression_->Match(text, 0, text.size(), re2::RE2::UNANCHORED,
                          parts.data(), groups_ + 1)) {
    return std::nullopt;
  }
  std::vector<std::string> groups;
  for (int i = 1; i <= groups_; ++i) {
    const re2::StringPiece& part = parts[static_cast<size_t>(i)];
    groups.emplace_back(part.data() == nullptr ? "" : part.data(), part.size());
  }
  return groups;
}

}  // namespace lockstep
