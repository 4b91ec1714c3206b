#include "common/base/log_line.h"

#include <cstddef>

namespace lockstep::cri {
namespace {

constexpr int64_t kNanos = 1'000'000'000;
constexpr int64_t kDay = 86400;

// Days since 1970-01-01 of a day of the proleptic Gregorian calendar, and
// back: Howard Hinnant, "chrono-compatible low-level date algorithms".
int64_t DaysFromCivil(int64_t year, int month, int day) {
  year -= month <= 2;
  const int64_t era = (year >= 0 ? year : year - 399) / 400;
  const int64_t year_of_era = year - era * 400;
  const int64_t day_of_year =
      (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int64_t day_of_era =
      year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

void CivilFromDays(int64_t days, int64_t* year, int* month, int* day) {
  days += 719468;
  const int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  const int64_t day_of_era = days - era * 146097;
  const int64_t year_of_era = (day_of_era - day_of_era / 1460 +
                               day_of_era / 36524 - day_of_era / 146096) /
                              365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t shifted_month = (5 * day_of_year + 2) / 153;
  *day = static_cast<int>(day_of_year - (153 * shifted_month + 2) / 5 + 1);
  *month = static_cast<int>(shifted_month < 10 ? shifted_month + 3
                                               : shifted_month - 9);
  *year = year_of_era + era * 400 + (*month <= 2);
}

void AppendDigits(int64_t value, int width, std::string* out) {
  char digits[20];
  for (int i = width - 1; i >= 0; --i) {
    digits[i] = static_cast<char>('0' + value % 10);
    value /= 10;
  }
  out->append(digits, width);
}

// Takes exactly `width` digits from the front of `text`.
bool TakeDigits(std::string_view* text, int width, int* value) {
  if (text->size() < static_cast<size_t>(width)) return false;
  *value = 0;
  for (int i = 0; i < width; ++i) {
    const char c = (*text)[i];
    if (c < '0' || c > '9') return false;
    *value = *value * 10 + (c - '0');
  }
  text->remove_prefix(width);
  return true;
}

bool TakeChar(std::string_view* text, char c) {
  if (text->empty() || text->front() != c) return false;
  text->remove_prefix(1);
  return true;
}

bool TakeFraction(std::string_view* text, int64_t* nanos) {
  *nanos = 0;
  if (!TakeChar(text, '.')) return true;
  int64_t scale = kNanos;
  size_t n = 0;
  while (n < text->size() && (*text)[n] >= '0' && (*text)[n] <= '9') {
    if (++n > 9) return false;
    scale /= 10;
    *nanos = *nanos * 10 + ((*text)[n - 1] - '0');
  }
  if (n == 0) return false;
  *nanos *= scale;
  text->remove_prefix(n);
  return true;
}

// "Z", "+02:00" or "-02:00", to the end of `text`.
bool TakeZone(std::string_view text, int64_t* offset_seconds) {
  *offset_seconds = 0;
  if (text == "Z" || text == "z") return true;
  if (text.size() != 6 || (text[0] != '+' && text[0] != '-')) return false;
  const int sign = text[0] == '+' ? 1 : -1;
  text.remove_prefix(1);
  int hours = 0;
  int minutes = 0;
  if (!TakeDigits(&text, 2, &hours) || !TakeChar(&text, ':') ||
      !TakeDigits(&text, 2, &minutes) || hours > 23 || minutes > 59) {
    return false;
  }
  *offset_seconds = sign * (hours * 3600 + minutes * 60);
  return true;
}

}  // namespace

std::string FormatRfc3339Nano(int64_t unix_nanos) {
  int64_t seconds = unix_nanos / kNanos;
  int64_t nanos = unix_nanos % kNanos;
  if (nanos < 0) {
    nanos += kNanos;
    --seconds;
  }
  int64_t days = seconds / kDay;
  int64_t second_of_day = seconds % kDay;
  if (second_of_day < 0) {
    second_of_day += kDay;
    --days;
  }
  int64_t year = 0;
  int month = 0;
  int day = 0;
  CivilFromDays(days, &year, &month, &day);
  std::string out;
  out.reserve(30);
  AppendDigits(year, 4, &out);
  out.push_back('-');
  AppendDigits(month, 2, &out);
  out.push_back('-');
  AppendDigits(day, 2, &out);
  out.push_back('T');
  AppendDigits(second_of_day / 3600, 2, &out);
  out.push_back(':');
  AppendDigits(second_of_day / 60 % 60, 2, &out);
  out.push_back(':');
  AppendDigits(second_of_day % 60, 2, &out);
  out.push_back('.');
  AppendDigits(nanos, 9, &out);
  out.push_back('Z');
  return out;
}

bool ParseRfc3339Nano(std::string_view text, int64_t* unix_nanos) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  int64_t nanos = 0;
  int64_t zone = 0;
  if (!TakeDigits(&text, 4, &year) || !TakeChar(&text, '-') ||
      !TakeDigits(&text, 2, &month) || !TakeChar(&text, '-') ||
      !TakeDigits(&text, 2, &day) ||
      (!TakeChar(&text, 'T') && !TakeChar(&text, 't')) ||
      !TakeDigits(&text, 2, &hour) || !TakeChar(&text, ':') ||
      !TakeDigits(&text, 2, &minute) || !TakeChar(&text, ':') ||
      !TakeDigits(&text, 2, &second) || !TakeFraction(&text, &nanos) ||
      !TakeZone(text, &zone)) {
    return false;
  }
  // What int64 nanoseconds hold: 1677-09-22 .. 2262-04-11.
  if (year < 1678 || year > 2261 || month < 1 || month > 12 || day < 1 ||
      day > 31 || hour > 23 || minute > 59 || second > 60) {
    return false;
  }
  const int64_t days = DaysFromCivil(year, month, day);
  int64_t same_year = 0;
  int same_month = 0;
  int same_day = 0;
  CivilFromDays(days, &same_year, &same_month, &same_day);
  if (same_month != month || same_day != day) return false;  // 31 April.
  *unix_nanos =
      (days * kDay + hour * 3600 + minute * 60 + second - zone) * kNanos +
      nanos;
  return true;
}

void AppendLogLine(const LogLine& line, std::string* out) {
  out->append(FormatRfc3339Nano(line.unix_nanos));
  out->append(line.stream == LogStream::kStdout ? " stdout " : " stderr ");
  out->append(line.full ? "F " : "P ");
  out->append(line.text);
  out->push_back('\n');
}

bool ParseLogLine(std::string_view bytes, LogLine* line, std::string* error) {
  if (!bytes.empty() && bytes.back() == '\n') bytes.remove_suffix(1);
  const size_t space = bytes.find(' ');
  if (space == std::string_view::npos ||
      !ParseRfc3339Nano(bytes.substr(0, space), &line->unix_nanos)) {
    *error = "a log line does not begin with an RFC 3339 time";
    return false;
  }
  bytes.remove_prefix(space + 1);
  const std::string_view stream = bytes.substr(0, 7);
  if (stream != "stdout " && stream != "stderr ") {
    *error = "a log line names neither stdout nor stderr";
    return false;
  }
  line->stream = stream == "stdout " ? LogStream::kStdout : LogStream::kStderr;
  bytes.remove_prefix(7);
  const std::string_view tag = bytes.substr(0, 2);
  if (tag != "F " && tag != "P ") {
    *error = "the tag of a log line is neither F nor P";
    return false;
  }
  line->full = tag == "F ";
  line->text = bytes.substr(2);
  return true;
}

void AppendToLine(std::string_view text, std::string* line) {
  while (!text.empty()) {
    if (text.front() == '\r') {
      if (!line->empty() && line->back() != '\r') line->push_back('\r');
      text.remove_prefix(1);
      continue;
    }
    const std::string_view piece = text.substr(0, text.find('\r'));
    if (!line->empty() && line->back() == '\r') line->clear();
    line->append(piece);
    text.remove_prefix(piece.size());
  }
}

std::string_view ShownLine(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

std::string LogGapText(uint64_t bytes) {
  return "[lockstep: " + std::to_string(bytes) +
         " bytes of the log are missing here]";
}

}  // namespace lockstep::cri
