// Filters that people write: one grammar for the lists of jobs
// (server/query/job_filter.h) and for the lines of logs
// (client/cli/log_query.h). Pure.
//
//   field OPERATOR value       a comparison
//   field=(a OR b)             the field compared with each value
//   AND OR NOT - ( )           comparisons side by side are joined by AND
//
// A language is a FilterLanguage: its fields, what they take, its marks and its
// sentences. ParseFilter() makes the tree and Evaluate() walks it.
#ifndef LOCKSTEP_COMMON_FILTER_FILTER_H_
#define LOCKSTEP_COMMON_FILTER_FILTER_H_

#include <re2/re2.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

enum class FilterOp {
  kEqual,
  kHas,
  kMatches,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual
};

// One comparison.
struct FilterTerm {
  // A number of the language's own.
  int field = 0;
  // The part of the field that the user names: the key of a label.
  std::string key;
  FilterOp op = FilterOp::kEqual;
  // The term holds where the comparison does not.
  bool negated = false;
  // The value is there, whatever it is.
  bool any = false;
  // The value is a beginning.
  bool prefix = false;
  std::string text;
  // A time (Unix nanoseconds, or before now where it is `ago`) or a number.
  int64_t number = 0;
  bool ago = false;
  // With kMatches.
  std::shared_ptr<const re2::RE2> pattern;
};

struct FilterNode {
  enum class Kind { kTerm, kAnd, kOr, kNot };
  Kind kind = Kind::kTerm;
  FilterTerm term;
  // kNot has one.
  std::vector<FilterNode> children;
};

struct FilterField {
  std::string_view name;
  int field = 0;
};

struct FilterOpName {
  std::string_view name;
  FilterOp op = FilterOp::kEqual;
  bool negated = false;
};

// The differences between languages, besides their fields.
struct FilterSyntax {
  std::span<const FilterField> fields;
  // Longer names come first: "<=" before "<".
  std::span<const FilterOpName> ops;

  // ---- Limits ----
  size_t max_bytes = 0;
  size_t max_terms = SIZE_MAX;
  int max_depth = 0;
  // How much of a word an error shows.
  size_t max_shown = std::string::npos;

  // ---- Words ----
  std::string_view blanks;
  // Characters that are words by themselves: at a value, and elsewhere.
  std::string_view value_marks;
  std::string_view marks;
  // Characters, besides blanks, that end a value and other words.
  std::string_view value_ends;
  std::string_view word_ends;
  // An operator is one where a value is wanted, too.
  bool ops_before_value = false;
  // In quotes a backslash stands before a quote or a backslash. A part of a
  // field may be in quotes: labels."a/b".
  bool escapes = false;

  // ---- Sentences ----
  // OR binds closer than AND; else brackets are needed where both stand.
  bool or_binds_closer = false;
  // Each NOT counts as a bracket does for max_depth.
  bool not_nests = false;
  // Values in brackets may be joined by AND.
  bool values_take_and = false;
  // field!=(a OR b) is NOT field=(a OR b); else it is field!=a OR field!=b.
  bool not_of_all_values = false;
  // A text in quotes may begin a term.
  bool quoted_begins = false;

  // ---- Errors ----
  // An error about something that is missing is placed where that belongs (an
  // open bracket, an operator without a value); else at what stands there.
  bool point_back = false;
  // {0}: the size, {1}: the limit.
  std::string_view too_long;
  // {0}: the quote.
  std::string_view open_quote;
  std::string_view open_bracket;
  // {0}: what follows.
  std::string_view rest;
  // {0}: the field, {1}: the operator.
  std::string_view no_value;
};

// Errors are InvalidArgument without a place: the parser puts "column N: "
// before them.
class FilterLanguage {
 public:
  virtual ~FilterLanguage() = default;

  virtual const FilterSyntax& syntax() const = 0;
  // `name` is not in the table of fields, whose names are `names`.
  virtual Status FindField(const std::string& name,
                           std::vector<std::string> names,
                           FilterTerm* term) const = 0;
  // The field, which was written `name`, takes the operator, written `op`.
  virtual Status CheckOp(const std::string& name, const std::string& op,
                         const FilterTerm& term) const = 0;
  // Completes the term from its text. `quoted`: the text was in quotes.
  virtual Status ReadValue(const std::string& name, bool quoted,
                           FilterTerm* term) const = 0;
  // A word without an operator; "the end" at the end of the text. `begins`: it
  // may begin a term.
  virtual StatusOr<FilterTerm> ReadBare(const std::string& word,
                                        bool begins) const = 0;
};

// nullopt: the text is blank. InvalidArgument: "column 9: ...", from 1.
StatusOr<std::optional<FilterNode>> ParseFilter(const FilterLanguage& language,
                                                std::string_view text);

// Whether the filter holds. `holds` compares a term as if it were not negated;
// nullopt: that is not known. The result is not known where it depends on such
// a term.
std::optional<bool> Evaluate(
    const FilterNode& node,
    const std::function<std::optional<bool>(const FilterTerm&)>& holds);

// `left` OP `right`; kHas and kMatches compare as kEqual.
bool Compares(FilterOp op, int64_t left, int64_t right);
// The term's pattern matches somewhere in `text`, which may be any bytes.
bool MatchesPattern(const FilterTerm& term, std::string_view text);

// Readers of values, for ReadValue(). Errors show `max_shown` bytes of it.
Status ReadWholeNumber(size_t max_shown, FilterTerm* term);
Status ReadPattern(int64_t max_memory, size_t max_shown, FilterTerm* term);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_FILTER_FILTER_H_
