#include "server/service/job_filter_value.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "common/base/log_line.h"
#include "common/model/names.h"

namespace lockstep {
namespace {

using Field = JobFilterTerm::Field;
using Op = JobFilterTerm::Op;

constexpr int64_t kMaxPatternMemory = 1 << 20;
// Longer ago than anybody has jobs of.
constexpr int64_t kMaxAgoSeconds = int64_t{100} * 366 * 86400;

std::string Upper(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return text;
}

std::string Lower(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

std::string Shown(const JobFilterTerm& term) {
  return term.value.substr(0, 40);
}

bool IsNumber(Field field) { return field >= Field::kPriority; }

std::vector<std::string> KnownStates() {
  std::vector<std::string> names;
  for (const TrainingState state : kAllTrainingStates) {
    names.emplace_back(Name(state));
  }
  for (const JobState state : kAllJobStates) {
    const std::string name(Name(state));
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return names;
}

bool ReadNumber(std::string_view* text, int64_t* out) {
  const auto [end, error] =
      std::from_chars(text->data(), text->data() + text->size(), *out);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

// "-P1W2DT3H4M5S" of ISO 8601, as gcloud takes it: so long ago.
bool ReadAgo(std::string_view text, int64_t* nanos) {
  if (!text.starts_with("-P") && !text.starts_with("-p")) return false;
  text.remove_prefix(2);
  int64_t seconds = 0;
  bool of_day = false;
  bool any = false;
  while (!text.empty()) {
    if (!of_day && (text[0] == 'T' || text[0] == 't')) {
      of_day = true;
      text.remove_prefix(1);
      continue;
    }
    int64_t count = 0;
    if (!ReadNumber(&text, &count) || text.empty() || count < 0 ||
        count > kMaxAgoSeconds) {
      return false;
    }
    const char unit = static_cast<char>(std::toupper(text[0]));
    text.remove_prefix(1);
    int64_t each = 0;
    if (of_day) {
      each = unit == 'H' ? 3600 : unit == 'M' ? 60 : unit == 'S' ? 1 : 0;
    } else {
      each = unit == 'W' ? 7 * 86400 : unit == 'D' ? 86400 : 0;
    }
    if (each == 0 || count > kMaxAgoSeconds / each) return false;
    seconds += count * each;
    any = true;
  }
  *nanos = seconds * 1'000'000'000;
  return any && seconds <= kMaxAgoSeconds;
}

Status ReadTime(JobFilterTerm* term) {
  if (ReadAgo(term->value, &term->number)) {
    term->ago = true;
    return OkStatus();
  }
  std::string text = Upper(term->value);
  if (text.size() == 10) text += "T00:00:00Z";
  // Without a zone it is UTC, as everywhere here.
  const bool zone = text.find_first_of("Z+") != text.npos ||
                    (text.size() > 10 && text.find('-', 10) != text.npos);
  if (!zone) text += "Z";
  if (cri::ParseRfc3339Nano(text, &term->number)) return OkStatus();
  return InvalidArgument(
      "\"{}\" is no time such as 2026-01-31, 2026-01-31T12:00:00Z or -P1D (a "
      "day ago)",
      Shown(*term));
}

Status ReadPattern(JobFilterTerm* term) {
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMaxPatternMemory);
  term->pattern = std::make_shared<const re2::RE2>(term->value, options);
  if (term->pattern->ok()) return OkStatus();
  return InvalidArgument("\"{}\" is no regular expression as RE2 takes it: {}",
                         Shown(*term), term->pattern->error());
}

Status CheckState(const JobFilterTerm& term) {
  const std::vector<std::string> known = KnownStates();
  if (term.prefix ||
      std::find(known.begin(), known.end(), term.value) != known.end()) {
    return OkStatus();
  }
  const std::string nearest = Nearest(term.value, known);
  return InvalidArgument(
      "there is no state {}; {}", Shown(term),
      nearest.empty() ? fmt::format("there are {}", fmt::join(known, ", "))
                      : "did you mean " + nearest + "?");
}

Status ReadText(const std::string& name, JobFilterTerm* term) {
  std::string& value = term->value;
  const size_t star = value.find('*');
  if (term->op == Op::kHas && star != value.npos) {
    if (star + 1 != value.size()) {
      return InvalidArgument(
          "{}: a \"*\" stands at the end: rnn* is everything that begins with "
          "rnn",
          Shown(*term));
    }
    value.pop_back();
    term->prefix = true;
  } else if (value.empty() && !term->negated && term->field != Field::kLabel) {
    return InvalidArgument("{} is never empty", name);
  }
  if (term->field == Field::kKind) value = Lower(value);
  if (term->field != Field::kState) return OkStatus();
  value = Upper(value);
  return CheckState(*term);
}

}  // namespace

Status CheckFilterOperator(const std::string& name, const std::string& op,
                           const JobFilterTerm& term) {
  const bool is_order =
      term.op != Op::kEqual && term.op != Op::kHas && term.op != Op::kMatches;
  if (IsNumber(term.field) ? term.op != Op::kMatches : !is_order) {
    return OkStatus();
  }
  return InvalidArgument(
      "{} takes {}, not {}", name,
      is_order ? "= != : ~ and !~" : "= != : < <= > and >=", op);
}

Status ReadFilterValue(const std::string& name, JobFilterTerm* term) {
  if (term->field == Field::kPriority) {
    std::string_view rest = term->value;
    if (ReadNumber(&rest, &term->number) && rest.empty()) return OkStatus();
    return InvalidArgument("\"{}\" is no whole number", Shown(*term));
  }
  if (IsNumber(term->field)) return ReadTime(term);
  if (term->op == Op::kMatches) return ReadPattern(term);
  return ReadText(name, term);
}

}  // namespace lockstep
