// Untrusted text (of programs, hosts, ranks) for messages and logs. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_CORE_PRINTABLE_TEXT_H_
#define LOCKSTEP_WORKER_AGENT_CORE_PRINTABLE_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::worker::agent {

// The most bytes of a sentence that a daemon reports about one task.
inline constexpr size_t kMaxReportedText = 1024;

// Returns at most `limit` bytes of valid UTF-8 without control characters, for
// a message field and a log line; other characters become '?'.
std::string PrintableText(std::string_view text, size_t limit);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_CORE_PRINTABLE_TEXT_H_
