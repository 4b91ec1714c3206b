// The lines of a failed program's log, and what is known of single ones: for
// exit_message.cc. Pure; of any bytes.
#ifndef LOCKSTEP_WORKER_AGENT_EXITS_EXIT_TEXT_H_
#define LOCKSTEP_WORKER_AGENT_EXITS_EXIT_TEXT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/log_line.h"

namespace lockstep::worker::agent::exit_text {

struct Line {
  cri::LogStream stream = cri::LogStream::kStdout;
  // Without the "[rank3]: " of torch.
  std::string text;
};

// The lines of a log (common/base/log_line.h). Other text is skipped.
std::vector<Line> LinesOf(std::string_view log);
// The lines of a plain text, as if written to stderr.
std::vector<Line> SplitLines(std::string_view text);

bool Contains(std::string_view text, std::string_view part);
// Without the blanks at both ends.
std::string_view Trimmed(std::string_view text);
bool IsDigit(char c);
// A blank or a tab.
bool IsSpace(char c);

// Returns the class in "package.SomeError: text", here "SomeError", or "" for
// another line. Words in capitals ("INFO: ...") are not classes.
std::string_view ExceptionClass(std::string_view text);

// "train.py:12" of "/srv/train.py" and "12".
std::string Place(std::string_view path, std::string_view line);
// Returns the place in `  File "/srv/train.py", line 12, in main`, or "" for
// another line.
std::string PlaceOfFrame(std::string_view text);

// The frames of a traceback, one after the other.
class Frames {
 public:
  void Clear() { *this = Frames(); }
  // `text` may be any line.
  void Add(std::string_view text);
  // ExitMessage::location of an exception of this class.
  std::string LocationOf(std::string_view exception) const;

 private:
  std::string last_;
  std::string own_;
};

// "F1123 12:00:00.000000 1234 file.cc:99] text" of glog and absl, and
// "2026-01-01 00:00:00.1: F tensorflow/core/x.cc:12] text" of TensorFlow.
struct GlogLine {
  bool fatal = false;
  // "file.cc:99".
  std::string location;
  // Behind "] ".
  std::string_view text;
};
std::optional<GlogLine> ParseGlog(std::string_view text);

// "FATAL: text", "[FATAL] text", "2026-01-01 12:00:00,1 FATAL text".
bool BeginsWithFatal(std::string_view text);

// Returns `text` of line `at` with its continuation lines of the same stream:
// after an unfinished sentence, or indented; with `all`, every line up to an
// empty one. Slightly more than `limit` bytes at most.
std::string Sentence(const std::vector<Line>& lines, size_t at,
                     std::string_view text, size_t limit, bool all = false);

}  // namespace lockstep::worker::agent::exit_text

#endif  // LOCKSTEP_WORKER_AGENT_EXITS_EXIT_TEXT_H_
