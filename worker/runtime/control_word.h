// The control word: the 16 numbers by which the ranks of a generation agree,
// step by step, without any message of their own. PURE.
//
// They are the tail of the last gradient bucket and are summed over all ranks
// like the rest, in FP32. Every word of a rank is a whole number below
// 2^24 / N, so that sums are exact and their order does not matter:
//   0-3    low 12 bits of generation, step, cursor and config fingerprint:
//          the sum must be N times the own, else some rank differs
//   4      1: this rank's gradient or loss is not finite; all skip the step
//   5      1: this rank was ordered to drain
//   6      checkpoint in flight: 0 not ready, 1 this rank's part is durable,
//          N + 1 this rank gave it up. Sum N: complete; above N: given up
//   7, 8   12-bit pieces of the hash of the state before this step, at the
//          steps where it is asked for: the sum must be N times the own
//   9      1: alarm, this rank saw a check fail in the step before
//   10     the sender's opcode
//   11     the sender's steps from this one to the target, 1..4095
//   12-14  the id of the sender's directive, 12 bits each, low first
//   15     1: this rank sends a directive; if several do, 10-14 are void
#ifndef LOCKSTEP_WORKER_RUNTIME_CONTROL_WORD_H_
#define LOCKSTEP_WORKER_RUNTIME_CONTROL_WORD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"

namespace lockstep::worker::runtime {

inline constexpr size_t kControlWords = 16;
// The limit at which N times a 12-bit piece, and N (N + 1), stay below 2^24.
inline constexpr int kMaxControlRanks = 4095;
inline constexpr int64_t kMaxDirectiveDistance = 4095;

using ControlWords = std::array<float, kControlWords>;

enum class DirectiveOp : uint8_t { kNone = 0, kCheckpoint = 1, kStop = 2 };

struct Directive {
  DirectiveOp op = DirectiveOp::kNone;
  // Given by the coordinator; the same id is the same request.
  uint32_t id = 0;
  // Takes effect once this step is committed.
  int64_t step = 0;

  bool operator==(const Directive&) const = default;
};

enum class CheckpointVote : uint8_t { kNone, kDurable, kGivenUp };

// The input of one rank in one step.
struct ControlInput {
  uint64_t generation = 0;
  int64_t step = 0;
  uint64_t cursor = 0;  // At the step's end, mixed to one number.
  uint64_t fingerprint = 0;
  bool nonfinite = false;
  bool drain = false;
  bool alarm = false;
  CheckpointVote vote = CheckpointVote::kNone;
  // Every rank gives it at the same steps.
  std::optional<uint64_t> state_hash;
  // A directive that this rank sends. 1 <= directive.step - step <=
  // kMaxDirectiveDistance.
  std::optional<Directive> directive;
};

// The content of the sum, for all ranks.
struct ControlOutput {
  bool nonfinite = false;
  bool drain = false;
  bool alarm = false;
  bool checkpoint_complete = false;
  bool checkpoint_given_up = false;
  std::optional<Directive> directive;
  // Several ranks sent a directive: try again some steps later.
  bool collision = false;
  // Names the ranks whose words differ from this rank's; OK: none. Reason
  // CONFIG_MISMATCH (generation, step, cursor, config) or DIVERGED (state
  // hash). At least one rank sees a difference, not always all.
  Status check;
};

// REQUIRES: 1 <= world_size <= kMaxControlRanks.
ControlWords EncodeControl(const ControlInput& input, int world_size);

// `own` is this rank's input, `sum` the result of the reduction. DataLoss: the
// sum cannot be one of control words (not whole, out of range, unknown opcode);
// all ranks get the same error.
StatusOr<ControlOutput> DecodeControl(const ControlInput& own,
                                      const ControlWords& sum, int world_size);

// One number for a position in the data: equal positions, equal numbers.
uint64_t MixCursor(uint64_t epoch, uint64_t position);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_CONTROL_WORD_H_
