#include "server/query/job_filter_language.h"

#include "common/model/names.h"

namespace lockstep::server {
namespace {

using Op = FilterOp;

constexpr FilterField kFields[] = {
    {"jobId", job_field::kJobId},
    {"name", job_field::kJobId},
    {"state", job_field::kState},
    {"owner", job_field::kOwner},
    {"kind", job_field::kKind},
    {"pool", job_field::kPool},
    {"createTime", job_field::kCreateTime},
    {"startTime", job_field::kStartTime},
    {"endTime", job_field::kEndTime},
    {"priority", job_field::kPriority},
    {"trainingInput.region", job_field::kRegion},
    {"trainingInput.scheduling.priority", job_field::kPriority}};
constexpr char kFieldsText[] =
    "jobId, state, createTime, startTime, endTime, labels.KEY, owner, kind, "
    "pool, priority and trainingInput.region";

constexpr FilterOpName kOps[] = {
    {"!=", Op::kEqual, true}, {"!~", Op::kMatches, true},
    {"<=", Op::kLessEqual},   {">=", Op::kGreaterEqual},
    {"=", Op::kEqual},        {":", Op::kHas},
    {"<", Op::kLess},         {">", Op::kGreater},
    {"~", Op::kMatches}};

constexpr FilterSyntax kSyntax = {
    .fields = kFields,
    .ops = kOps,
    .max_bytes = 4096,
    .max_terms = 64,
    .max_depth = 20,
    .max_shown = 40,
    .blanks = " \t\n",
    .value_marks = "(),",
    .marks = "(),-",
    .value_ends = "()\"',",
    .word_ends = "()\"',=!<>:~",
    .not_nests = true,
    .not_of_all_values = true,
    .point_back = true,
    .too_long = "has {0} bytes; at most {1} are allowed",
    .open_quote = "the quote {0} is not closed",
    .open_bracket = "this bracket is not closed",
    .rest = "\"{0}\" has no opening bracket",
    .no_value = "{0}{1} has no value"};

class Language final : public FilterLanguage {
 public:
  const FilterSyntax& syntax() const override { return kSyntax; }

  Status FindField(const std::string& name, std::vector<std::string> names,
                   FilterTerm* term) const override {
    for (const std::string_view begin : {"labels.", "label."}) {
      if (name.starts_with(begin) && name.size() > begin.size()) {
        term->field = job_field::kLabel;
        term->key = name.substr(begin.size());
        return OkStatus();
      }
    }
    names.insert(names.begin(), "labels");
    const std::string nearest = Nearest(name, names);
    return InvalidArgument(
        "there is no field {}; {}there are {}",
        name.substr(0, kSyntax.max_shown),
        nearest.empty() ? "" : "did you mean " + nearest + "? ", kFieldsText);
  }

  Status CheckOp(const std::string& name, const std::string& op,
                 const FilterTerm& term) const override {
    const bool is_order =
        term.op != Op::kEqual && term.op != Op::kHas && term.op != Op::kMatches;
    if (job_field::IsNumber(term.field) ? term.op != Op::kMatches : !is_order) {
      return OkStatus();
    }
    return InvalidArgument(
        "{} takes {}, not {}", name,
        is_order ? "= != : ~ and !~" : "= != : < <= > and >=", op);
  }

  Status ReadValue(const std::string& name, bool quoted,
                   FilterTerm* term) const override {
    if (!quoted && term->text == "*" &&
        (term->op == Op::kHas || term->op == Op::kEqual)) {
      term->any = true;
      return OkStatus();
    }
    return ReadJobFilterValue(name, term);
  }

  StatusOr<FilterTerm> ReadBare(const std::string& word,
                                bool /*begins*/) const override {
    return InvalidArgument(
        "\"{}\" is not a term such as jobId:rnn*, state=FAILED or "
        "labels.team=vision",
        word.substr(0, kSyntax.max_shown));
  }
};

}  // namespace

const FilterLanguage& JobFilterLanguage() {
  static const Language language;
  return language;
}

}  // namespace lockstep::server
