// What a program itself said of its failure: the file in which torchelastic's
// record() leaves an error, else the end of its log. Pure; of any bytes.
//
// A result is one line of at most kMaxExitWords bytes of valid UTF-8; empty
// where nothing was found that a person would take for the reason.
#ifndef LOCKSTEP_WORKER_AGENT_EXIT_WORDS_H_
#define LOCKSTEP_WORKER_AGENT_EXIT_WORDS_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kMaxExitWords = 512;
// Of a log's end this much is looked at.
inline constexpr size_t kExitWordsLog = 64 << 10;

// Of the JSON at TORCHELASTIC_ERROR_FILE
// (torch/distributed/elastic/multiprocessing/errors/error_handler.py), in both
// of its shapes:
//   {"message": {"message": "RuntimeError: ...", "extraInfo": {...}}}
//   {"message": "RuntimeError: ...", "timestamp": ...}
std::string WordsOfErrorFile(std::string_view json);

// Of the last lines of a log (common/base/log_line.h), the first of which may
// be cut. Looks for the last exception of Python; where the process crashed
// (by a signal, or a shell says so of it) rather for what its runtime said
// then: "Fatal Python error", what() of C++, a failed CHECK or assertion.
std::string WordsOfLog(std::string_view log, bool crashed);

// Whether words are those of EADDRINUSE, as the C library, Python, Java, Go and
// gRPC have it.
bool SaysAddressInUse(std::string_view words);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_EXIT_WORDS_H_
