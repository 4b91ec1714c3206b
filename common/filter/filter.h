// Filters that people write. One grammar serves the lists of jobs
// (server/query/job_filter.h) and the lines of logs (common/logs/log_query.h).
// Pure.
//
//   field OPERATOR value       a comparison
//   field=(a OR b)             the field compared with each value
//   AND OR NOT - ( )           comparisons side by side are joined by AND
//
// A FilterLanguage defines the fields, their values, the marks and the error
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
  // A number that the language assigns.
  int field = 0;
  // The part of the field that the user names: the key of a label.
  std::string key;
  FilterOp op = FilterOp::kEqual;
  // The term holds if the comparison does not.
  bool negated = false;
  // Any value matches.
  bool any = false;
  // The value is a prefix.
  bool prefix = false;
  std::string text;
  // A time (Unix nanoseconds, or nanoseconds before now if `ago`) or a number.
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
  // The number of bytes of a word that an error shows.
  size_t max_shown = std::string::npos;

  // ---- Words ----
  std::string_view blanks;
  // Characters that are words by themselves, at a value and elsewhere.
  std::string_view value_marks;
  std::string_view marks;
  // Characters, besides blanks, that end a value and other words.
  std::string_view value_ends;
  std::string_view word_ends;
  // An operator is recognised where a value is expected, too.
  bool ops_before_value = false;
  // Inside quotes a backslash escapes a quote or a backslash. A part of a field
  // may be quoted: labels."a/b".
  bool escapes = false;

  // ---- Sentences ----
  // OR binds closer than AND. Otherwise mixing them requires brackets.
  bool or_binds_closer = false;
  // Each NOT counts as a bracket for max_depth.
  bool not_nests = false;
  // Values in brackets may be joined by AND.
  bool values_take_and = false;
  // field!=(a OR b) means NOT field=(a OR b). Otherwise it means field!=a OR
  // field!=b.
  bool not_of_all_values = false;
  // A quoted text may begin a term.
  bool quoted_begins = false;

  // ---- Errors ----

  // An error about something missing points to where it belongs (an open
  // bracket, an operator without a value). Otherwise it points to what follows.
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

// Errors are InvalidArgument without a position. The parser puts "column N: "
// before them.
class FilterLanguage {
 public:
  virtual ~FilterLanguage() = default;

  virtual const FilterSyntax& syntax() const = 0;
  // `name` is not one of `names`, the fields of the table.
  virtual Status FindField(const std::string& name,
                           std::vector<std::string> names,
                           FilterTerm* term) const = 0;
  // Checks that the field written as `name` takes the operator written as `op`.
  virtual Status CheckOp(const std::string& name, const std::string& op,
                         const FilterTerm& term) const = 0;
  // Completes the term from its text. `quoted`: the text was in quotes.
  virtual Status ReadValue(const std::string& name, bool quoted,
                           FilterTerm* term) const = 0;
  // Reads a word without an operator; "the end" stands for the end of the text.
  // `begins`: the word may begin a term.
  virtual StatusOr<FilterTerm> ReadBare(const std::string& word,
                                        bool begins) const = 0;
};

// Returns nullopt for a blank text. InvalidArgument: "column 9: ...", counted
// from 1.
StatusOr<std::optional<FilterNode>> ParseFilter(const FilterLanguage& language,
                                                std::string_view text);

// Evaluates the filter. `holds` compares a term as if it were not negated and
// returns nullopt if the result is not known. Evaluate returns nullopt if the
// result depends on such a term.
std::optional<bool> Evaluate(
    const FilterNode& node,
    const std::function<std::optional<bool>(const FilterTerm&)>& holds);

// `left` OP `right`; kHas and kMatches compare as kEqual.
bool Compares(FilterOp op, int64_t left, int64_t right);
// True if the term's pattern matches in `text`, which may hold any bytes.
bool MatchesPattern(const FilterTerm& term, std::string_view text);

// Value readers for ReadValue(). Errors show `max_shown` bytes of the value.
Status ReadWholeNumber(size_t max_shown, FilterTerm* term);
Status ReadPattern(int64_t max_memory, size_t max_shown, FilterTerm* term);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_FILTER_FILTER_H_
