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
    cri::AppendToLine(line.text, &text);
    if (!line.full) continue;
    lines.push_back(
        {line.stream, std::string(WithoutRank(cri::ShownLine(text)))});
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

// How many brackets of `text` are open at its end, but for those that it quotes
// ("'(' was never closed").
int OpenBrackets(std::string_view text) {
  int open = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool quoted = i > 0 && i + 1 < text.size() &&
                        text[i - 1] == text[i + 1] &&
                        (text[i - 1] == '\'' || text[i - 1] == '"');
    if (quoted) continue;
    if (c == '(' || c == '[' || c == '{') ++open;
    if ((c == ')' || c == ']' || c == '}') && open > 0) --open;
  }
  return open;
}

bool IsSpace(char c) { return c == ' ' || c == '\t'; }

// Whether a sentence cannot end with `text`.
bool IsOpen(std::string_view text) {
  text = Trimmed(text);
  return text.ends_with(':') || text.ends_with(',') || OpenBrackets(text) > 0;
}

// `  File "/srv/train.py", line 12, in main`.
struct Frame {
  std::string_view path;
  std::string_view line;
};

std::optional<Frame> ParseFrame(std::string_view text) {
  constexpr std::string_view kFile = "File \"";
  constexpr std::string_view kLine = "\", line ";
  if (text.empty() || !IsSpace(text[0])) return std::nullopt;
  text = Trimmed(text);
  if (!text.starts_with(kFile)) return std::nullopt;
  text.remove_prefix(kFile.size());
  const size_t end = text.rfind(kLine);
  if (end == std::string_view::npos) return std::nullopt;
  Frame frame{text.substr(0, end), text.substr(end + kLine.size())};
  size_t digits = 0;
  while (digits < frame.line.size() && IsDigit(frame.line[digits])) ++digits;
  frame.line = frame.line.substr(0, digits);
  if (digits == 0 || digits > 9 || frame.path.empty()) return std::nullopt;
  return frame;
}

std::string_view BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string Place(std::string_view path, std::string_view line) {
  return std::string(BaseName(path)) + ":" + std::string(line);
}

// Neither of the interpreter nor of an installed package.
bool IsOwnFile(std::string_view path) {
  return !path.starts_with('<') && !Contains(path, "/site-packages/") &&
         !Contains(path, "/dist-packages/") && !Contains(path, "/lib/python");
}

// The frames of a traceback, one after the other.
class Frames {
 public:
  void Clear() { *this = Frames(); }
  // `text` may be any line.
  void Add(std::string_view text) {
    const auto frame = ParseFrame(text);
    if (!frame) return;
    last_ = Place(frame->path, frame->line);
    if (IsOwnFile(frame->path)) own_ = last_;
  }
  std::string LocationOf(std::string_view exception) const {
    const bool parsing = exception == "SyntaxError" ||
                         exception == "IndentationError" ||
                         exception == "TabError";
    return parsing || own_.empty() ? last_ : own_;
  }

 private:
  std::string last_;
  std::string own_;
};

// A line of a logger's own: it ends what stands before it.
struct FatalLine {
  bool fatal = false;
  // "file.cc:99".
  std::string location;
  // Behind "] ".
  std::string_view text;
};

// "F1123 12:00:00.000000 1234 file.cc:99] text" of glog and absl, and
// "2026-01-01 00:00:00.1: F tensorflow/core/x.cc:12] text" of TensorFlow.
std::optional<FatalLine> ParseGlog(std::string_view text) {
  constexpr std::string_view kLevels = "DIWEF";
  std::string_view head = text.substr(0, text.find("] "));
  if (head.size() == text.size()) return std::nullopt;
  const auto digits = [&](size_t from, size_t count) {
    const std::string_view part = head.substr(std::min(from, head.size()));
    return part.size() >= count &&
           std::all_of(part.begin(), part.begin() + count, IsDigit);
  };
  FatalLine line;
  const bool glog = !head.empty() && Contains(kLevels, head.substr(0, 1)) &&
                    digits(1, 4) && head.substr(5, 1) == " ";
  if (glog) {
    line.fatal = head[0] == 'F';
  } else {
    // The level stands alone behind the time.
    const size_t level = head.find(": ");
    if (!digits(0, 4) || level == std::string_view::npos ||
        level + 4 > head.size() || head[level + 3] != ' ' ||
        !Contains(kLevels, head.substr(level + 2, 1))) {
      return std::nullopt;
    }
    line.fatal = head[level + 2] == 'F';
  }
  const std::string_view source = head.substr(head.rfind(' ') + 1);
  const size_t colon = source.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  line.location = Place(source.substr(0, colon), source.substr(colon + 1));
  line.text = text.substr(head.size() + 2);
  return line;
}

// "FATAL: text", "[FATAL] text", "2026-01-01 12:00:00,1 FATAL text".
bool BeginsWithFatal(std::string_view text) {
  constexpr std::string_view kWord = "FATAL";
  const size_t at = text.find(kWord);
  if (at == std::string_view::npos) return false;
  const std::string_view rest = text.substr(at + kWord.size());
  return text.find_first_not_of("0123456789 -:.,/[]TZ+|") == at &&
         !rest.empty() && !IsLetter(rest[0]) && !IsDigit(rest[0]) &&
         rest[0] != '_';
}

// Whether `text` says something of its own, and does not go on with what a
// program said before.
bool BeginsAnew(std::string_view text) {
  constexpr std::string_view kBegins[] = {
      "Traceback (most recent call last):",
      "During handling of the above exception",
      "The above exception was",
      "Exception ignored in",
      "Exception in thread",
      "*** Check failure stack trace",
      "Fatal Python error: ",
      "terminate called "};
  for (const std::string_view begin : kBegins) {
    if (text.starts_with(begin)) return true;
  }
  return ParseGlog(text).has_value() || BeginsWithFatal(text) ||
         ParseFrame(text).has_value();
}

// `text`, which stands in line `at`, and the lines of the same stream with
// which it goes on: those behind a sentence that is open, and indented ones;
// with `all` every one down to an empty line.
std::string Sentence(const std::vector<Line>& lines, size_t at,
                     std::string_view text, bool all = false) {
  std::string sentence(Trimmed(text));
  for (size_t i = at + 1; i < lines.size(); ++i) {
    if (lines[i].stream != lines[at].stream) continue;
    // What is further is cut in any case.
    if (sentence.size() > kMaxExitWords) break;
    const std::string_view next = lines[i].text;
    const bool open = IsOpen(sentence);
    if (BeginsAnew(next)) break;
    if (Trimmed(next).empty()) {
      if (!open) break;
      continue;
    }
    if (!all && !open && !IsSpace(next[0])) break;
    sentence.append(" ").append(Trimmed(next));
  }
  return sentence;
}

struct Found {
  size_t at = 0;
  ExitWords words;
};

// The exception that ends the last traceback. That of torchrun itself only
// says that one of its workers failed, which has said more before.
std::optional<Found> LastException(const std::vector<Line>& lines) {
  std::optional<Found> last;
  std::optional<Found> launcher;
  std::optional<Found> bare;  // Without a traceback: of a SyntaxError, say.
  struct Reader {
    bool traceback = false;
    Frames frames;
  } readers[2];
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view text = lines[i].text;
    Reader& reader = readers[lines[i].stream == cri::LogStream::kStderr];
    // A progress bar may stand before it in the same line.
    if (text.ends_with("Traceback (most recent call last):")) {
      reader.traceback = true;
      reader.frames.Clear();
      continue;
    }
    reader.frames.Add(text);
    const std::string_view name = ExceptionClass(text);
    if (name.empty()) continue;
    const bool ends_bare = name.ends_with("Error") && Contains(text, ": ");
    if (!reader.traceback && !ends_bare) continue;
    Found found{i, {Sentence(lines, i, text), reader.frames.LocationOf(name)}};
    if (!reader.traceback) {
      bare = std::move(found);
    } else {
      (name == "ChildFailedError" ? launcher : last) = std::move(found);
    }
    reader = Reader();
  }
  if (last) return last;
  return bare ? bare : launcher;
}

// Of the stack that "Fatal Python error" prints, the innermost frame first.
std::string LocationBehind(const std::vector<Line>& lines, size_t at) {
  constexpr size_t kHeader = 8;
  for (size_t i = at + 1; i < std::min(at + kHeader, lines.size()); ++i) {
    if (const auto frame = ParseFrame(lines[i].text)) {
      return Place(frame->path, frame->line);
    }
  }
  return "";
}

// "a.out: a.c:3: main: Assertion `x' failed.": "a.c:3".
std::string LocationOfAssertion(std::string_view text) {
  text = text.substr(0, text.find("Assertion `"));
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(": "));
    text.remove_prefix(std::min(part.size() + 2, text.size()));
    const size_t colon = part.rfind(':');
    if (colon == std::string_view::npos || colon + 1 == part.size()) continue;
    const std::string_view line = part.substr(colon + 1);
    if (std::all_of(line.begin(), line.end(), IsDigit)) {
      return Place(part.substr(0, colon), line);
    }
  }
  return "";
}

// What a runtime says when it gives up.
ExitWords CrashOf(const std::vector<Line>& lines, size_t at) {
  constexpr std::string_view kThrown =
      "terminate called after throwing an instance of '";
  constexpr std::string_view kBegins[] = {"terminate called ",
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
      return {name + ": " + Sentence(lines, i, next.substr(kWhat.size())), ""};
    }
    return {name, ""};
  }
  if (text.starts_with("Fatal Python error: ")) {
    return {std::string(text), LocationBehind(lines, at)};
  }
  for (const std::string_view begin : kBegins) {
    if (text.starts_with(begin)) return {std::string(text), ""};
  }
  const std::optional<FatalLine> glog = ParseGlog(text);
  if (glog && glog->fatal) {
    return {Sentence(lines, at, glog->text, /*all=*/true), glog->location};
  }
  if (BeginsWithFatal(text)) return {Sentence(lines, at, text), ""};
  if (const size_t check = text.find("Check failed: ");
      check != std::string_view::npos) {
    return {std::string(text.substr(check)), glog ? glog->location : ""};
  }
  if (Contains(text, "Assertion `") && Trimmed(text).ends_with("failed.")) {
    return {std::string(text), LocationOfAssertion(text)};
  }
  const bool found = Contains(text, "Sanitizer: ") ||
                     (text.starts_with("thread '") && Contains(text, "panic"));
  return {found ? std::string(text) : "", ""};
}

std::optional<Found> FirstCrash(const std::vector<Line>& lines) {
  // What comes after it is its stack.
  for (size_t i = 0; i < lines.size(); ++i) {
    ExitWords words = CrashOf(lines, i);
    if (!words.message.empty()) return Found{i, std::move(words)};
  }
  return std::nullopt;
}

// What JAX says when it gives up because other processes did not answer: where
// this one had raised an exception, that is why it left them.
bool SpeaksOfOthers(std::string_view words) {
  return Contains(words, "distributed service") ||
         Contains(words, "oordination service") ||
         Contains(words, "CoordinationService");
}

// Of the two the one that tells why the process ended.
std::optional<Found> Choose(bool crashed, std::optional<Found> exception,
                            std::optional<Found> crash) {
  if (!exception) return crash;
  if (!crash || !crashed) return exception;
  const bool after = exception->at < crash->at;
  return after && SpeaksOfOthers(crash->words.message) ? exception : crash;
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
    if (IsComplaint(lines[i - 1].text)) {
      return Sentence(lines, i - 1, lines[i - 1].text);
    }
  }
  return "";
}

// Spaces and line ends become one space each.
std::string OneLine(std::string_view text) {
  std::string joined;
  for (const char c : Trimmed(text)) {
    const bool space = IsSpace(c) || c == '\n' || c == '\r';
    if (!space) joined += c;
    if (space && !joined.ends_with(' ')) joined += ' ';
  }
  std::string clean = CleanText(joined, 2 * kMaxExitWords);
  if (clean.size() <= kMaxExitWords) return clean;
  constexpr std::string_view kMore = "...";
  // A word this long is cut itself.
  constexpr size_t kLongWord = 80;
  clean = CleanText(clean, kMaxExitWords - kMore.size());
  const size_t space = clean.rfind(' ');
  if (space != std::string::npos && space + kLongWord > clean.size()) {
    clean.resize(space);
  }
  return clean.append(kMore);
}

ExitWords Fitting(ExitWords words) {
  words.message = OneLine(words.message);
  words.location = words.message.empty()
                       ? ""
                       : CleanText(OneLine(words.location), kMaxExitLocation);
  return words;
}

// Lines of one stream.
std::vector<Line> SplitLines(std::string_view text) {
  std::vector<Line> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    lines.push_back({cri::LogStream::kStderr, std::string(line)});
  }
  return lines;
}

// The callstack of an error file's message.
std::string LocationOfCallstack(const nlohmann::json& message,
                                std::string_view exception) {
  const auto extra = message.find("extraInfo");
  if (extra == message.end() || !extra->is_object()) return "";
  const auto stack = extra->find("py_callstack");
  if (stack == extra->end() || !stack->is_string()) return "";
  Frames frames;
  for (const Line& line : SplitLines(stack->get_ref<const std::string&>())) {
    if (line.text.starts_with("Traceback (most recent")) frames.Clear();
    frames.Add(line.text);
  }
  return frames.LocationOf(exception);
}

}  // namespace

ExitWords WordsOfErrorFile(std::string_view json) {
  const auto file = nlohmann::json::parse(json.begin(), json.end(),
                                          /*cb=*/nullptr,
                                          /*allow_exceptions=*/false);
  if (!file.is_object()) return {};
  const auto outer = file.find("message");
  if (outer == file.end()) return {};
  std::string text;
  const bool nested = outer->is_object();
  if (outer->is_string()) {
    text = outer->get<std::string>();
  } else if (nested) {
    const auto inner = outer->find("message");
    if (inner == outer->end() || !inner->is_string()) return {};
    text = inner->get<std::string>();
  }
  const std::string_view all = Trimmed(text);
  // What torch writes for want of one.
  if (all == "<NONE>" || all == "<N/A>") return {};
  const std::vector<Line> lines = SplitLines(all);
  if (lines.empty()) return {};
  return Fitting(
      {Sentence(lines, 0, lines[0].text),
       nested ? LocationOfCallstack(*outer, ExceptionClass(lines[0].text))
              : ""});
}

ExitWords WordsOfLog(std::string_view log, bool crashed) {
  if (log.size() > kExitWordsLog) {
    log.remove_prefix(log.size() - kExitWordsLog);
  }
  const std::vector<Line> lines = LinesOf(log);
  std::optional<Found> found =
      Choose(crashed, LastException(lines), FirstCrash(lines));
  if (!found) return Fitting({LastComplaint(lines), ""});
  return Fitting(std::move(found->words));
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
