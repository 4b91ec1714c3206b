#include "client/cli/log_query_parser.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "common/base/log_line.h"
#include "common/model/names.h"

namespace lockstep {
namespace {

constexpr size_t kMaxQuery = 20'000;
constexpr int kMaxDepth = 40;
constexpr int64_t kMaxPatternMemory = 4 << 20;

struct FieldName {
  std::string_view name;
  QueryField field;
};
constexpr FieldName kFields[] = {
    {"resource.type", QueryField::kResource},
    {"resource.labels.task_name", QueryField::kTask},
    {"resource.labels.job_id", QueryField::kJob},
    {"labels.ml.googleapis.com/task_name", QueryField::kTask},
    {"labels.ml.googleapis.com/job_id", QueryField::kJob},
    {"textPayload", QueryField::kText},
    {"jsonPayload.message", QueryField::kText},
    {"severity", QueryField::kSeverity},
    {"timestamp", QueryField::kTime},
    {"labels.rank", QueryField::kRank},
    {"labels.attempt", QueryField::kAttempt},
    {"labels.stream", QueryField::kStream}};

// ... of which those are told that one would write.
constexpr std::string_view kFieldsText =
    "resource.labels.task_name, resource.labels.job_id, textPayload, severity, "
    "timestamp, labels.rank, labels.attempt and labels.stream";

enum class TokenKind { kEnd, kWord, kQuoted, kOp, kOpen, kClose, kMinus };
struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  QueryOp op = QueryOp::kEqual;
  size_t at = 0;
};

bool IsText(QueryField field) {
  return field == QueryField::kTask || field == QueryField::kJob ||
         field == QueryField::kResource || field == QueryField::kText ||
         field == QueryField::kStream;
}

// The operators that a field takes, for people.
std::string OpsText(QueryField field) {
  if (field == QueryField::kStream) return "= and !=";
  return IsText(field) ? "=, !=, :, =~ and !~" : "=, !=, <, <=, > and >=";
}
bool Takes(QueryField field, QueryOp op) {
  if (op == QueryOp::kEqual || op == QueryOp::kNotEqual) return true;
  if (field == QueryField::kStream) return false;
  const bool of_text = op == QueryOp::kHas || op == QueryOp::kMatches ||
                       op == QueryOp::kNotMatches;
  return IsText(field) == of_text;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  StatusOr<QueryNode> Parse() {
    if (text_.size() > kMaxQuery) {
      return InvalidArgument("a filter has at most {} bytes, not {}", kMaxQuery,
                             text_.size());
    }
    LOCKSTEP_RETURN_IF_ERROR(Advance());
    if (token_.kind == TokenKind::kEnd) return Bad("the filter is empty");
    LOCKSTEP_ASSIGN_OR_RETURN(QueryNode node, ParseAnd(0));
    if (token_.kind != TokenKind::kEnd) return Bad("nothing may follow here");
    return node;
  }

 private:
  Status Bad(std::string_view what) const { return BadAt(token_.at, what); }
  static Status BadAt(size_t at, std::string_view what) {
    return InvalidArgument("column {}: {}", at + 1, what);
  }

  // ---- Words ----

  Status Advance() {
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
    token_ = {TokenKind::kEnd, "", QueryOp::kEqual, at_};
    if (at_ == text_.size()) return OkStatus();
    const char c = text_[at_];
    if (c == '(' || c == ')') {
      token_.kind = c == '(' ? TokenKind::kOpen : TokenKind::kClose;
      ++at_;
      return OkStatus();
    }
    if (c == '-') {
      token_.kind = TokenKind::kMinus;
      ++at_;
      return OkStatus();
    }
    if (c == '"' || c == '\'') return TakeQuoted();
    if (TakeOp()) return OkStatus();
    TakeWord();
    if (!token_.text.empty()) return OkStatus();
    return Bad(fmt::format("\"{}\" is not understood", c));
  }
  static bool IsSpace(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
  }

  bool TakeOp() {
    struct OpName {
      std::string_view name;
      QueryOp op;
    };
    // The longer ones first.
    constexpr OpName kOps[] = {
        {"!=", QueryOp::kNotEqual},     {"=~", QueryOp::kMatches},
        {"!~", QueryOp::kNotMatches},   {"<=", QueryOp::kLessEqual},
        {">=", QueryOp::kGreaterEqual}, {"=", QueryOp::kEqual},
        {":", QueryOp::kHas},           {"<", QueryOp::kLess},
        {">", QueryOp::kGreater}};
    for (const OpName& each : kOps) {
      if (!text_.substr(at_).starts_with(each.name)) continue;
      token_.kind = TokenKind::kOp;
      token_.op = each.op;
      token_.text = each.name;
      at_ += each.name.size();
      return true;
    }
    return false;
  }

  Status TakeQuoted() {
    const char quote = text_[at_++];
    token_.kind = TokenKind::kQuoted;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == quote) {
        ++at_;
        return OkStatus();
      }
      // Only a quote and a backslash are told from others by one: patterns
      // have many.
      const bool escape = c == '\\' && at_ + 1 < text_.size() &&
                          (text_[at_ + 1] == quote || text_[at_ + 1] == '\\');
      if (escape) ++at_;
      token_.text += text_[at_];
    }
    return Bad("the quote is not closed");
  }

  // Values may have colons (times), fields parts in quotes.
  void TakeWord() {
    token_.kind = TokenKind::kWord;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool in_field = c == '"' && token_.text.ends_with(".");
      if (in_field) {
        const size_t end = text_.find('"', at_ + 1);
        if (end == std::string_view::npos) return;
        token_.text += text_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
        continue;
      }
      const bool colon = c == ':' && is_value_;
      if (!colon && (IsSpace(c) || std::string_view("()\"'=!<>:~").find(c) !=
                                       std::string_view::npos)) {
        return;
      }
      token_.text += c;
      ++at_;
    }
  }

  // ---- Sentences ----

  bool AtWord(std::string_view word) const {
    return token_.kind == TokenKind::kWord && token_.text == word;
  }
  bool AtEnd() const {
    return token_.kind == TokenKind::kEnd || token_.kind == TokenKind::kClose;
  }

  StatusOr<QueryNode> ParseAnd(int depth) {
    if (depth > kMaxDepth) return Bad("brackets are nested too deep");
    LOCKSTEP_ASSIGN_OR_RETURN(QueryNode node, ParseOr(depth));
    while (!AtEnd()) {
      if (AtWord("AND")) LOCKSTEP_RETURN_IF_ERROR(Advance());
      LOCKSTEP_ASSIGN_OR_RETURN(QueryNode next, ParseOr(depth));
      Join(QueryNode::Kind::kAnd, std::move(next), &node);
    }
    return node;
  }

  StatusOr<QueryNode> ParseOr(int depth) {
    LOCKSTEP_ASSIGN_OR_RETURN(QueryNode node, ParseNot(depth));
    while (AtWord("OR")) {
      LOCKSTEP_RETURN_IF_ERROR(Advance());
      LOCKSTEP_ASSIGN_OR_RETURN(QueryNode next, ParseNot(depth));
      Join(QueryNode::Kind::kOr, std::move(next), &node);
    }
    return node;
  }

  // node = node KIND next, flat.
  static void Join(QueryNode::Kind kind, QueryNode next, QueryNode* node) {
    if (node->kind != kind || node->children.empty()) {
      QueryNode joined;
      joined.kind = kind;
      joined.children.push_back(std::move(*node));
      *node = std::move(joined);
    }
    node->children.push_back(std::move(next));
  }

  StatusOr<QueryNode> ParseNot(int depth) {
    bool negated = false;
    while (AtWord("NOT") || token_.kind == TokenKind::kMinus) {
      negated = !negated;
      LOCKSTEP_RETURN_IF_ERROR(Advance());
    }
    LOCKSTEP_ASSIGN_OR_RETURN(QueryNode node, ParseOne(depth));
    if (!negated) return node;
    QueryNode out;
    out.kind = QueryNode::Kind::kNot;
    out.children.push_back(std::move(node));
    return out;
  }

  StatusOr<QueryNode> ParseOne(int depth) {
    if (token_.kind == TokenKind::kOpen) {
      LOCKSTEP_RETURN_IF_ERROR(Advance());
      LOCKSTEP_ASSIGN_OR_RETURN(QueryNode node, ParseAnd(depth + 1));
      if (token_.kind != TokenKind::kClose) return Bad("\")\" is missing");
      LOCKSTEP_RETURN_IF_ERROR(Advance());
      return node;
    }
    if (token_.kind != TokenKind::kWord && token_.kind != TokenKind::kQuoted) {
      return Bad("a field or a text is missing");
    }
    if (AtWord("AND") || AtWord("OR")) {
      return Bad(token_.text + " stands between two comparisons");
    }
    const Token first = token_;
    LOCKSTEP_RETURN_IF_ERROR(Advance());
    if (token_.kind != TokenKind::kOp) {
      // A text alone.
      QueryNode node;
      node.text = first.text;
      return node;
    }
    return ParseComparison(first, depth);
  }

  StatusOr<QueryNode> ParseComparison(const Token& name, int depth) {
    LOCKSTEP_ASSIGN_OR_RETURN(const QueryField field, FindField(name));
    const QueryOp op = token_.op;
    if (!Takes(field, op)) {
      return Bad(fmt::format("{} takes {}, not {}", name.text, OpsText(field),
                             token_.text));
    }
    is_value_ = true;
    const Status advanced = Advance();
    is_value_ = false;
    LOCKSTEP_RETURN_IF_ERROR(advanced);
    if (token_.kind == TokenKind::kOpen) return ParseValues(field, op, depth);
    return ParseValue(field, op);
  }

  // ("a" OR "b" AND ...): each is compared.
  StatusOr<QueryNode> ParseValues(QueryField field, QueryOp op, int depth) {
    if (depth > kMaxDepth) return Bad("brackets are nested too deep");
    std::optional<QueryNode> node;
    std::string between;
    do {
      is_value_ = true;
      const Status advanced = Advance();
      is_value_ = false;
      LOCKSTEP_RETURN_IF_ERROR(advanced);
      LOCKSTEP_ASSIGN_OR_RETURN(QueryNode next, ParseValue(field, op));
      if (!node) {
        node = std::move(next);
      } else {
        Join(between == "OR" ? QueryNode::Kind::kOr : QueryNode::Kind::kAnd,
             std::move(next), &*node);
      }
      if (!AtWord("OR") && !AtWord("AND")) break;
      if (!between.empty() && between != token_.text) {
        return Bad("in brackets stands either AND or OR");
      }
      between = token_.text;
    } while (true);
    if (token_.kind != TokenKind::kClose) return Bad("\")\" is missing");
    LOCKSTEP_RETURN_IF_ERROR(Advance());
    return *std::move(node);
  }

  StatusOr<QueryNode> ParseValue(QueryField field, QueryOp op) {
    const bool minus = token_.kind == TokenKind::kMinus;
    if (minus) LOCKSTEP_RETURN_IF_ERROR(Advance());
    if (token_.kind != TokenKind::kWord && token_.kind != TokenKind::kQuoted) {
      return Bad("a value is missing");
    }
    QueryNode node;
    node.field = field;
    node.op = op;
    node.text = (minus ? "-" : "") + token_.text;
    LOCKSTEP_RETURN_IF_ERROR(ReadValue(&node));
    LOCKSTEP_RETURN_IF_ERROR(Advance());
    return node;
  }

  Status ReadValue(QueryNode* node) const {
    const std::string& text = node->text;
    if (node->op == QueryOp::kMatches || node->op == QueryOp::kNotMatches) {
      re2::RE2::Options options;
      options.set_log_errors(false);
      options.set_max_mem(kMaxPatternMemory);
      node->pattern = std::make_shared<const re2::RE2>(text, options);
      if (node->pattern->ok()) return OkStatus();
      return Bad(
          fmt::format("\"{}\" is no regular expression as RE2 takes it: "
                      "{}",
                      text, node->pattern->error()));
    }
    switch (node->field) {
      case QueryField::kSeverity: {
        const auto severity = ParseSeverity(text);
        if (!severity.ok()) return Bad(Message(severity.status()));
        node->number = *severity;
        return OkStatus();
      }
      case QueryField::kTime: {
        const std::string full = text.size() == 10 ? text + "T00:00:00Z" : text;
        if (cri::ParseRfc3339Nano(full, &node->number)) return OkStatus();
        return Bad(
            fmt::format("\"{}\" is no time such as 2026-01-31 or "
                        "2026-01-31T12:00:00Z",
                        text));
      }
      case QueryField::kRank:
      case QueryField::kAttempt: {
        const auto [end, error] = std::from_chars(
            text.data(), text.data() + text.size(), node->number);
        if (error == std::errc() && end == text.data() + text.size()) {
          return OkStatus();
        }
        return Bad(fmt::format("\"{}\" is no whole number", text));
      }
      case QueryField::kTask:
        // It goes by both names.
        if (text == "chief-replica-0") node->text = "master-replica-0";
        return OkStatus();
      default:
        return OkStatus();
    }
  }

  static StatusOr<QueryField> FindField(const Token& name) {
    std::vector<std::string> names;
    for (const FieldName& each : kFields) {
      if (each.name == name.text) return each.field;
      names.emplace_back(each.name);
    }
    const std::string near = Nearest(name.text, names);
    return BadAt(name.at,
                 near.empty()
                     ? fmt::format("there is no field {}; there are {}",
                                   name.text, kFieldsText)
                     : fmt::format("there is no field {}; did you mean {}?",
                                   name.text, near));
  }

  const std::string_view text_;
  size_t at_ = 0;
  // What comes next is a value.
  bool is_value_ = false;
  Token token_;
};

}  // namespace

StatusOr<QueryNode> ParseLogQuery(std::string_view text) {
  return Parser(text).Parse();
}

}  // namespace lockstep
