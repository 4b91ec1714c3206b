#include "worker/agent/exits/exit_text.h"

#include <algorithm>
#include <utility>

namespace lockstep::worker::agent::exit_text {
namespace {

bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsLetter(char c) { return IsUpper(c) || (c >= 'a' && c <= 'z'); }

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

// Neither of the interpreter nor of an installed package.
bool IsOwnFile(std::string_view path) {
  return !path.starts_with('<') && !Contains(path, "/site-packages/") &&
         !Contains(path, "/dist-packages/") && !Contains(path, "/lib/python");
}

// Returns whether `text` begins a message of its own instead of continuing the
// previous one.
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

}  // namespace

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
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

bool IsSpace(char c) { return c == ' ' || c == '\t'; }

std::string Place(std::string_view path, std::string_view line) {
  return std::string(BaseName(path)) + ":" + std::string(line);
}

std::string PlaceOfFrame(std::string_view text) {
  const auto frame = ParseFrame(text);
  return frame ? Place(frame->path, frame->line) : "";
}

void Frames::Add(std::string_view text) {
  const auto frame = ParseFrame(text);
  if (!frame) return;
  last_ = Place(frame->path, frame->line);
  if (IsOwnFile(frame->path)) own_ = last_;
}

std::string Frames::LocationOf(std::string_view exception) const {
  const bool parsing = exception == "SyntaxError" ||
                       exception == "IndentationError" ||
                       exception == "TabError";
  return parsing || own_.empty() ? last_ : own_;
}

std::optional<GlogLine> ParseGlog(std::string_view text) {
  constexpr std::string_view kLevels = "DIWEF";
  std::string_view head = text.substr(0, text.find("] "));
  if (head.size() == text.size()) return std::nullopt;
  const auto digits = [&](size_t from, size_t count) {
    const std::string_view part = head.substr(std::min(from, head.size()));
    return part.size() >= count &&
           std::all_of(part.begin(), part.begin() + count, IsDigit);
  };
  GlogLine line;
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

bool BeginsWithFatal(std::string_view text) {
  constexpr std::string_view kWord = "FATAL";
  const size_t at = text.find(kWord);
  if (at == std::string_view::npos) return false;
  const std::string_view rest = text.substr(at + kWord.size());
  return text.find_first_not_of("0123456789 -:.,/[]TZ+|") == at &&
         !rest.empty() && !IsLetter(rest[0]) && !IsDigit(rest[0]) &&
         rest[0] != '_';
}

std::string Sentence(const std::vector<Line>& lines, size_t at,
                     std::string_view text, size_t limit, bool all) {
  std::string sentence(Trimmed(text));
  for (size_t i = at + 1; i < lines.size(); ++i) {
    if (lines[i].stream != lines[at].stream) continue;
    // The limit cuts the rest in any case.
    if (sentence.size() > limit) break;
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

std::vector<Line> SplitLines(std::string_view text) {
  std::vector<Line> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    lines.push_back({cri::LogStream::kStderr, std::string(line)});
  }
  return lines;
}

}  // namespace lockstep::worker::agent::exit_text
