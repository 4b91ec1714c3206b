// What a rank tells the next one that it has started, so that ranks which do
// not run the same operations find out before data moves. Gloo itself would
// add whatever comes. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_GLOO_WORDS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_GLOO_WORDS_H_

#include <cstdint>
#include <string>

#include "worker/collective/communicator.h"

namespace lockstep {

// As it travels; little-endian, as every host we run on.
struct GlooWords {
  uint64_t sequence = 0;
  OperationWords operation;

  bool operator==(const GlooWords&) const = default;
};
static_assert(sizeof(GlooWords) == 24, "no padding");

GlooWords GlooWordsOf(const Operation& operation, uint32_t sequence);

// "operation 7, all-reduce (sum) of 100 float32"; for bytes of any kind.
std::string Describe(const GlooWords& words);

// What Gloo calls the messages of this operation: its number, and a hash of the
// words. Data of another operation is not taken for this one's.
uint32_t GlooTag(const GlooWords& words);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_GLOO_WORDS_H_
