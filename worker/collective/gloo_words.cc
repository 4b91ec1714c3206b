#include "worker/collective/gloo_words.h"

#include <fmt/format.h>

#include <cstring>

#include "worker/collective/operation.h"

namespace lockstep {

GlooWords GlooWordsOf(const Operation& operation, uint32_t sequence) {
  return {sequence, WordsOf(operation)};
}

std::string Describe(const GlooWords& words) {
  return fmt::format("operation {}, {}", words.sequence,
                     Describe(words.operation));
}

uint32_t GlooTag(const GlooWords& words) {
  // FNV-1a.
  unsigned char bytes[sizeof(words)];
  std::memcpy(bytes, &words, sizeof(words));
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : bytes) {
    hash = (hash ^ byte) * 0x100000001b3;
  }
  return static_cast<uint32_t>(words.sequence << 16 | hash >> 48);
}

}  // namespace lockstep
