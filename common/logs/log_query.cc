#include "common/logs/log_query.h"

#include <re2/re2.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/ascii.h"
#include "common/logs/log_query_language.h"

namespace lockstep {
namespace {

bool SameChar(char a, char b) { return AsciiLower(a) == AsciiLower(b); }

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

bool Holds(const FilterTerm& term, const LogEntry& entry) {
  switch (term.field) {
    case log_field::kTask:
      return HoldsForText(term, entry.task);
    case log_field::kJob:
      return HoldsForText(term, entry.job);
    case log_field::kResource:
      return HoldsForResource(term);
    case log_field::kText:
      return HoldsForText(term, entry.text);
    case log_field::kStream:
      return HoldsForText(term, entry.stream);
    case log_field::kSeverity:
      return Compares(term.op, entry.severity, term.number);
    case log_field::kTime:
      return Compares(term.op, entry.unix_nanos, term.number);
    case log_field::kRank:
      return Compares(term.op, entry.rank, term.number);
    case log_field::kAttempt:
      return Compares(term.op, entry.attempt, term.number);
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

void Later(int64_t nanos, std::optional<int64_t>* time) {
  if (!*time || **time < nanos) *time = nanos;
}
void Earlier(int64_t nanos, std::optional<int64_t>* time) {
  if (!*time || **time > nanos) *time = nanos;
}

bool NarrowTime(const FilterTerm& term, LogBounds* bounds) {
  const bool from = term.op == FilterOp::kGreater ||
                    term.op == FilterOp::kGreaterEqual ||
                    term.op == FilterOp::kEqual;
  const bool to = term.op == FilterOp::kLess ||
                  term.op == FilterOp::kLessEqual ||
                  term.op == FilterOp::kEqual;
  if (from) Later(term.number, &bounds->since);
  if (to) Earlier(term.number, &bounds->until);
  return term.op == FilterOp::kGreaterEqual || term.op == FilterOp::kLessEqual;
}

bool NarrowSeverity(const FilterTerm& term, LogBounds* bounds) {
  int64_t least = term.number;
  if (term.op == FilterOp::kGreater) ++least;
  if (term.op != FilterOp::kGreater && term.op != FilterOp::kGreaterEqual &&
      term.op != FilterOp::kEqual) {
    return false;
  }
  // There is no severity above CRITICAL.
  if (least > kMaxLogSeverity) return false;
  bounds->min_severity =
      std::max(bounds->min_severity, static_cast<int>(least));
  return term.op != FilterOp::kEqual;
}

bool NarrowText(const FilterTerm& term, LogBounds* bounds) {
  if (!bounds->grep.empty()) return false;
  if (term.op == FilterOp::kMatches) {
    bounds->grep = term.text;
    return true;
  }
  if (term.op != FilterOp::kHas || term.text.empty()) return false;
  // For non-ASCII letters, case folding here covers less than RE2's.
  bounds->grep = "(?i)" + re2::RE2::QuoteMeta(term.text);
  return std::all_of(term.text.begin(), term.text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 128;
  });
}

bool NarrowAttempt(const FilterTerm& term, LogBounds* bounds) {
  if (term.op != FilterOp::kEqual || bounds->attempt != 0 || term.number < 1 ||
      term.number > std::numeric_limits<int32_t>::max()) {
    return false;
  }
  bounds->attempt = static_cast<int32_t>(term.number);
  return true;
}

// REQUIRES: the term is not negated.
bool NarrowByTerm(const FilterTerm& term, LogBounds* bounds) {
  switch (term.field) {
    case log_field::kTime:
      return NarrowTime(term, bounds);
    case log_field::kSeverity:
      return NarrowSeverity(term, bounds);
    case log_field::kText:
      return NarrowText(term, bounds);
    case log_field::kAttempt:
      return NarrowAttempt(term, bounds);
    default:
      return false;
  }
}

bool NarrowBy(const FilterNode& node, const std::string& job,
              LogBounds* bounds) {
  std::vector<std::string> tasks;
  if (TasksOf(node, &tasks)) {
    if (!bounds->tasks.empty()) return false;
    bounds->tasks = std::move(tasks);
    return true;
  }
  if (node.kind == FilterNode::Kind::kAnd) {
    bool all = true;
    for (const FilterNode& child : node.children) {
      all = NarrowBy(child, job, bounds) && all;
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
      return !term.negated && NarrowByTerm(term, bounds);
  }
}

}  // namespace

StatusOr<LogQuery> LogQuery::Parse(std::string_view text) {
  LogQuery query;
  LOCKSTEP_ASSIGN_OR_RETURN(query.root_, ParseFilter(LogQueryLanguage(), text));
  if (query.root_) return query;
  return InvalidArgument("column {}: the filter is empty", text.size() + 1);
}

bool LogQuery::Matches(const LogEntry& entry) const {
  if (!root_) return true;
  return Evaluate(*root_,
                  [&](const FilterTerm& term) {
                    return std::optional(Holds(term, entry));
                  })
      .value_or(false);
}

bool LogQuery::Narrow(const std::string& job, LogBounds* bounds) const {
  return !root_ || NarrowBy(*root_, job, bounds);
}

StatusOr<int> ParseLogSeverity(std::string_view text) {
  struct Level {
    std::string_view name;
    int number;
    int severity;
  };
  constexpr Level kLevels[] = {
      {"default", 0, 0},    {"debug", 100, 1},   {"info", 200, 2},
      {"notice", 300, 2},   {"warning", 400, 3}, {"error", 500, 4},
      {"critical", 600, 5}, {"alert", 700, 5},   {"emergency", 800, 5}};
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

}  // namespace lockstep
