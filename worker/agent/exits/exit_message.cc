#include "worker/agent/exits/exit_message.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "worker/agent/core/printable_text.h"
#include "worker/agent/exits/exit_text.h"

namespace lockstep::worker::agent {
namespace {

using exit_text::BeginsWithFatal;
using exit_text::Contains;
using exit_text::ExceptionClass;
using exit_text::Frames;
using exit_text::GlogLine;
using exit_text::IsDigit;
using exit_text::IsSpace;
using exit_text::Line;
using exit_text::LinesOf;
using exit_text::ParseGlog;
using exit_text::Place;
using exit_text::PlaceOfFrame;
using exit_text::Sentence;
using exit_text::SplitLines;
using exit_text::Trimmed;

struct Found {
  size_t at = 0;
  ExitMessage words;
};

// Returns the exception that ends the last traceback. Skips torchrun's own,
// which only reports that a worker failed.
std::optional<Found> LastException(const std::vector<Line>& lines) {
  std::optional<Found> last;
  std::optional<Found> launcher;
  std::optional<Found> bare;  // Without a traceback, as for a SyntaxError.
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
    Found found{i,
                {Sentence(lines, i, text, kMaxExitMessage),
                 reader.frames.LocationOf(name)}};
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

// Returns the location in the stack below "Fatal Python error", which lists the
// innermost frame first.
std::string LocationBehind(const std::vector<Line>& lines, size_t at) {
  constexpr size_t kHeader = 8;
  for (size_t i = at + 1; i < std::min(at + kHeader, lines.size()); ++i) {
    std::string place = PlaceOfFrame(lines[i].text);
    if (!place.empty()) return place;
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

// Returns the fatal message of a runtime.
ExitMessage CrashOf(const std::vector<Line>& lines, size_t at) {
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
      return {
          name + ": " +
              Sentence(lines, i, next.substr(kWhat.size()), kMaxExitMessage),
          ""};
    }
    return {name, ""};
  }
  if (text.starts_with("Fatal Python error: ")) {
    return {std::string(text), LocationBehind(lines, at)};
  }
  for (const std::string_view begin : kBegins) {
    if (text.starts_with(begin)) return {std::string(text), ""};
  }
  const std::optional<GlogLine> glog = ParseGlog(text);
  if (glog && glog->fatal) {
    return {Sentence(lines, at, glog->text, kMaxExitMessage, /*all=*/true),
            glog->location};
  }
  if (BeginsWithFatal(text))
    return {Sentence(lines, at, text, kMaxExitMessage), ""};
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
    ExitMessage words = CrashOf(lines, i);
    if (!words.message.empty()) return Found{i, std::move(words)};
  }
  return std::nullopt;
}

// Returns whether this is JAX's message about processes that did not answer. If
// this process raised an exception, the exception is the cause.
bool SpeaksOfOthers(std::string_view words) {
  return Contains(words, "distributed service") ||
         Contains(words, "oordination service") ||
         Contains(words, "CoordinationService");
}

// Returns the one that explains the end of the process.
std::optional<Found> Choose(bool crashed, std::optional<Found> exception,
                            std::optional<Found> crash) {
  if (!exception) return crash;
  if (!crash || !crashed) return exception;
  const bool after = exception->at < crash->at;
  return after && SpeaksOfOthers(crash->words.message) ? exception : crash;
}

// Returns whether an interpreter, shell or argument parser prints this before
// it exits.
bool IsErrorLine(std::string_view text) {
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

std::string LastErrorLine(const std::vector<Line>& lines) {
  for (size_t i = lines.size(); i > 0; --i) {
    if (IsErrorLine(lines[i - 1].text)) {
      return Sentence(lines, i - 1, lines[i - 1].text, kMaxExitMessage);
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
  std::string clean = PrintableText(joined, 2 * kMaxExitMessage);
  if (clean.size() <= kMaxExitMessage) return clean;
  constexpr std::string_view kMore = "...";
  // A word this long is cut itself.
  constexpr size_t kLongWord = 80;
  clean = PrintableText(clean, kMaxExitMessage - kMore.size());
  const size_t space = clean.rfind(' ');
  if (space != std::string::npos && space + kLongWord > clean.size()) {
    clean.resize(space);
  }
  return clean.append(kMore);
}

ExitMessage Fitting(ExitMessage words) {
  words.message = OneLine(words.message);
  words.location =
      words.message.empty()
          ? ""
          : PrintableText(OneLine(words.location), kMaxExitLocation);
  return words;
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

ExitMessage MessageOfErrorFile(std::string_view json) {
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
      {Sentence(lines, 0, lines[0].text, kMaxExitMessage),
       nested ? LocationOfCallstack(*outer, ExceptionClass(lines[0].text))
              : ""});
}

ExitMessage MessageOfLog(std::string_view log, bool crashed) {
  if (log.size() > kExitMessageLog) {
    log.remove_prefix(log.size() - kExitMessageLog);
  }
  const std::vector<Line> lines = LinesOf(log);
  std::optional<Found> found =
      Choose(crashed, LastException(lines), FirstCrash(lines));
  if (!found) return Fitting({LastErrorLine(lines), ""});
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

}  // namespace lockstep::worker::agent
