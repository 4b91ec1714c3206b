// Infers the severity of a log line from its text. Pure.
//
// stdout or stderr says nothing about severity: TensorFlow writes all its
// output to stderr. Recognised, in this order:
//   glog, absl, PyTorch's C++  "E1121 21:52:24.1 7 x.cc:3] ...", "[W1121 ..."
//   TensorFlow's C++           "2026-11-21 21:52:24.1: E external/x.cc:3] ..."
//   Python's logging           "ERROR:root:...", "... - trainer - ERROR - ...",
//                              "[2026-11-21 21:52:24,1][WARNING] ..."
//   JSON and logfmt            {"severity": "ERROR", ...}, level=error
//   Python's exceptions        a traceback down to "ValueError: ..." and
//                              warnings: "x.py:3: UserWarning: ..."
//   fatal runtime errors       "Fatal Python error", "terminate called", ...
// A "[rank0]: " and colours may precede each. An unrecognised line is INFO.
#ifndef LOCKSTEP_SERVER_LOGS_SEVERITY_H_
#define LOCKSTEP_SERVER_LOGS_SEVERITY_H_

#include <optional>
#include <string_view>

namespace lockstep::server {

// The numbers are those of lockstep.v1.Severity.
enum class Severity {
  kDebug = 1,
  kInfo = 2,
  kWarning = 3,
  kError = 4,
  kCritical = 5
};

// Returns the severity that a line alone states, or nullopt. Reads only its
// first few hundred bytes, which may be binary.
std::optional<Severity> StatedSeverity(std::string_view line);

// Reads the lines of one stream of one rank in order. A traceback is an error
// from its first line to its last.
class SeverityReader {
 public:
  Severity Next(std::string_view line);
  // Skips a line without computing its severity, which is much cheaper.
  void Skip(std::string_view line);

 private:
  bool in_traceback_ = false;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_LOGS_SEVERITY_H_
