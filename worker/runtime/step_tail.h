// The tail behind the last gradient bucket: float32 words that are summed over
// all ranks with the gradients. PURE.
//   0-15   the control word (control_word.h)
//   16-17  samples of the step: low 12 bits, and the rest: exact
//   18     sum of losses, as exact as float32
//   19...  one word a rank: microseconds for which the step before held it up
//          after its own arrival (phase_timer.h); others add 0
//   then, of an elastic job, one word a shard: the sum of its losses, in place
//          of word 18, so that it has the same bits at each number of ranks
#ifndef LOCKSTEP_WORKER_RUNTIME_STEP_TAIL_H_
#define LOCKSTEP_WORKER_RUNTIME_STEP_TAIL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "worker/runtime/control_word.h"

namespace lockstep::worker::runtime {

// The most samples of a rank in a step: sums over kMaxControlRanks stay exact.
inline constexpr int64_t kMaxStepSamples = (1 << 24) - 1;

struct StepTail {
  ControlWords control{};
  int64_t samples = 0;
  double loss_sum = 0;  // Not finite: goes as 0.
  // Of an elastic job: the shards of this rank, and the sums of their losses.
  std::vector<std::pair<int, double>> shard_losses;
  // For how long the step before held this rank up.
  Duration waited{};
};

// Float32 words in the tail of a generation of `world_size` ranks.
size_t TailWords(int world_size);
// The same for an elastic job. Its ranks' words are those of the members, by
// place, and behind them are unused ones.
size_t ShardTailWords(int world_size);

// REQUIRES: words.size() >= TailWords(world size) > rank, 0 <= samples <=
// kMaxStepSamples.
void WriteTail(const StepTail& tail, int rank, std::span<float> words);
// REQUIRES: words.size() == ShardTailWords(world_size).
void WriteShardTail(const StepTail& tail, int place, int world_size,
                    std::span<float> words);

// The content of the sum, for all ranks.
struct StepTailSum {
  ControlWords control{};
  int64_t samples = 0;
  double loss_sum = 0;
  // How much longer this rank was held up in the step before than the rank
  // that came last.
  Duration straggler_wait{};
  // How much later than the median rank this one came; negative: earlier.
  // No value: no rank reports that it was held up.
  std::optional<Duration> lag;
  // The rank that came last to the step before: it was held up least (of
  // equals, the first). -1: no rank reports that it was held up, or there is
  // only one rank.
  int late_rank = -1;
  // For how long only that rank was missing: the step before would have been
  // this much shorter, had it come with the last but one.
  Duration late_by{};
};
// Takes any words: impossible values become 0; DecodeControl checks the control
// word.
StepTailSum ReadTail(std::span<const float> words, int rank);
// Ranks are places among `members` members.
StepTailSum ReadShardTail(std::span<const float> words, int place, int members,
                          int world_size);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_STEP_TAIL_H_
