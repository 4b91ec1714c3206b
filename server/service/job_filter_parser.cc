// The language of job_filter.h.
#include <utility>

#include "common/model/names.h"
#include "server/service/job_filter.h"
#include "server/service/job_filter_value.h"

namespace lockstep {
namespace {

using Field = JobFilterTerm::Field;
using FilterNode = JobFilterNode;
using Op = JobFilterTerm::Op;

constexpr size_t kMaxFilterText = 4096;
constexpr size_t kMaxTerms = 64;
constexpr int kMaxDepth = 20;

struct FieldName {
  std::string_view name;
  Field field;
};
constexpr FieldName kFields[] = {
    {"jobId", Field::kJobId},
    {"name", Field::kJobId},
    {"state", Field::kState},
    {"owner", Field::kOwner},
    {"kind", Field::kKind},
    {"pool", Field::kPool},
    {"createTime", Field::kCreateTime},
    {"startTime", Field::kStartTime},
    {"endTime", Field::kEndTime},
    {"priority", Field::kPriority},
    {"trainingInput.region", Field::kRegion},
    {"trainingInput.scheduling.priority", Field::kPriority}};
constexpr char kFieldsText[] =
    "jobId, state, createTime, startTime, endTime, labels.KEY, owner, kind, "
    "pool, priority and trainingInput.region";

enum class TokenKind {
  kEnd,
  kWord,
  kQuoted,
  kOp,
  kOpen,
  kClose,
  kComma,
  kMinus
};
struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  size_t at = 0;
};

struct OpName {
  std::string_view name;
  Op op;
  bool negated = false;
};
// The longer ones first.
constexpr OpName kOps[] = {{"!=", Op::kEqual, true}, {"!~", Op::kMatches, true},
                           {"<=", Op::kLessEqual},   {">=", Op::kGreaterEqual},
                           {"=", Op::kEqual},        {":", Op::kHas},
                           {"<", Op::kLess},         {">", Op::kGreater},
                           {"~", Op::kMatches}};

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  StatusOr<std::optional<FilterNode>> Parse() {
    if (text_.size() > kMaxFilterText) {
      return InvalidArgument("has {} bytes; at most {} are taken", text_.size(),
                             kMaxFilterText);
    }
    LOCKSTEP_RETURN_IF_ERROR(Advance());
    if (token_.kind == TokenKind::kEnd) return std::optional<FilterNode>();
    LOCKSTEP_ASSIGN_OR_RETURN(FilterNode node, ParseAll(0));
    if (token_.kind != TokenKind::kEnd) {
      return Bad(fmt::format("\"{}\" closes nothing", Shown()));
    }
    return std::optional<FilterNode>(std::move(node));
  }

 private:
  Status Bad(std::string_view what) const { return BadAt(token_.at, what); }
  static Status BadAt(size_t at, std::string_view what) {
    return InvalidArgument("column {}: {}", at + 1, what);
  }
  static Status Placed(size_t at, const Status& status) {
    return status.ok() ? status : BadAt(at, Message(status));
  }
  std::string Shown() const {
    return token_.kind == TokenKind::kEnd ? "the end"
                                          : token_.text.substr(0, 40);
  }

  // ---- Words ----

  // `value`: what comes is one, which may hold what else would end a word.
  Status Advance(bool value = false) {
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
    token_ = {TokenKind::kEnd, "", at_};
    if (at_ == text_.size()) return OkStatus();
    const char c = text_[at_];
    const auto single = [&](TokenKind kind) {
      token_.kind = kind;
      token_.text = std::string(1, c);
      ++at_;
      return OkStatus();
    };
    if (c == '(') return single(TokenKind::kOpen);
    if (c == ')') return single(TokenKind::kClose);
    if (c == ',') return single(TokenKind::kComma);
    if (c == '"' || c == '\'') return TakeQuoted(c);
    if (!value) {
      if (c == '-') return single(TokenKind::kMinus);
      for (const OpName& each : kOps) {
        if (!text_.substr(at_).starts_with(each.name)) continue;
        token_.kind = TokenKind::kOp;
        token_.text = each.name;
        at_ += each.name.size();
        return OkStatus();
      }
    }
    token_.kind = TokenKind::kWord;
    const std::string_view ends = value ? "()\"'," : "()\"',=!<>:~";
    while (at_ < text_.size() && !IsSpace(text_[at_]) &&
           ends.find(text_[at_]) == ends.npos) {
      token_.text += text_[at_++];
    }
    if (!token_.text.empty()) return OkStatus();
    return Bad(fmt::format("\"{}\" is not understood", c));
  }

  Status TakeQuoted(char quote) {
    const size_t end = text_.find(quote, at_ + 1);
    if (end == text_.npos) {
      return Bad(fmt::format("a text that begins with {} has no end", quote));
    }
    token_.kind = TokenKind::kQuoted;
    token_.text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return OkStatus();
  }

  // ---- Sentences ----

  bool AtWord(std::string_view word) const {
    return token_.kind == TokenKind::kWord && token_.text == word;
  }
  bool AtEnd() const {
    return token_.kind == TokenKind::kEnd || token_.kind == TokenKind::kClose;
  }

  // Up to the end, or a closing bracket.
  StatusOr<FilterNode> ParseAll(int depth) {
    if (depth > kMaxDepth) return Bad("brackets are nested too deep");
    LOCKSTEP_ASSIGN_OR_RETURN(FilterNode first, ParseOne(depth));
    if (AtEnd()) return first;
    FilterNode all;
    all.kind = AtWord("OR") ? FilterNode::Kind::kOr : FilterNode::Kind::kAnd;
    all.children.push_back(std::move(first));
    while (!AtEnd()) {
      const bool is_or = AtWord("OR");
      if (is_or != (all.kind == FilterNode::Kind::kOr)) {
        return Bad(
            "AND and OR side by side: put brackets around what belongs "
            "together");
      }
      if (is_or || AtWord("AND")) LOCKSTEP_RETURN_IF_ERROR(Advance());
      LOCKSTEP_ASSIGN_OR_RETURN(FilterNode next, ParseOne(depth));
      all.children.push_back(std::move(next));
    }
    return all;
  }

  StatusOr<FilterNode> ParseOne(int depth) {
    if (AtWord("NOT") || token_.kind == TokenKind::kMinus) {
      if (depth > kMaxDepth) return Bad("NOT is nested too deep");
      LOCKSTEP_RETURN_IF_ERROR(Advance());
      LOCKSTEP_ASSIGN_OR_RETURN(FilterNode inner, ParseOne(depth + 1));
      FilterNode node;
      node.kind = FilterNode::Kind::kNot;
      node.children.push_back(std::move(inner));
      return node;
    }
    if (token_.kind == TokenKind::kOpen) {
      const size_t opened = token_.at;
      LOCKSTEP_RETURN_IF_ERROR(Advance());
      LOCKSTEP_ASSIGN_OR_RETURN(FilterNode node, ParseAll(depth + 1));
      if (token_.kind != TokenKind::kClose) {
        return BadAt(opened, "this bracket is not closed");
      }
      LOCKSTEP_RETURN_IF_ERROR(Advance());
      return node;
    }
    return ParseComparison();
  }

  StatusOr<FilterNode> ParseComparison() {
    const Token name = token_;
    const bool is_field =
        name.kind == TokenKind::kWord && !AtWord("AND") && !AtWord("OR");
    if (is_field) LOCKSTEP_RETURN_IF_ERROR(Advance());
    if (!is_field || token_.kind != TokenKind::kOp) {
      return BadAt(name.at, fmt::format("\"{}\" is no term such as jobId:rnn*, "
                                        "state=FAILED or labels.team=vision",
                                        name.kind == TokenKind::kEnd
                                            ? "the end"
                                            : name.text.substr(0, 40)));
    }
    JobFilterTerm term;
    LOCKSTEP_RETURN_IF_ERROR(FindField(name, &term));
    for (const OpName& each : kOps) {
      if (each.name != token_.text) continue;
      term.op = each.op;
      term.negated = each.negated;
    }
    const Token op = token_;
    LOCKSTEP_RETURN_IF_ERROR(Advance(/*value=*/true));
    if (token_.kind == TokenKind::kOpen) {
      return ParseValues(std::move(term), name.text, op);
    }
    return ParseValue(std::move(term), name.text, op);
  }

  // state:(FAILED OR CANCELLED), state=(FAILED,CANCELLED): any of them.
  StatusOr<FilterNode> ParseValues(JobFilterTerm term, const std::string& name,
                                   const Token& op) {
    const size_t opened = token_.at;
    FilterNode node;
    node.kind = FilterNode::Kind::kOr;
    const bool negated = std::exchange(term.negated, false);
    do {
      LOCKSTEP_RETURN_IF_ERROR(Advance(/*value=*/true));
      LOCKSTEP_ASSIGN_OR_RETURN(FilterNode next, ParseValue(term, name, op));
      node.children.push_back(std::move(next));
      if (AtWord("AND")) {
        return Bad("values in brackets are joined by OR, or by commas");
      }
    } while (AtWord("OR") || token_.kind == TokenKind::kComma);
    if (token_.kind != TokenKind::kClose) {
      return BadAt(opened, "this bracket is not closed");
    }
    LOCKSTEP_RETURN_IF_ERROR(Advance());
    if (!negated) return node;
    FilterNode out;
    out.kind = FilterNode::Kind::kNot;
    out.children.push_back(std::move(node));
    return out;
  }

  // At the value; goes on behind it.
  StatusOr<FilterNode> ParseValue(JobFilterTerm term, const std::string& name,
                                  const Token& op) {
    const bool quoted = token_.kind == TokenKind::kQuoted;
    if (token_.kind != TokenKind::kWord && !quoted) {
      return BadAt(op.at, fmt::format("{}{} has no value", name, op.text));
    }
    if (++terms_ > kMaxTerms) {
      return Bad(fmt::format("there are more than {} terms", kMaxTerms));
    }
    term.value = token_.text;
    if (!quoted && term.value == "*" &&
        (term.op == Op::kHas || term.op == Op::kEqual)) {
      term.any = true;
    } else {
      LOCKSTEP_RETURN_IF_ERROR(
          Placed(op.at, CheckFilterOperator(name, op.text, term)));
      LOCKSTEP_RETURN_IF_ERROR(Placed(token_.at, ReadFilterValue(name, &term)));
    }
    FilterNode node;
    node.term = std::move(term);
    LOCKSTEP_RETURN_IF_ERROR(Advance());
    return node;
  }

  static Status FindField(const Token& name, JobFilterTerm* term) {
    for (const std::string_view begin : {"labels.", "label."}) {
      if (name.text.starts_with(begin) && name.text.size() > begin.size()) {
        term->field = Field::kLabel;
        term->label = name.text.substr(begin.size());
        return OkStatus();
      }
    }
    std::vector<std::string> names = {"labels"};
    for (const FieldName& each : kFields) {
      if (each.name == name.text) {
        term->field = each.field;
        return OkStatus();
      }
      names.emplace_back(each.name);
    }
    const std::string nearest = Nearest(name.text, names);
    return BadAt(
        name.at,
        fmt::format("there is no field {}; {}there are {}",
                    name.text.substr(0, 40),
                    nearest.empty() ? "" : "did you mean " + nearest + "? ",
                    kFieldsText));
  }

  const std::string_view text_;
  size_t at_ = 0;
  size_t terms_ = 0;
  Token token_;
};

}  // namespace

StatusOr<std::optional<JobFilterNode>> ParseJobFilter(std::string_view text) {
  return Parser(text).Parse();
}

}  // namespace lockstep
