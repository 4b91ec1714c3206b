// What a program itself said of its failure: the file in which torchelastic's
// record() leaves an error, else the end of its log. Pure; of any bytes.
//
// A message is one line of at most kMaxExitWords bytes of valid UTF-8; empty
// where nothing was found that a person would take for the reason. One that
// the program wrote as several lines is joined by spaces, and one that is
// longer is cut behind a word and ends with "...".
#ifndef LOCKSTEP_WORKER_AGENT_EXITS_EXIT_WORDS_H_
#define LOCKSTEP_WORKER_AGENT_EXITS_EXIT_WORDS_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kMaxExitWords = 512;
// How much of a log's end is searched.
inline constexpr size_t kExitWordsLog = 64 << 10;

struct ExitWords {
  std::string message;
  // Where it was raised, "train.py:12": the last frame of the traceback that is
  // of the program's own files, else the last frame; of a SyntaxError the
  // line that does not parse; of a fatal line of glog or absl its source. Only
  // the file's base name. Empty: the text does not say.
  std::string location;

  bool operator==(const ExitWords&) const = default;
};
inline constexpr size_t kMaxExitLocation = 128;

// Finds the words in the JSON at TORCHELASTIC_ERROR_FILE
// (torch/distributed/elastic/multiprocessing/errors/error_handler.py), in both
// of its shapes:
//   {"message": {"message": "RuntimeError: ...",
//                "extraInfo": {"py_callstack": "Traceback ...", ...}}}
//   {"message": "RuntimeError: ...", "timestamp": ...}
ExitWords WordsOfErrorFile(std::string_view json);

// Finds the words in the last lines of a log (common/base/log_line.h), the
// first of which may be cut. Looks for the last exception of Python, and for
// what a runtime says when it gives up: a fatal line of glog, absl or
// TensorFlow ("F1123 ... x.cc:99] ..."), a line that begins with FATAL, "Fatal
// Python error", what() of C++, a failed CHECK or assertion. Where the process
// crashed (by a signal, or a shell says so of it) the latter counts first, but
// for what JAX says of others after an exception of this process; else the
// exception does.
ExitWords WordsOfLog(std::string_view log, bool crashed);

// Whether words are those of EADDRINUSE, as the C library, Python, Java, Go and
// gRPC have it.
bool SaysAddressInUse(std::string_view words);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_EXITS_EXIT_WORDS_H_
