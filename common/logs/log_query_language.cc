#include "common/logs/log_query_language.h"

#include "common/base/log_line.h"
#include "common/logs/log_query.h"
#include "common/model/names.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxPatternMemory = 4 << 20;

constexpr FilterField kFields[] = {
    {"resource.type", log_field::kResource},
    {"resource.labels.task_name", log_field::kTask},
    {"resource.labels.job_id", log_field::kJob},
    {"labels.ml.googleapis.com/task_name", log_field::kTask},
    {"labels.ml.googleapis.com/job_id", log_field::kJob},
    {"textPayload", log_field::kText},
    {"jsonPayload.message", log_field::kText},
    {"severity", log_field::kSeverity},
    {"timestamp", log_field::kTime},
    {"labels.rank", log_field::kRank},
    {"labels.attempt", log_field::kAttempt},
    {"labels.stream", log_field::kStream}};
// The suggested names.
constexpr std::string_view kFieldsText =
    "resource.labels.task_name, resource.labels.job_id, textPayload, severity, "
    "timestamp, labels.rank, labels.attempt and labels.stream";

constexpr FilterOpName kOps[] = {{"!=", FilterOp::kEqual, true},
                                 {"=~", FilterOp::kMatches},
                                 {"!~", FilterOp::kMatches, true},
                                 {"<=", FilterOp::kLessEqual},
                                 {">=", FilterOp::kGreaterEqual},
                                 {"=", FilterOp::kEqual},
                                 {":", FilterOp::kHas},
                                 {"<", FilterOp::kLess},
                                 {">", FilterOp::kGreater}};

constexpr FilterSyntax kSyntax = {
    .fields = kFields,
    .ops = kOps,
    .max_bytes = 20'000,
    .max_depth = 40,
    .blanks = " \t\n\r",
    .value_marks = "()-",
    .marks = "()-",
    // A value may contain colons, as times do.
    .value_ends = "()\"'=!<>~",
    .word_ends = "()\"'=!<>:~",
    .ops_before_value = true,
    .escapes = true,
    .or_binds_closer = true,
    .values_take_and = true,
    .quoted_begins = true,
    .too_long = "a filter has at most {1} bytes, not {0}",
    .open_quote = "the quote is not closed",
    .open_bracket = "\")\" is missing",
    .rest = "nothing may follow here",
    .no_value = "a value is missing"};

class Language final : public FilterLanguage {
 public:
  const FilterSyntax& syntax() const override { return kSyntax; }

  Status FindField(const std::string& name, std::vector<std::string> names,
                   FilterTerm* /*term*/) const override {
    const std::string near = Nearest(name, names);
    if (near.empty()) {
      return InvalidArgument("there is no field {}; there are {}", name,
                             kFieldsText);
    }
    return InvalidArgument("there is no field {}; did you mean {}?", name,
                           near);
  }

  Status CheckOp(const std::string& name, const std::string& op,
                 const FilterTerm& term) const override {
    if (term.op == FilterOp::kEqual) return OkStatus();
    const bool is_text = log_field::IsText(term.field);
    const bool of_text =
        term.op == FilterOp::kHas || term.op == FilterOp::kMatches;
    const bool is_stream = term.field == log_field::kStream;
    if (is_text == of_text && !is_stream) return OkStatus();
    return InvalidArgument("{} takes {}, not {}", name,
                           is_stream ? "= and !="
                           : is_text ? "=, !=, :, =~ and !~"
                                     : "=, !=, <, <=, > and >=",
                           op);
  }

  Status ReadValue(const std::string& /*name*/, bool /*quoted*/,
                   FilterTerm* term) const override {
    if (term->op == FilterOp::kMatches) {
      return ReadPattern(kMaxPatternMemory, kSyntax.max_shown, term);
    }
    switch (term->field) {
      case log_field::kSeverity: {
        LOCKSTEP_ASSIGN_OR_RETURN(term->number, ParseLogSeverity(term->text));
        return OkStatus();
      }
      case log_field::kTime:
        return ReadTime(term);
      case log_field::kRank:
      case log_field::kAttempt:
        return ReadWholeNumber(kSyntax.max_shown, term);
      case log_field::kTask:
        // The chief's task has two names.
        if (term->text == "chief-replica-0") term->text = "master-replica-0";
        return OkStatus();
      default:
        return OkStatus();
    }
  }

  // A bare text means textPayload:text.
  StatusOr<FilterTerm> ReadBare(const std::string& word,
                                bool begins) const override {
    if (begins) {
      FilterTerm term;
      term.field = log_field::kText;
      term.op = FilterOp::kHas;
      term.text = word;
      return term;
    }
    if (word == "AND" || word == "OR") {
      return InvalidArgument("{} must be between two comparisons", word);
    }
    return InvalidArgument("a field or a text is missing");
  }

 private:
  static Status ReadTime(FilterTerm* term) {
    const std::string& text = term->text;
    const std::string full = text.size() == 10 ? text + "T00:00:00Z" : text;
    if (cri::ParseRfc3339Nano(full, &term->number)) return OkStatus();
    return InvalidArgument(
        "\"{}\" is not a time such as 2026-01-31 or 2026-01-31T12:00:00Z",
        text);
  }
};

}  // namespace

const FilterLanguage& LogQueryLanguage() {
  static const Language language;
  return language;
}

}  // namespace lockstep
