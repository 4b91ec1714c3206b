// What a program left behind of its failure.
#include "worker/agent/exits/exit_message.h"

#include "tests/fuzz/fuzz.h"
#include "worker/agent/core/printable_text.h"

LOCKSTEP_FUZZ_TARGET(exit_message)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker::agent;
  const std::string_view bytes = fuzz::View(data, size);
  const auto is_line = [](const std::string& text, size_t limit) {
    return text.size() <= limit && PrintableText(text, limit) == text &&
           text.find('\n') == std::string::npos;
  };
  for (const ExitMessage& words :
       {MessageOfErrorFile(bytes), MessageOfLog(bytes, false),
        MessageOfLog(bytes, true)}) {
    fuzz::Require(is_line(words.message, kMaxExitMessage),
                  "it is one clean line");
    fuzz::Require(is_line(words.location, kMaxExitLocation),
                  "its place is one clean line");
    fuzz::Require(words.location.empty() || !words.message.empty(),
                  "a place is of a message");
  }
  return 0;
}
