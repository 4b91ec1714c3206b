// Finds the reason for a failure in a program's own output: the error file of
// torchelastic's record(), else the end of its log. Pure; accepts any bytes.
//
// A message is one line of valid UTF-8 with at most kMaxExitMessage bytes, or
// empty if no reason was found. Lines of one message are joined by spaces. A
// longer message is cut after a word and ends with "...".
#ifndef LOCKSTEP_WORKER_AGENT_EXITS_EXIT_MESSAGE_H_
#define LOCKSTEP_WORKER_AGENT_EXITS_EXIT_MESSAGE_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::worker::agent {

inline constexpr size_t kMaxExitMessage = 512;
// How much of a log's end is searched.
inline constexpr size_t kExitMessageLog = 64 << 10;

struct ExitMessage {
  std::string message;
  // Where the error was raised, as in "train.py:12", with the file's base name
  // only. It is the last traceback frame in the program's own files, else the
  // last frame. For a SyntaxError it is the line with the error, for a fatal
  // line of glog or absl its source. Empty if the text has none.
  std::string location;

  bool operator==(const ExitMessage&) const = default;
};
inline constexpr size_t kMaxExitLocation = 128;

// Finds the words in the JSON at TORCHELASTIC_ERROR_FILE
// (torch/distributed/elastic/multiprocessing/errors/error_handler.py), in both
// of its shapes:
//   {"message": {"message": "RuntimeError: ...",
//                "extraInfo": {"py_callstack": "Traceback ...", ...}}}
//   {"message": "RuntimeError: ...", "timestamp": ...}
ExitMessage MessageOfErrorFile(std::string_view json);

// Finds the message in the last lines of a log (common/base/log_line.h); the
// first line may be truncated. Searches for the last Python exception and for
// the fatal message of a runtime: of glog, absl or TensorFlow ("F1123 ...
// x.cc:99] ..."), a line that begins with FATAL, "Fatal Python error", what()
// of C++, a failed CHECK or assertion. If the process crashed (by a signal, or
// by a shell's report of one), the fatal message has priority, except JAX's
// message about other processes; otherwise the exception has priority.
ExitMessage MessageOfLog(std::string_view log, bool crashed);

// Whether words are those of EADDRINUSE, as the C library, Python, Java, Go and
// gRPC have it.
bool SaysAddressInUse(std::string_view words);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_EXITS_EXIT_MESSAGE_H_
