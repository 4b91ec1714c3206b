// The lexer and the parser of filter.h.
#include <algorithm>
#include <utility>

#include "common/filter/filter.h"

namespace lockstep {
namespace {

enum class TokenKind { kEnd, kWord, kQuoted, kOp, kMark };
struct FilterToken {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  // The offset of its first byte.
  size_t at = 0;
};

bool Contains(std::string_view set, char c) {
  return set.find(c) != std::string_view::npos;
}

Status PlacedAt(size_t at, std::string_view what) {
  return InvalidArgument("column {}: {}", at + 1, what);
}
Status PlacedAt(size_t at, const Status& status) {
  return status.ok() ? status : PlacedAt(at, Message(status));
}

class FilterLexer {
 public:
  FilterLexer(const FilterSyntax& syntax, std::string_view text)
      : syntax_(syntax), text_(text) {}

  const FilterToken& token() const { return token_; }

  // Goes to the next token. `value`: a value is expected.
  Status Advance(bool value = false) {
    while (at_ < text_.size() && Contains(syntax_.blanks, text_[at_])) ++at_;
    token_ = {TokenKind::kEnd, "", at_};
    if (at_ == text_.size()) return OkStatus();
    const char c = text_[at_];
    if (Contains(value ? syntax_.value_marks : syntax_.marks, c)) {
      token_.kind = TokenKind::kMark;
      token_.text = std::string(1, c);
      ++at_;
      return OkStatus();
    }
    if (c == '"' || c == '\'') return TakeQuoted();
    if ((!value || syntax_.ops_before_value) && TakeOp()) return OkStatus();
    TakeWord(value ? syntax_.value_ends : syntax_.word_ends);
    if (!token_.text.empty()) return OkStatus();
    return PlacedAt(token_.at, fmt::format("\"{}\" is not understood", c));
  }

 private:
  bool TakeOp() {
    for (const FilterOpName& each : syntax_.ops) {
      if (!text_.substr(at_).starts_with(each.name)) continue;
      token_.kind = TokenKind::kOp;
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
      // A backslash before other characters is literal, because patterns have
      // many.
      const bool escape = syntax_.escapes && c == '\\' &&
                          at_ + 1 < text_.size() &&
                          (text_[at_ + 1] == quote || text_[at_ + 1] == '\\');
      if (escape) ++at_;
      token_.text += text_[at_];
    }
    return PlacedAt(token_.at,
                    fmt::format(fmt::runtime(syntax_.open_quote), quote));
  }

  void TakeWord(std::string_view ends) {
    token_.kind = TokenKind::kWord;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (syntax_.escapes && c == '"' && token_.text.ends_with(".")) {
        const size_t end = text_.find('"', at_ + 1);
        if (end == std::string_view::npos) return;
        token_.text += text_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
        continue;
      }
      if (Contains(syntax_.blanks, c) || Contains(ends, c)) return;
      token_.text += c;
      ++at_;
    }
  }

  const FilterSyntax& syntax_;
  const std::string_view text_;
  size_t at_ = 0;
  FilterToken token_;
};

class FilterParser {
 public:
  FilterParser(const FilterLanguage& language, std::string_view text)
      : language_(language),
        syntax_(language.syntax()),
        text_(text),
        lexer_(syntax_, text) {}

  StatusOr<std::optional<FilterNode>> Parse() {
    if (text_.size() > syntax_.max_bytes) {
      return InvalidArgument(
          "{}", fmt::format(fmt::runtime(syntax_.too_long), text_.size(),
                            syntax_.max_bytes));
    }
    LOCKSTEP_RETURN_IF_ERROR(Advance());
    if (token().kind == TokenKind::kEnd) return std::optional<FilterNode>();
    LOCKSTEP_ASSIGN_OR_RETURN(FilterNode node, ParseAll(0));
    if (token().kind != TokenKind::kEnd) {
      return Bad(fmt::format(fmt::runtime(syntax_.rest),
                             token().text.substr(0, syntax_.max_shown)));
    }
    return std::optional<FilterNode>(std::move(node));
  }

 private:
  const FilterToken& token() const { return lexer_.token(); }
  Status Advance(bool value = false) { return lexer_.Advance(value); }
  bool AtMark(char mark) const {
    return token().kind == TokenKind::kMark && token().text[0] == mark;
  }
  bool AtWord(std::string_view word) const {
    return token().kind == TokenKind::kWord && token().text == word;
  }
  bool AtEnd() const { return token().kind == TokenKind::kEnd || AtMark(')'); }

  Status Bad(std::string_view what) const { return PlacedAt(token().at, what); }
  // Reports that something is missing here. It belongs to the token at `at`.
  Status Missing(size_t at, std::string_view what) const {
    return PlacedAt(syntax_.point_back ? at : token().at, what);
  }

  // node = node KIND next, flat.
  static void Join(FilterNode::Kind kind, FilterNode next, FilterNode* node) {
    if (node->kind != kind) {
      FilterNode joined;
      joined.kind = kind;
      joined.children.push_back(std::move(*node));
      *node = std::move(joined);
    }
    node->children.push_back(std::move(next));
  }
  static FilterNode Not(FilterNode inner) {
    FilterNode node;
    node.kind = FilterNode::Kind::kNot;
    node.children.push_back(std::move(inner));
    return node;
  }

  // Parses up to the end or a closing bracket.
  StatusOr<FilterNode> ParseAll(int depth) {
    if (depth > syntax_.max_depth) return Bad("brackets are nested too deep");
    LOCKSTEP_ASSIGN_OR_RETURN(FilterNode node, ParseSide(depth));
    std::optional<bool> joined_by_or;
    while (!AtEnd()) {
      const bool is_or = AtWord("OR");
      if (joined_by_or.value_or(is_or) != is_or) {
        return Bad(
            "AND and OR are mixed: put brackets around what belongs "
            "together");
      }
      joined_by_or = is_or;
      if (is_or || AtWord("AND")) LOCKSTEP_RETURN_IF_ERROR(Advance());
      LOCKSTEP_ASSIGN_OR_RETURN(FilterNode next, ParseSide(depth));
      Join(is_or ? FilterNode::Kind::kOr : FilterNode::Kind::kAnd,
           std::move(next), &node);
    }
    return node;
  }

  // Parses an operand of AND, and of OR if it does not bind closer.
  StatusOr<FilterNode> ParseSide(int depth) {
    LOCKSTEP_ASSIGN_OR_RETURN(FilterNode node, ParseNot(depth));
    while (syntax_.or_binds_closer && AtWord("OR")) {
      LOCKSTEP_RETURN_IF_ERROR(Advance());
      LOCKSTEP_ASSIGN_OR_RETURN(FilterNode next, ParseNot(depth));
      Join(FilterNode::Kind::kOr, std::move(next), &node);
    }
    return node;
  }

  StatusOr<FilterNode> ParseNot(int depth) {
    bool negated = false;
    while (AtWord("NOT") || AtMark('-')) {
      if (syntax_.not_nests && depth++ > syntax_.max_depth) {
        return Bad("NOT is nested too deep");
      }
      negated = !negated;
      LOCKSTEP_RETURN_IF_ERROR(Advance());
    }
    LOCKSTEP_ASSIGN_OR_RETURN(FilterNode node, ParseOne(depth));
    return negated ? Not(std::move(node)) : std::move(node);
  }

  StatusOr<FilterNode> ParseOne(int depth) {
    if (!AtMark('(')) return ParseComparison();
    const size_t opened = token().at;
    LOCKSTEP_RETURN_IF_ERROR(Advance());
    LOCKSTEP_ASSIGN_OR_RETURN(FilterNode node, ParseAll(depth + 1));
    LOCKSTEP_RETURN_IF_ERROR(Close(opened));
    return node;
  }

  Status Close(size_t opened) {
    if (!AtMark(')')) return Missing(opened, syntax_.open_bracket);
    return Advance();
  }

  StatusOr<FilterNode> ParseComparison() {
    const FilterToken name = token();
    const bool begins =
        (name.kind == TokenKind::kWord && !AtWord("AND") && !AtWord("OR")) ||
        (name.kind == TokenKind::kQuoted && syntax_.quoted_begins);
    if (begins) LOCKSTEP_RETURN_IF_ERROR(Advance());
    if (!begins || token().kind != TokenKind::kOp) {
      auto term = language_.ReadBare(
          name.kind == TokenKind::kEnd ? "the end" : name.text, begins);
      if (!term.ok()) return PlacedAt(name.at, term.status());
      FilterNode node;
      node.term = *std::move(term);
      return node;
    }
    FilterTerm term;
    LOCKSTEP_RETURN_IF_ERROR(PlacedAt(name.at, FindField(name.text, &term)));
    const FilterToken op = token();
    const auto known =
        std::find_if(syntax_.ops.begin(), syntax_.ops.end(),
                     [&](const auto& each) { return each.name == op.text; });
    term.op = known->op;
    term.negated = known->negated;
    LOCKSTEP_RETURN_IF_ERROR(
        PlacedAt(op.at, language_.CheckOp(name.text, op.text, term)));
    LOCKSTEP_RETURN_IF_ERROR(Advance(/*value=*/true));
    return AtMark('(') ? ParseValues(std::move(term), name.text, op)
                       : ParseValue(std::move(term), name.text, op);
  }

  Status FindField(const std::string& name, FilterTerm* term) const {
    std::vector<std::string> names;
    for (const FilterField& each : syntax_.fields) {
      if (each.name == name) {
        term->field = each.field;
        return OkStatus();
      }
      names.emplace_back(each.name);
    }
    return language_.FindField(name, std::move(names), term);
  }

  // field=(a OR b): compares the field with each value.
  StatusOr<FilterNode> ParseValues(FilterTerm term, const std::string& name,
                                   const FilterToken& op) {
    const size_t opened = token().at;
    const bool negated =
        syntax_.not_of_all_values && std::exchange(term.negated, false);
    std::optional<FilterNode> node;
    std::optional<bool> joined_by_and;
    for (;;) {
      LOCKSTEP_RETURN_IF_ERROR(Advance(/*value=*/true));
      LOCKSTEP_ASSIGN_OR_RETURN(FilterNode next, ParseValue(term, name, op));
      if (node) {
        Join(*joined_by_and ? FilterNode::Kind::kAnd : FilterNode::Kind::kOr,
             std::move(next), &*node);
      } else {
        node = std::move(next);
      }
      const bool is_and = AtWord("AND");
      if (!is_and && !AtWord("OR") && !AtMark(',')) break;
      if (is_and && !syntax_.values_take_and) {
        return Bad("join values in brackets by OR or commas");
      }
      if (joined_by_and.value_or(is_and) != is_and) {
        return Bad("use either AND or OR inside brackets, not both");
      }
      joined_by_and = is_and;
    }
    LOCKSTEP_RETURN_IF_ERROR(Close(opened));
    return negated ? Not(*std::move(node)) : *std::move(node);
  }

  // Parses the value at this token and goes past it.
  StatusOr<FilterNode> ParseValue(FilterTerm term, const std::string& name,
                                  const FilterToken& op) {
    const bool minus = AtMark('-');
    if (minus) LOCKSTEP_RETURN_IF_ERROR(Advance());
    const bool quoted = token().kind == TokenKind::kQuoted;
    if (token().kind != TokenKind::kWord && !quoted) {
      return Missing(
          op.at, fmt::format(fmt::runtime(syntax_.no_value), name, op.text));
    }
    if (++terms_ > syntax_.max_terms) {
      return Bad(
          fmt::format("there are more than {} terms", syntax_.max_terms));
    }
    term.text = (minus ? "-" : "") + token().text;
    LOCKSTEP_RETURN_IF_ERROR(
        PlacedAt(token().at, language_.ReadValue(name, quoted, &term)));
    LOCKSTEP_RETURN_IF_ERROR(Advance());
    FilterNode node;
    node.term = std::move(term);
    return node;
  }

  const FilterLanguage& language_;
  const FilterSyntax& syntax_;
  const std::string_view text_;
  FilterLexer lexer_;
  size_t terms_ = 0;
};

}  // namespace

StatusOr<std::optional<FilterNode>> ParseFilter(const FilterLanguage& language,
                                                std::string_view text) {
  return FilterParser(language, text).Parse();
}

}  // namespace lockstep
