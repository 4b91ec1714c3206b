#include "worker/agent/exit_words.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "common/base/log_line.h"
#include "worker/agent/rank_readings.h"

namespace lockstep {
namespace {

struct Line {
  cri::LogStream stream = cri::LogStream::kStdout;
  std::string text;
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsLetter(char c) { return IsUpper(c) || (c >= 'a' && c <= 'z'); }

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// "[rank3]: " of torch's excepthook, "[default0]:" of torchrun's --tee.
std::string_view WithoutRank(std::string_view text) {
  size_t at = 1;
  if (text.empty() || text[0] != '[') return text;
  while (at < text.size() && IsLetter(text[at])) ++at;
  const size_t digits = at;
  while (at < text.size() && IsDigit(text[at])) ++at;
  if (at == digits || text.substr(at, 2) != "]:") return text;
  text.remove_prefix(at + 2);
  if (text.starts_with(' ')) text.remove_prefix(1);
  return text;
}

std::vector<Line> LinesOf(std::string_view log) {
  std::vector<Line> lines;
  std::string parts[2];
  while (!log.empty()) {
    const std::string_view bytes = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(bytes.size() + 1, log.size()));
    cri::LogLine line;
    std::string error;
    if (!cri::ParseLogLine(bytes, &line, &error)) continue;
    std::string& text = parts[line.stream == cri::LogStream::kStderr ? 1 : 0];
    text += line.text;
    if (!line.full) continue;
    lines.push_back({line.stream, std::string(WithoutRank(text))});
    text.clear();
  }
  return lines;
}

// The class of "package.SomeError: text", "SomeError"; empty: it is no such
// line. Words in capitals ("INFO: ...") are no classes.
std::string_view ExceptionClass(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && (IsLetter(text[size]) || IsDigit(text[size]) ||
                                text[size] == '_' || text[size] == '.')) {
    ++size;
  }
  const std::string_view name = text.substr(0, size);
  if (size < text.size() && text[size] != ':') return "";
  const size_t dot = name.rfind('.');
  const std::string_view last =
      dot == std::string_view::npos ? name : name.substr(dot + 1);
  const bool capitals = std::none_of(
      last.begin(), last.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  return last.empty() || !IsUpper(last[0]) || capitals ? "" : last;
}

// The text of line `at`; one that ends with ":" goes on in the next one.
std::string Sentence(const std::vector<Line>& lines, size_t at) {
  std::string text(Trimmed(lines[at].text));
  if (!text.ends_with(':')) return text;
  for (size_t i = at + 1; i < lines.size(); ++i) {
    if (lines[i].stream != lines[at].stream) continue;
    return text + " " + std::string(Trimmed(lines[i].text));
  }
  return text;
}

// The exception that ends the last traceback. That of torchrun itself only
// says that one of its workers failed, which has said more before.
std::string LastException(const std::vector<Line>& lines) {
  std::optional<size_t> last;
  std::optional<size_t> launcher;
  std::optional<size_t> bare;  // Without a traceback: of a SyntaxError, say.
  bool open[2] = {false, false};
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view text = lines[i].text;
    bool& traceback = open[lines[i].stream == cri::LogStream::kStderr ? 1 : 0];
    if (text.starts_with("Traceback (most recent call last):")) {
      traceback = true;
      continue;
    }
    const std::string_view name = ExceptionClass(text);
    if (name.empty()) continue;
    if (traceback) {
      (name == "ChildFailedError" ? launcher : last) = i;
      traceback = false;
    } else if (name.ends_with("Error") && Contains(text, ": ")) {
      bare = i;
    }
  }
  if (last) return Sentence(lines, *last);
  if (bare) return Sentence(lines, *bare);
  return launcher ? Sentence(lines, *launcher) : "";
}

// What a runtime says when it gives up.
std::string CrashOf(const std::vector<Line>& lines, size_t at) {
  constexpr std::string_view kThrown =
      "terminate called after throwing an instance of '";
  constexpr std::string_view kBegins[] = {"Fatal Python error: ",
                                          "terminate called ",
                                          "double free or corruption",
                                          "free(): ",
                                          "malloc(): ",
                                          "realloc(): ",
                                          "corrupted ",
                                          "munmap_chunk(): ",
                                          "*** stack smashing",
                                          "panic: "};
  const std::string_view text = lines[at].text;
  if (text.starts_with(kThrown)) {
    std::string name(text.substr(kThrown.size()));
    if (name.ends_with('\'')) name.pop_back();
    constexpr std::string_view kWhat = "what():";
    for (size_t i = at + 1; i < std::min(at + 4, lines.size()); ++i) {
      const std::string_view next = Trimmed(lines[i].text);
      if (!next.starts_with(kWhat)) continue;
      return name + ": " + std::string(Trimmed(next.substr(kWhat.size())));
    }
    return name;
  }
  for (const std::string_view begin : kBegins) {
    if (text.starts_with(begin)) return std::string(text);
  }
  if (const size_t check = text.find("Check failed: ");
      check != std::string_view::npos) {
    return std::string(text.substr(check));
  }
  const bool assertion =
      Contains(text, "Assertion `") && Trimmed(text).ends_with("failed.");
  const bool found = assertion || Contains(text, "Sanitizer: ") ||
                     (text.starts_with("thread '") && Contains(text, "panic"));
  return found ? std::string(text) : "";
}

std::string FirstCrash(const std::vector<Line>& lines) {
  // What comes after it is its stack.
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string words = CrashOf(lines, i);
    if (!words.empty()) return words;
  }
  return "";
}

// What interpreters, shells and parsers of arguments say before they leave.
bool IsComplaint(std::string_view text) {
  constexpr std::string_view kBegins[] = {
      "Error: ", "error: ", "fatal: ", "FATAL: "};
  for (const std::string_view begin : kBegins) {
    if (text.starts_with(begin)) return true;
  }
  const std::string_view who = text.substr(0, text.find(": "));
  if (who.size() == text.size() || Contains(who, " ")) return false;
  const size_t slash = who.rfind('/');
  const std::string_view name =
      slash == std::string_view::npos ? who : who.substr(slash + 1);
  const std::string_view said = text.substr(who.size() + 2);
  if (said.starts_with("error: ")) return true;
  if (name.starts_with("python")) return true;
  return said.ends_with(": not found") ||
         said.ends_with(": command not found") ||
         said.ends_with(": No such file or directory") ||
         said.ends_with(": Permission denied");
}

std::string LastComplaint(const std::vector<Line>& lines) {
  for (size_t i = lines.size(); i > 0; --i) {
    if (IsComplaint(lines[i - 1].text)) return Sentence(lines, i - 1);
  }
  return "";
}

std::string OneLine(std::string_view text) {
  std::string clean = CleanText(Trimmed(text), kMaxExitWords);
  std::replace(clean.begin(), clean.end(), '\n', ' ');
  std::replace(clean.begin(), clean.end(), '\t', ' ');
  return std::string(Trimmed(clean));
}

}  // namespace

std::string WordsOfErrorFile(std::string_view json) {
  const auto file = nlohmann::json::parse(json.begin(), json.end(),
                                          /*cb=*/nullptr,
                                          /*allow_exceptions=*/false);
  if (!file.is_object()) return "";
  const auto outer = file.find("message");
  if (outer == file.end()) return "";
  std::string text;
  if (outer->is_string()) {
    text = outer->get<std::string>();
  } else if (outer->is_object()) {
    const auto inner = outer->find("message");
    if (inner == outer->end() || !inner->is_string()) return "";
    text = inner->get<std::string>();
  }
  const std::string_view all = Trimmed(text);
  // What torch writes for want of one.
  if (all == "<NONE>" || all == "<N/A>") return "";
  const size_t end = all.find('\n');
  const std::string_view first = Trimmed(all.substr(0, end));
  // "Error(s) in loading state_dict for Net:" and what they were.
  if (end != std::string_view::npos && first.ends_with(':')) {
    return OneLine(all.substr(0, all.find('\n', end + 1)));
  }
  return OneLine(first);
}

std::string WordsOfLog(std::string_view log, bool crashed) {
  if (log.size() > kExitWordsLog) {
    log.remove_prefix(log.size() - kExitWordsLog);
  }
  const std::vector<Line> lines = LinesOf(log);
  std::string words = crashed ? FirstCrash(lines) : LastException(lines);
  if (words.empty()) words = crashed ? LastException(lines) : FirstCrash(lines);
  if (words.empty()) words = LastComplaint(lines);
  return OneLine(words);
}

bool SaysAddressInUse(std::string_view words) {
  static constexpr std::string_view kWords[] = {
      "ddress already in use", "EADDRINUSE", "Errno 98", "errno: 98"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view each) {
                       return words.find(each) != std::string_view::npos;
                     });
}

}  // namespace lockstep
