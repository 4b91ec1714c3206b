// The values of job_filter_language.h.

#include <algorithm>
#include <cctype>
#include <charconv>

#include "common/base/ascii.h"
#include "common/base/log_line.h"
#include "common/model/names.h"
#include "common/training/states.h"
#include "server/core/job.h"
#include "server/query/job_filter_language.h"

namespace lockstep::server {
namespace {

constexpr size_t kMaxShown = 40;
constexpr int64_t kMaxMatchMemory = 1 << 20;
// Older than any job.
constexpr int64_t kMaxAgoSeconds = int64_t{100} * 366 * 86400;

std::string Shown(const FilterTerm& term) {
  return term.text.substr(0, kMaxShown);
}

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

// Parses ISO 8601 like gcloud: "-P1W2DT3H4M5S" is a time before now.
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

Status ReadTime(FilterTerm* term) {
  if (ReadAgo(term->text, &term->number)) {
    term->ago = true;
    return OkStatus();
  }
  std::string text = AsciiUpper(term->text);
  if (text.size() == 10) text += "T00:00:00Z";
  // Without a zone the time is UTC.
  const bool zone = text.find_first_of("Z+") != text.npos ||
                    (text.size() > 10 && text.find('-', 10) != text.npos);
  if (!zone) text += "Z";
  if (cri::ParseRfc3339Nano(text, &term->number)) return OkStatus();
  return InvalidArgument(
      "\"{}\" is not a time such as 2026-01-31, 2026-01-31T12:00:00Z or -P1D "
      "(a "
      "day ago)",
      Shown(*term));
}

Status CheckState(const FilterTerm& term) {
  const std::vector<std::string> known = KnownStates();
  if (term.prefix ||
      std::find(known.begin(), known.end(), term.text) != known.end()) {
    return OkStatus();
  }
  const std::string nearest = Nearest(term.text, known);
  return InvalidArgument(
      "there is no state {}; {}", Shown(term),
      nearest.empty() ? fmt::format("there are {}", fmt::join(known, ", "))
                      : "did you mean " + nearest + "?");
}

Status ReadText(const std::string& name, FilterTerm* term) {
  std::string& value = term->text;
  const size_t star = value.find('*');
  if (term->op == FilterOp::kHas && star != value.npos) {
    if (star + 1 != value.size()) {
      return InvalidArgument(
          "{}: a \"*\" must be at the end: rnn* matches everything that begins "
          "with "
          "rnn",
          Shown(*term));
    }
    value.pop_back();
    term->prefix = true;
  } else if (value.empty() && !term->negated &&
             term->field != job_field::kLabel) {
    return InvalidArgument("{} is never empty", name);
  }
  if (term->field == job_field::kKind) value = AsciiLower(value);
  if (term->field != job_field::kState) return OkStatus();
  value = AsciiUpper(value);
  return CheckState(*term);
}

}  // namespace

Status ReadJobFilterValue(const std::string& name, FilterTerm* term) {
  if (term->field == job_field::kPriority) {
    return ReadWholeNumber(kMaxShown, term);
  }
  if (job_field::IsNumber(term->field)) return ReadTime(term);
  if (term->op == FilterOp::kMatches) {
    return ReadPattern(kMaxMatchMemory, kMaxShown, term);
  }
  return ReadText(name, term);
}

}  // namespace lockstep::server
