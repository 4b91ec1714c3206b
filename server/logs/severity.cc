#include "server/logs/severity.h"

#include <algorithm>
#include <string>

#include "common/base/ascii.h"

namespace lockstep::server {
namespace {

// A level is near the beginning of a line.
constexpr size_t kHead = 320;
// Words after a time among which Python's logging puts its level.
constexpr int kMostWords = 6;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
// True for characters of a dotted name: "torch.cuda.OutOfMemoryError".
bool IsNameChar(char c) {
  return IsLetter(c) || IsDigit(c) || c == '_' || c == '.';
}
// True if `text` begins with `pattern`, in which 9 stands for any digit.
bool Looks(std::string_view text, std::string_view pattern) {
  if (text.size() < pattern.size()) return false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '9' ? !IsDigit(text[i]) : text[i] != pattern[i]) {
      return false;
    }
  }
  return true;
}

// Returns the level that a word names in any case.
std::optional<Severity> LevelOf(std::string_view word) {
  struct Level {
    std::string_view name;
    Severity severity;
  };
  constexpr Level kLevels[] = {
      {"debug", Severity::kDebug},       {"trace", Severity::kDebug},
      {"info", Severity::kInfo},         {"notice", Severity::kInfo},
      {"warn", Severity::kWarning},      {"warning", Severity::kWarning},
      {"error", Severity::kError},       {"err", Severity::kError},
      {"critical", Severity::kCritical}, {"fatal", Severity::kCritical},
      {"alert", Severity::kCritical},    {"emergency", Severity::kCritical}};
  for (const Level& level : kLevels) {
    if (std::equal(word.begin(), word.end(), level.name.begin(),
                   level.name.end(),
                   [](char a, char b) { return AsciiLower(a) == b; })) {
      return level.severity;
    }
  }
  return std::nullopt;
}
bool IsUpper(std::string_view word) {
  return std::none_of(word.begin(), word.end(),
                      [](char c) { return c >= 'a' && c <= 'z'; });
}

std::optional<Severity> LetterLevel(char c) {
  if (c == 'D') return Severity::kDebug;
  if (c == 'I') return Severity::kInfo;
  if (c == 'W') return Severity::kWarning;
  if (c == 'E') return Severity::kError;
  if (c == 'F') return Severity::kCritical;
  return std::nullopt;
}

// Removes colours and "[rank0]: ".
std::string_view WithoutPrefix(std::string_view text) {
  while (text.size() > 2 && text[0] == '\x1b' && text[1] == '[') {
    const size_t end = text.find_first_not_of("0123456789;", 2);
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  if (!text.starts_with("[rank")) return text;
  const size_t close = text.find_first_not_of("0123456789", 5);
  if (close == std::string_view::npos || close == 5 || text[close] != ']') {
    return text;
  }
  text.remove_prefix(close + 1);
  if (text.starts_with(":")) text.remove_prefix(1);
  if (text.starts_with(" ")) text.remove_prefix(1);
  return text;
}

// Returns the length of the date and time at the start of `text`, or 0.
size_t TimeSize(std::string_view text) {
  size_t at = text.starts_with("[") ? 1 : 0;
  const std::string_view date = text.substr(at);
  if (Looks(date, "9999-99-99") || Looks(date, "9999/99/99")) {
    at += 10;
    if (at < text.size() && (text[at] == 'T' || text[at] == ' ')) ++at;
  }
  if (!Looks(text.substr(at), "99:99:99")) return 0;
  at += 8;
  while (at < text.size() &&
         (IsDigit(text[at]) || text[at] == '.' || text[at] == ',' ||
          text[at] == '+' || text[at] == 'Z')) {
    ++at;
  }
  return at;
}

// "E1121 21:52:24", "[W1121 ...", "I20261121 21:52:24".
std::optional<Severity> Glog(std::string_view text) {
  if (text.starts_with("[")) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  const std::string_view rest = text.substr(1);
  if (Looks(rest, "9999 99:99:99") || Looks(rest, "99999999 99:99:99")) {
    return LetterLevel(text[0]);
  }
  return std::nullopt;
}

// Returns the first level in capitals after a time: ": E external/", " -
// trainer - ERROR - ", "] [WARNING] ".
std::optional<Severity> AfterTime(std::string_view text) {
  if (text.starts_with(": ") && text.size() > 3 && text[3] == ' ') {
    return LetterLevel(text[2]);
  }
  constexpr std::string_view kBetween = " \t-|:[](),";
  for (int i = 0; i < kMostWords; ++i) {
    const size_t begin = text.find_first_not_of(kBetween);
    if (begin == std::string_view::npos) return std::nullopt;
    text.remove_prefix(begin);
    const size_t end = std::min(text.find_first_of(kBetween), text.size());
    const std::string_view word = text.substr(0, end);
    if (IsUpper(word)) {
      if (const auto level = LevelOf(word)) return level;
    }
    text.remove_prefix(end);
  }
  return std::nullopt;
}

// "ERROR: x", "[ERROR] x", "ERROR x", "error: x", "WARNING:tensorflow:x".
std::optional<Severity> FirstWord(std::string_view text) {
  const bool bracket = text.starts_with("[");
  if (bracket) text.remove_prefix(1);
  size_t end = 0;
  while (end < text.size() && IsLetter(text[end])) ++end;
  const std::string_view word = text.substr(0, end);
  const auto level = LevelOf(word);
  if (!level) return std::nullopt;
  const char next = end < text.size() ? text[end] : ' ';
  if (bracket) return next == ']' ? level : std::nullopt;
  if (next == ':') return level;
  const bool ends = next == ' ' || next == '\t' || next == '|' || next == ']';
  return IsUpper(word) && ends ? level : std::nullopt;
}

// Returns the level of a key such as `"level"` or `level` after `mark`.
std::optional<Severity> ValueAfter(std::string_view text, std::string_view key,
                                   char mark) {
  const size_t found = text.find(key);
  if (found == std::string_view::npos) return std::nullopt;
  if (found > 0 && IsNameChar(text[found - 1])) return std::nullopt;
  text.remove_prefix(found + key.size());
  while (text.starts_with(" ")) text.remove_prefix(1);
  if (text.empty() || text[0] != mark) return std::nullopt;
  const size_t begin = text.find_first_not_of(" \"", 1);
  if (begin == std::string_view::npos) return std::nullopt;
  size_t end = begin;
  while (end < text.size() && IsLetter(text[end])) ++end;
  return LevelOf(text.substr(begin, end - begin));
}

std::optional<Severity> Structured(std::string_view text) {
  if (text.starts_with("{")) {
    for (const char* key : {"\"severity\"", "\"level\"", "\"levelname\""}) {
      if (const auto level = ValueAfter(text, key, ':')) return level;
    }
    return std::nullopt;
  }
  for (const char* key : {"level", "severity"}) {
    if (const auto level = ValueAfter(text, key, '=')) return level;
  }
  return std::nullopt;
}

bool EndsWithAny(std::string_view name,
                 std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) {
    return name.size() >= end.size() &&
           name.substr(name.size() - end.size()) == end;
  });
}

// "ValueError: x", "torch.cuda.OutOfMemoryError: x", "KeyboardInterrupt", and
// "x.py:3: UserWarning: y".
std::optional<Severity> Exception(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && IsNameChar(text[end])) ++end;
  const bool whole = end == text.size() || text[end] == ':';
  // "MeanAbsoluteError: 0.12" is a metric. A KeyError of a number follows its
  // traceback.
  const bool metric =
      end < text.size() && text.find_first_not_of(": 0123456789.eE+-", end) ==
                               std::string_view::npos;
  if (whole && !metric && end > 0 && IsLetter(text[0]) &&
      EndsWithAny(text.substr(0, end),
                  {"Error", "Exception", "KeyboardInterrupt", "SystemExit"})) {
    return Severity::kError;
  }
  const size_t warning = text.find("Warning: ");
  if (warning == std::string_view::npos) return std::nullopt;
  size_t begin = warning;
  while (begin > 0 && IsNameChar(text[begin - 1])) --begin;
  if (begin == 0 || text.substr(0, begin).ends_with(": ")) {
    return Severity::kWarning;
  }
  return std::nullopt;
}

std::optional<Severity> LastWords(std::string_view text) {
  for (const std::string_view begin :
       {"Fatal Python error", "terminate called", "Segmentation fault",
        "Aborted (core", "Bus error", "Illegal instruction",
        "panic:", "*** SIG", "*** Aborted at"}) {
    if (text.starts_with(begin)) return Severity::kCritical;
  }
  // The texts of a shell.
  if (text == "Killed" || text == "Aborted") return Severity::kCritical;
  return std::nullopt;
}

// The form of compilers and shells: "x.c:3: error: y".
std::optional<Severity> InTheMiddle(std::string_view text) {
  if (text.find(": error: ") != std::string_view::npos ||
      text.find(": fatal error: ") != std::string_view::npos) {
    return Severity::kError;
  }
  if (text.find(": warning: ") != std::string_view::npos) {
    return Severity::kWarning;
  }
  return std::nullopt;
}

bool BeginsTraceback(std::string_view text) {
  // Exception groups: "  + Exception Group Traceback (most recent ...".
  return text.substr(0, kHead).find("Traceback (most recent call last)") !=
         std::string_view::npos;
}
// True for text between two chained tracebacks.
bool JoinsTracebacks(std::string_view text) {
  return text.starts_with("During handling of the above exception") ||
         text.starts_with("The above exception was the direct cause");
}

}  // namespace

std::optional<Severity> StatedSeverity(std::string_view line) {
  const std::string_view text = WithoutPrefix(line.substr(0, kHead));
  if (const auto level = Glog(text)) return level;
  if (const size_t time = TimeSize(text)) {
    if (const auto level = AfterTime(text.substr(time))) return level;
  }
  for (const auto& rule : {FirstWord, Structured, Exception, LastWords}) {
    if (const auto level = rule(text)) return level;
  }
  if (BeginsTraceback(text)) return Severity::kError;
  return InTheMiddle(text);
}

void SeverityReader::Skip(std::string_view line) {
  const std::string_view text = WithoutPrefix(line);
  if (BeginsTraceback(text) || JoinsTracebacks(text)) {
    in_traceback_ = true;
  } else if (in_traceback_) {
    in_traceback_ = text.empty() || text[0] == ' ' || text[0] == '\t';
  }
}

Severity SeverityReader::Next(std::string_view line) {
  const std::string_view text = WithoutPrefix(line);
  if (BeginsTraceback(text) || JoinsTracebacks(text)) {
    in_traceback_ = true;
    return Severity::kError;
  }
  const auto stated = StatedSeverity(line);
  if (in_traceback_) {
    // Frames are indented; the exception itself ends the traceback.
    if (text.empty() || text[0] == ' ' || text[0] == '\t') {
      return Severity::kError;
    }
    in_traceback_ = false;
    // User exceptions may have any name: "Stop: x".
    return std::max(stated.value_or(Severity::kError), Severity::kError);
  }
  return stated.value_or(Severity::kInfo);
}

}  // namespace lockstep::server
