// The words of a log query (log_query.h) as a tree. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_LOG_QUERY_PARSER_H_
#define LOCKSTEP_CLIENT_CLI_LOG_QUERY_PARSER_H_

#include <re2/re2.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/log_query.h"
#include "common/base/status.h"

namespace lockstep {

struct LogQuery::Node {
  enum class Kind { kAnd, kOr, kNot, kTerm };
  enum class Field {
    kTask,
    kJob,
    kResource,
    kText,
    kStream,
    kSeverity,
    kTime,
    kRank,
    kAttempt
  };
  enum class Op {
    kEqual,
    kNotEqual,
    kHas,
    kMatches,
    kNotMatches,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual
  };

  Kind kind = Kind::kTerm;
  // kNot has one.
  std::vector<Node> children;

  // ---- Of a term ----
  Field field = Field::kText;
  Op op = Op::kHas;
  // What it is compared with: a text (with kMatches also as a pattern), or a
  // number: a v1::Severity, Unix nanoseconds, a rank, an attempt.
  std::string text;
  std::shared_ptr<const re2::RE2> pattern;
  int64_t number = 0;
};

using QueryNode = LogQuery::Node;
using QueryField = QueryNode::Field;
using QueryOp = QueryNode::Op;

// InvalidArgument: what is wrong and at which column, from 1.
StatusOr<LogQuery::Node> ParseLogQuery(std::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_LOG_QUERY_PARSER_H_
