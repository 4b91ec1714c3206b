#include "worker/runtime/control_word.h"

#include <cmath>
#include <string_view>

namespace lockstep::worker::runtime {
namespace {

constexpr uint32_t kPieceBits = 12;
constexpr uint32_t kPieceMask = (1u << kPieceBits) - 1;
// Above it FP32 does not hold every whole number.
constexpr float kExactLimit = 16777216.0f;

enum Word : size_t {
  kGeneration = 0,
  kStep = 1,
  kCursor = 2,
  kConfig = 3,
  kNotFinite = 4,
  kDrain = 5,
  kVote = 6,
  kHashLow = 7,
  kHashHigh = 8,
  kAlarm = 9,
  kOpcode = 10,
  kDistance = 11,
  kId = 12,  // and 13, 14
  kSpeaking = 15,
};

float Piece(uint64_t value, int index) {
  return static_cast<float>((value >> (kPieceBits * index)) & kPieceMask);
}

// The sum of `word` when every rank says what this rank says.
bool AllSay(const ControlWords& own, const ControlWords& sum, size_t word,
            int world_size) {
  return sum[word] == own[word] * static_cast<float>(world_size);
}

struct Check {
  Word word;
  std::string_view what;
  std::string_view reason;
};
constexpr Check kChecks[] = {
    {kGeneration, "generation", "CONFIG_MISMATCH"},
    {kStep, "step", "CONFIG_MISMATCH"},
    {kCursor, "data cursor", "CONFIG_MISMATCH"},
    {kConfig, "configuration", "CONFIG_MISMATCH"},
};

Status CheckWords(const ControlInput& input, const ControlWords& own,
                  const ControlWords& sum, int world_size) {
  for (const Check& check : kChecks) {
    if (AllSay(own, sum, check.word, world_size)) continue;
    return WithReason(
        FailedPrecondition("step {}: not all {} ranks are at the same {} "
                           "(own low bits {}, mean of all {})",
                           input.step, world_size, check.what, own[check.word],
                           sum[check.word] / world_size),
        check.reason);
  }
  if (!AllSay(own, sum, kHashLow, world_size) ||
      !AllSay(own, sum, kHashHigh, world_size)) {
    return WithReason(
        FailedPrecondition("the replicas differ: before step {} the state "
                           "hash of this rank is not that of all {} ranks",
                           input.step, world_size),
        "DIVERGED");
  }
  return OkStatus();
}

StatusOr<Directive> ReadDirective(const ControlInput& own,
                                  const ControlWords& sum) {
  const auto opcode = static_cast<uint32_t>(sum[kOpcode]);
  const auto distance = static_cast<int64_t>(sum[kDistance]);
  if ((opcode != static_cast<uint32_t>(DirectiveOp::kCheckpoint) &&
       opcode != static_cast<uint32_t>(DirectiveOp::kStop)) ||
      distance < 1 || distance > kMaxDirectiveDistance ||
      sum[kId] > kPieceMask || sum[kId + 1] > kPieceMask ||
      sum[kId + 2] > 0xff) {
    return DataLoss(
        "step {}: the speaker gave directive {} for {} steps ahead, which no "
        "rank knows",
        own.step, opcode, distance);
  }
  Directive directive;
  directive.op = static_cast<DirectiveOp>(opcode);
  directive.step = own.step + distance;
  for (int i = 0; i < 3; ++i) {
    directive.id |= static_cast<uint32_t>(sum[kId + i]) << (kPieceBits * i);
  }
  return directive;
}

}  // namespace

ControlWords EncodeControl(const ControlInput& input, int world_size) {
  ControlWords words{};
  words[kGeneration] = Piece(input.generation, 0);
  words[kStep] = Piece(static_cast<uint64_t>(input.step), 0);
  words[kCursor] = Piece(input.cursor, 0);
  words[kConfig] = Piece(input.fingerprint, 0);
  words[kNotFinite] = input.nonfinite ? 1 : 0;
  words[kDrain] = input.drain ? 1 : 0;
  words[kAlarm] = input.alarm ? 1 : 0;
  if (input.vote == CheckpointVote::kDurable) words[kVote] = 1;
  if (input.vote == CheckpointVote::kGivenUp) {
    words[kVote] = static_cast<float>(world_size + 1);
  }
  if (input.state_hash) {
    // All 64 bits have a say.
    const uint64_t folded = *input.state_hash ^ (*input.state_hash >> 24) ^
                            (*input.state_hash >> 48);
    words[kHashLow] = Piece(folded, 0);
    words[kHashHigh] = Piece(folded, 1);
  }
  if (input.directive) {
    words[kOpcode] = static_cast<float>(input.directive->op);
    words[kDistance] = static_cast<float>(input.directive->step - input.step);
    for (int i = 0; i < 3; ++i) {
      words[kId + i] = Piece(input.directive->id, i);
    }
    words[kSpeaking] = 1;
  }
  return words;
}

StatusOr<ControlOutput> DecodeControl(const ControlInput& own,
                                      const ControlWords& sum, int world_size) {
  for (size_t i = 0; i < sum.size(); ++i) {
    if (!(sum[i] >= 0 && sum[i] < kExactLimit) ||
        sum[i] != std::floor(sum[i])) {
      return DataLoss(
          "step {}: word {} of the control word came back as {}, which no sum "
          "of {} ranks can be",
          own.step, i, sum[i], world_size);
    }
  }
  ControlOutput output;
  const auto n = static_cast<float>(world_size);
  output.nonfinite = sum[kNotFinite] > 0;
  output.drain = sum[kDrain] > 0;
  output.alarm = sum[kAlarm] > 0;
  output.checkpoint_complete = sum[kVote] == n;
  output.checkpoint_given_up = sum[kVote] > n;
  output.collision = sum[kSpeaking] > 1;
  if (sum[kSpeaking] == 1) {
    LOCKSTEP_ASSIGN_OR_RETURN(output.directive, ReadDirective(own, sum));
  }
  output.check =
      CheckWords(own, EncodeControl(own, world_size), sum, world_size);
  return output;
}

uint64_t MixCursor(uint64_t epoch, uint64_t position) {
  // splitmix64's finaliser: each bit has a say in the low 12.
  uint64_t x = position + 0x9e3779b97f4a7c15ull * (epoch + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace lockstep::worker::runtime
