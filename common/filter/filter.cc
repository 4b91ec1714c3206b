#include "common/filter/filter.h"

#include <charconv>

namespace lockstep {

std::optional<bool> Evaluate(
    const FilterNode& node,
    const std::function<std::optional<bool>(const FilterTerm&)>& holds) {
  switch (node.kind) {
    case FilterNode::Kind::kTerm: {
      const std::optional<bool> term = holds(node.term);
      return term ? std::optional(*term != node.term.negated) : std::nullopt;
    }
    case FilterNode::Kind::kNot: {
      const std::optional<bool> child = Evaluate(node.children.at(0), holds);
      return child ? std::optional(!*child) : std::nullopt;
    }
    case FilterNode::Kind::kAnd:
    case FilterNode::Kind::kOr:
      break;
  }
  // One child equal to `decides` settles the result.
  const bool decides = node.kind == FilterNode::Kind::kOr;
  std::optional<bool> result = !decides;
  for (const FilterNode& child : node.children) {
    const std::optional<bool> one = Evaluate(child, holds);
    if (one == decides) return decides;
    if (!one) result = std::nullopt;
  }
  return result;
}

bool Compares(FilterOp op, int64_t left, int64_t right) {
  switch (op) {
    case FilterOp::kLess:
      return left < right;
    case FilterOp::kLessEqual:
      return left <= right;
    case FilterOp::kGreater:
      return left > right;
    case FilterOp::kGreaterEqual:
      return left >= right;
    default:
      return left == right;
  }
}

bool MatchesPattern(const FilterTerm& term, std::string_view text) {
  return re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()),
                                *term.pattern);
}

Status ReadWholeNumber(size_t max_shown, FilterTerm* term) {
  const std::string& text = term->text;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), term->number);
  if (error == std::errc() && end == text.data() + text.size()) {
    return OkStatus();
  }
  return InvalidArgument("\"{}\" is not a whole number",
                         text.substr(0, max_shown));
}

Status ReadPattern(int64_t max_memory, size_t max_shown, FilterTerm* term) {
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(max_memory);
  term->pattern = std::make_shared<const re2::RE2>(term->text, options);
  if (term->pattern->ok()) return OkStatus();
  return InvalidArgument("\"{}\" is not a valid RE2 expression: {}",
                         term->text.substr(0, max_shown),
                         term->pattern->error());
}

}  // namespace lockstep
