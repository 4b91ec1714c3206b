#include "client/cli/log_query.h"

#include <re2/re2.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "client/cli/log_query_language.h"
#include "common/base/ascii.h"

namespace lockstep::cli {
namespace {

bool SameChar(char a, char b) { return AsciiLower(a) == AsciiLower(b); }

int64_t NanosOf(const v1::LogLine& line) {
  // Times beyond 64 bits match no line.
  constexpr int64_t kMost =
      std::numeric_limits<int64_t>::max() / 1'000'000'000 - 1;
  return std::clamp(line.time().seconds(), -kMost, kMost) * 1'000'000'000 +
         std::clamp(line.time().nanos(), 0, 999'999'999);
}

// Evaluates the term as if it were not negated.
bool HoldsForText(const FilterTerm& term, std::string_view text) {
  const std::string& value = term.text;
  switch (term.op) {
    case FilterOp::kHas:
      return std::search(text.begin(), text.end(), value.begin(), value.end(),
                         SameChar) != text.end() ||
             value.empty();
    case FilterOp::kMatches:
      return MatchesPattern(term, text);
    default:
      return std::equal(text.begin(), text.end(), value.begin(), value.end(),
                        SameChar);
  }
}

// Every line has the resource type of AI Platform, and of its jobs.
bool HoldsForResource(const FilterTerm& term) {
  return HoldsForText(term, "ml_job") || HoldsForText(term, "cloudml_job");
}

bool Holds(const FilterTerm& term, const std::string& job,
           const v1::LogLine& line) {
  switch (term.field) {
    case log_field::kTask:
      return HoldsForText(term, line.task());
    case log_field::kJob:
      return HoldsForText(term, job);
    case log_field::kResource:
      return HoldsForResource(term);
    case log_field::kText:
      return HoldsForText(term, line.text());
    case log_field::kStream:
      return HoldsForText(term, line.stream());
    case log_field::kSeverity:
      return Compares(term.op, line.severity(), term.number);
    case log_field::kTime:
      return Compares(term.op, NanosOf(line), term.number);
    case log_field::kRank:
      return Compares(term.op, line.rank(), term.number);
    case log_field::kAttempt:
      return Compares(term.op, line.attempt(), term.number);
    default:
      return false;
  }
}

// Returns the tasks if `node` is task="a", or such terms joined by OR.
bool TasksOf(const FilterNode& node, std::vector<std::string>* tasks) {
  if (node.kind == FilterNode::Kind::kOr) {
    return std::all_of(
        node.children.begin(), node.children.end(),
        [&](const FilterNode& child) { return TasksOf(child, tasks); });
  }
  const FilterTerm& term = node.term;
  // The coordinator compares case-sensitively.
  const bool lower = std::all_of(term.text.begin(), term.text.end(),
                                 [](char c) { return AsciiLower(c) == c; });
  if (node.kind != FilterNode::Kind::kTerm || term.field != log_field::kTask ||
      term.op != FilterOp::kEqual || term.negated || !lower) {
    return false;
  }
  tasks->push_back(term.text);
  return true;
}

void Later(int64_t nanos, std::optional<WallTime>* time) {
  if (!*time || **time < FromUnixNanos(nanos)) *time = FromUnixNanos(nanos);
}
void Earlier(int64_t nanos, std::optional<WallTime>* time) {
  if (!*time || **time > FromUnixNanos(nanos)) *time = FromUnixNanos(nanos);
}

bool NarrowTime(const FilterTerm& term, LogOptions* options) {
  const bool from = term.op == FilterOp::kGreater ||
                    term.op == FilterOp::kGreaterEqual ||
                    term.op == FilterOp::kEqual;
  const bool to = term.op == FilterOp::kLess ||
                  term.op == FilterOp::kLessEqual ||
                  term.op == FilterOp::kEqual;
  if (from) Later(term.number, &options->since);
  if (to) Earlier(term.number, &options->until);
  return term.op == FilterOp::kGreaterEqual || term.op == FilterOp::kLessEqual;
}

bool NarrowSeverity(const FilterTerm& term, LogOptions* options) {
  int64_t least = term.number;
  if (term.op == FilterOp::kGreater) ++least;
  if (term.op != FilterOp::kGreater && term.op != FilterOp::kGreaterEqual &&
      term.op != FilterOp::kEqual) {
    return false;
  }
  // There is no severity above CRITICAL.
  if (least > v1::SEVERITY_CRITICAL) return false;
  options->min_severity =
      std::max(options->min_severity, static_cast<v1::Severity>(least));
  return term.op != FilterOp::kEqual;
}

bool NarrowText(const FilterTerm& term, LogOptions* options) {
  if (!options->grep.empty()) return false;
  if (term.op == FilterOp::kMatches) {
    options->grep = term.text;
    return true;
  }
  if (term.op != FilterOp::kHas || term.text.empty()) return false;
  // For non-ASCII letters, case folding here covers less than RE2's.
  options->grep = "(?i)" + re2::RE2::QuoteMeta(term.text);
  return std::all_of(term.text.begin(), term.text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 128;
  });
}

bool NarrowAttempt(const FilterTerm& term, LogOptions* options) {
  if (term.op != FilterOp::kEqual || options->attempt != 0 || term.number < 1 ||
      term.number > std::numeric_limits<int32_t>::max()) {
    return false;
  }
  options->attempt = static_cast<int32_t>(term.number);
  return true;
}

// REQUIRES: the term is not negated.
bool NarrowByTerm(const FilterTerm& term, LogOptions* options) {
  switch (term.field) {
    case log_field::kTime:
      return NarrowTime(term, options);
    case log_field::kSeverity:
      return NarrowSeverity(term, options);
    case log_field::kText:
      return NarrowText(term, options);
    case log_field::kAttempt:
      return NarrowAttempt(term, options);
    default:
      return false;
  }
}

bool NarrowBy(const FilterNode& node, const std::string& job,
              LogOptions* options) {
  std::vector<std::string> tasks;
  if (TasksOf(node, &tasks)) {
    if (!options->tasks.empty()) return false;
    options->tasks = std::move(tasks);
    return true;
  }
  if (node.kind == FilterNode::Kind::kAnd) {
    bool all = true;
    for (const FilterNode& child : node.children) {
      all = NarrowBy(child, job, options) && all;
    }
    return all;
  }
  if (node.kind != FilterNode::Kind::kTerm) return false;
  const FilterTerm& term = node.term;
  switch (term.field) {
    case log_field::kJob:
      // All lines belong to one job.
      return HoldsForText(term, job) != term.negated;
    case log_field::kResource:
      return HoldsForResource(term) != term.negated;
    default:
      return !term.negated && NarrowByTerm(term, options);
  }
}

}  // namespace

StatusOr<LogQuery> LogQuery::Parse(std::string_view text) {
  LogQuery query;
  LOCKSTEP_ASSIGN_OR_RETURN(query.root_, ParseFilter(LogQueryLanguage(), text));
  if (query.root_) return query;
  return InvalidArgument("column {}: the filter is empty", text.size() + 1);
}

bool LogQuery::Matches(const std::string& job, const v1::LogLine& line) const {
  if (!root_) return true;
  return Evaluate(*root_,
                  [&](const FilterTerm& term) {
                    return std::optional(Holds(term, job, line));
                  })
      .value_or(false);
}

bool LogQuery::Narrow(const std::string& job, LogOptions* options) const {
  return !root_ || NarrowBy(*root_, job, options);
}

StatusOr<v1::Severity> ParseSeverity(std::string_view text) {
  struct Level {
    std::string_view name;
    int number;
    v1::Severity severity;
  };
  constexpr Level kLevels[] = {{"default", 0, v1::SEVERITY_UNSPECIFIED},
                               {"debug", 100, v1::SEVERITY_DEBUG},
                               {"info", 200, v1::SEVERITY_INFO},
                               {"notice", 300, v1::SEVERITY_INFO},
                               {"warning", 400, v1::SEVERITY_WARNING},
                               {"error", 500, v1::SEVERITY_ERROR},
                               {"critical", 600, v1::SEVERITY_CRITICAL},
                               {"alert", 700, v1::SEVERITY_CRITICAL},
                               {"emergency", 800, v1::SEVERITY_CRITICAL}};
  for (const Level& level : kLevels) {
    const bool same = std::equal(text.begin(), text.end(), level.name.begin(),
                                 level.name.end(), SameChar);
    if (same || std::to_string(level.number) == text) return level.severity;
  }
  return InvalidArgument(
      "\"{}\" is not a severity; there are DEBUG, INFO, WARNING, ERROR and "
      "CRITICAL",
      text);
}

std::string Text(v1::Severity severity) {
  if (severity == v1::SEVERITY_UNSPECIFIED) return "DEFAULT";
  const std::string name = v1::Severity_Name(severity);
  // An unknown number from a newer coordinator is shown unchanged.
  return name.empty() ? std::to_string(severity) : name.substr(9);
}

}  // namespace lockstep::cli
