// How bad a line of a log is, guessed from its text. Pure.
//
// Programs write to stdout and stderr as they like, so the stream tells
// nothing: TensorFlow writes all its chatter to stderr. What is recognised, in
// this order:
//   glog, absl, PyTorch's C++  "E1121 21:52:24.1 7 x.cc:3] ...", "[W1121 ..."
//   TensorFlow's C++           "2026-11-21 21:52:24.1: E external/x.cc:3] ..."
//   Python's logging           "ERROR:root:...", "... - trainer - ERROR - ...",
//                              "[2026-11-21 21:52:24,1][WARNING] ..."
//   JSON and logfmt            {"severity": "ERROR", ...}, level=error
//   Python's exceptions        a traceback down to "ValueError: ..." and
//                              warnings: "x.py:3: UserWarning: ..."
//   the runtime's last words   "Fatal Python error", "terminate called", ...
// In front of each "[rank0]: " and colours may stand. What says nothing of
// itself is INFO.
#ifndef LOCKSTEP_SERVER_LOGS_SEVERITY_H_
#define LOCKSTEP_SERVER_LOGS_SEVERITY_H_

#include <optional>
#include <string_view>

namespace lockstep {

// The numbers are those of lockstep.v1.Severity.
enum class Severity {
  kDebug = 1,
  kInfo = 2,
  kWarning = 3,
  kError = 4,
  kCritical = 5
};

// What a line alone says of itself; nothing: nothing. Looks at its first few
// hundred bytes only, which may be no text at all.
std::optional<Severity> StatedSeverity(std::string_view line);

// The lines of one stream of one rank, in their order: a traceback is an error
// from its first line to its last.
class SeverityReader {
 public:
  Severity Next(std::string_view line);
  // The same of a line that nobody asks about: much cheaper.
  void Skip(std::string_view line);

 private:
  bool in_traceback_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_LOGS_SEVERITY_H_
