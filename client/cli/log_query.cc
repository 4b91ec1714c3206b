#include "client/cli/log_query.h"

#include <re2/re2.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "client/cli/log_query_parser.h"

namespace lockstep {
namespace {

char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
bool SameChar(char a, char b) { return Lower(a) == Lower(b); }

int64_t NanosOf(const v1::LogLine& line) {
  // Beyond what 64 bits hold is no time of a line.
  constexpr int64_t kMost =
      std::numeric_limits<int64_t>::max() / 1'000'000'000 - 1;
  return std::clamp(line.time().seconds(), -kMost, kMost) * 1'000'000'000 +
         std::clamp(line.time().nanos(), 0, 999'999'999);
}

template <typename Number>
bool CompareNumber(QueryOp op, Number a, Number b) {
  switch (op) {
    case QueryOp::kEqual:
      return a == b;
    case QueryOp::kNotEqual:
      return a != b;
    case QueryOp::kLess:
      return a < b;
    case QueryOp::kLessEqual:
      return a <= b;
    case QueryOp::kGreater:
      return a > b;
    case QueryOp::kGreaterEqual:
      return a >= b;
    default:
      return false;
  }
}

bool CompareText(const QueryNode& node, std::string_view text) {
  const std::string& value = node.text;
  switch (node.op) {
    case QueryOp::kEqual:
    case QueryOp::kNotEqual:
      return (node.op == QueryOp::kEqual) ==
             std::equal(text.begin(), text.end(), value.begin(), value.end(),
                        SameChar);
    case QueryOp::kHas:
      return std::search(text.begin(), text.end(), value.begin(), value.end(),
                         SameChar) != text.end() ||
             value.empty();
    case QueryOp::kMatches:
    case QueryOp::kNotMatches:
      return (node.op == QueryOp::kMatches) ==
             re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()),
                                    *node.pattern);
    default:
      return false;
  }
}

// Of every line: the name that AI Platform's have, and that of a job.
bool CompareResource(const QueryNode& node) {
  const bool ml = CompareText(node, "ml_job");
  const bool cloud = CompareText(node, "cloudml_job");
  const bool denies =
      node.op == QueryOp::kNotEqual || node.op == QueryOp::kNotMatches;
  return denies ? ml && cloud : ml || cloud;
}

bool CompareTerm(const QueryNode& node, const std::string& job,
                 const v1::LogLine& line) {
  switch (node.field) {
    case QueryField::kTask:
      return CompareText(node, line.task());
    case QueryField::kJob:
      return CompareText(node, job);
    case QueryField::kResource:
      return CompareResource(node);
    case QueryField::kText:
      return CompareText(node, line.text());
    case QueryField::kStream:
      return CompareText(node, line.stream());
    case QueryField::kSeverity:
      return CompareNumber<int64_t>(node.op, line.severity(), node.number);
    case QueryField::kTime:
      return CompareNumber(node.op, NanosOf(line), node.number);
    case QueryField::kRank:
      return CompareNumber<int64_t>(node.op, line.rank(), node.number);
    case QueryField::kAttempt:
      return CompareNumber<int64_t>(node.op, line.attempt(), node.number);
  }
  return false;
}

bool Evaluate(const QueryNode& node, const std::string& job,
              const v1::LogLine& line) {
  const auto holds = [&](const QueryNode& child) {
    return Evaluate(child, job, line);
  };
  switch (node.kind) {
    case QueryNode::Kind::kAnd:
      return std::all_of(node.children.begin(), node.children.end(), holds);
    case QueryNode::Kind::kOr:
      return std::any_of(node.children.begin(), node.children.end(), holds);
    case QueryNode::Kind::kNot:
      return !holds(node.children.at(0));
    case QueryNode::Kind::kTerm:
      return CompareTerm(node, job, line);
  }
  return false;
}

// The tasks that `node` names where it is task="a", or such terms with OR.
bool TasksOf(const QueryNode& node, std::vector<std::string>* tasks) {
  if (node.kind == QueryNode::Kind::kOr) {
    return std::all_of(
        node.children.begin(), node.children.end(),
        [&](const QueryNode& child) { return TasksOf(child, tasks); });
  }
  // A name in other letters is none for the coordinator.
  const bool lower = std::all_of(node.text.begin(), node.text.end(),
                                 [](char c) { return Lower(c) == c; });
  if (node.kind != QueryNode::Kind::kTerm || node.field != QueryField::kTask ||
      node.op != QueryOp::kEqual || !lower) {
    return false;
  }
  tasks->push_back(node.text);
  return true;
}

void Later(int64_t nanos, std::optional<WallTime>* time) {
  if (!*time || **time < FromUnixNanos(nanos)) *time = FromUnixNanos(nanos);
}
void Earlier(int64_t nanos, std::optional<WallTime>* time) {
  if (!*time || **time > FromUnixNanos(nanos)) *time = FromUnixNanos(nanos);
}

bool NarrowTime(const QueryNode& node, LogOptions* options) {
  const bool from = node.op == QueryOp::kGreater ||
                    node.op == QueryOp::kGreaterEqual ||
                    node.op == QueryOp::kEqual;
  const bool to = node.op == QueryOp::kLess || node.op == QueryOp::kLessEqual ||
                  node.op == QueryOp::kEqual;
  if (from) Later(node.number, &options->since);
  if (to) Earlier(node.number, &options->until);
  return node.op == QueryOp::kGreaterEqual || node.op == QueryOp::kLessEqual;
}

bool NarrowSeverity(const QueryNode& node, LogOptions* options) {
  int64_t least = node.number;
  if (node.op == QueryOp::kGreater) ++least;
  if (node.op != QueryOp::kGreater && node.op != QueryOp::kGreaterEqual &&
      node.op != QueryOp::kEqual) {
    return false;
  }
  // Beyond the worst nothing can be asked for.
  if (least > v1::SEVERITY_CRITICAL) return false;
  options->min_severity =
      std::max(options->min_severity, static_cast<v1::Severity>(least));
  return node.op != QueryOp::kEqual;
}

bool NarrowText(const QueryNode& node, LogOptions* options) {
  if (!options->grep.empty()) return false;
  if (node.op == QueryOp::kMatches) {
    options->grep = node.text;
    return true;
  }
  if (node.op != QueryOp::kHas || node.text.empty()) return false;
  // Of letters beyond ASCII ours in any case are fewer than RE2's.
  options->grep = "(?i)" + re2::RE2::QuoteMeta(node.text);
  return std::all_of(node.text.begin(), node.text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 128;
  });
}

bool NarrowBy(const QueryNode& node, const std::string& job,
              LogOptions* options) {
  std::vector<std::string> tasks;
  if (TasksOf(node, &tasks)) {
    if (!options->tasks.empty()) return false;
    options->tasks = std::move(tasks);
    return true;
  }
  if (node.kind == QueryNode::Kind::kAnd) {
    bool all = true;
    for (const QueryNode& child : node.children) {
      all = NarrowBy(child, job, options) && all;
    }
    return all;
  }
  if (node.kind != QueryNode::Kind::kTerm) return false;
  switch (node.field) {
    case QueryField::kTime:
      return NarrowTime(node, options);
    case QueryField::kSeverity:
      return NarrowSeverity(node, options);
    case QueryField::kText:
      return NarrowText(node, options);
    case QueryField::kJob:
      // All lines are of one job.
      return CompareText(node, job);
    case QueryField::kResource:
      return CompareResource(node);
    case QueryField::kAttempt:
      if (node.op != QueryOp::kEqual || options->attempt != 0 ||
          node.number < 1 ||
          node.number > std::numeric_limits<int32_t>::max()) {
        return false;
      }
      options->attempt = static_cast<int32_t>(node.number);
      return true;
    default:
      return false;
  }
}

}  // namespace

LogQuery::LogQuery() = default;
LogQuery::~LogQuery() = default;
LogQuery::LogQuery(LogQuery&&) noexcept = default;
LogQuery& LogQuery::operator=(LogQuery&&) noexcept = default;

StatusOr<LogQuery> LogQuery::Parse(std::string_view text) {
  LOCKSTEP_ASSIGN_OR_RETURN(QueryNode root, ParseLogQuery(text));
  LogQuery query;
  query.root_ = std::make_unique<const QueryNode>(std::move(root));
  return query;
}

bool LogQuery::Matches(const std::string& job, const v1::LogLine& line) const {
  return !root_ || Evaluate(*root_, job, line);
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
      "\"{}\" is no severity; there are DEBUG, INFO, WARNING, ERROR and "
      "CRITICAL",
      text);
}

std::string Text(v1::Severity severity) {
  if (severity == v1::SEVERITY_UNSPECIFIED) return "DEFAULT";
  const std::string name = v1::Severity_Name(severity);
  // An unknown number, from a newer coordinator, is shown as it is.
  return name.empty() ? std::to_string(severity) : name.substr(9);
}

}  // namespace lockstep
