// Texts of programs, made fit for a message. Pure; safe from any thread.
#ifndef LOCKSTEP_WORKER_EVIDENCE_TEXT_H_
#define LOCKSTEP_WORKER_EVIDENCE_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::worker::evidence {

// At most `most` bytes of `text` as one line of UTF-8 (common/base/one_line.h).
std::string ShortText(std::string_view text, size_t most);

// Behind the last slash.
std::string_view BaseName(std::string_view path);

}  // namespace lockstep::worker::evidence

#endif  // LOCKSTEP_WORKER_EVIDENCE_TEXT_H_
