// The sum of all ranks' control words and tails, as it comes off the wire.
#include "worker/runtime/control_word.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "worker/runtime/step_tail.h"

LOCKSTEP_FUZZ_TARGET(control_word)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker::runtime;
  constexpr int kRanks = 4;
  ControlInput own;
  own.generation = 3;
  own.step = 120;
  ControlWords sum = EncodeControl(own, kRanks);
  for (float& word : sum) word *= kRanks;
  std::vector<float> tail(TailWords(kRanks));
  const size_t words = std::min(size, sizeof(sum));
  if (words > 0) std::memcpy(sum.data(), data, words);
  if (size > 0) {
    std::memcpy(tail.data(), data, std::min(size, 4 * tail.size()));
  }
  if (const auto out = DecodeControl(own, sum, kRanks); out.ok()) {
    fuzz::Require(!out->directive || (out->directive->step > own.step &&
                                      out->directive->step <=
                                          own.step + kMaxDirectiveDistance),
                  "a directive is for a step to come");
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const StepTailSum read = ReadTail(tail, rank);
    fuzz::Require(read.samples >= 0 && std::isfinite(read.loss_sum) &&
                      read.straggler_wait >= Duration::zero(),
                  "what cannot be is 0");
  }
  return 0;
}
