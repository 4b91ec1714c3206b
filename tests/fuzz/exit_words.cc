// What a program left behind of its failure.
#include "worker/agent/exit_words.h"

#include "tests/fuzz/fuzz.h"
#include "worker/agent/rank_readings.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view bytes = fuzz::View(data, size);
  for (const std::string& words :
       {WordsOfErrorFile(bytes), WordsOfLog(bytes, false),
        WordsOfLog(bytes, true)}) {
    fuzz::Require(words.size() <= kMaxExitWords &&
                      CleanText(words, kMaxExitWords) == words &&
                      words.find('\n') == std::string::npos,
                  "it is one clean line");
  }
  return 0;
}
