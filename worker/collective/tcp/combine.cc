#include "worker/collective/tcp/combine.h"

#include <bit>
#include <cstdint>

namespace lockstep::worker::collective::tcp {
namespace {

float FromHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t rest = half & 0x7fff;
  // The exponent and fraction in place, 112 below the float's exponent; the
  // product is exact, also for denormals.
  float value = std::bit_cast<float>(rest << 13) * 0x1p112f;
  if (rest >= 0x7c00) {
    value = std::bit_cast<float>(0x7f800000u | (rest & 0x3ff) << 13);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

uint16_t ToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t rest = bits & 0x7fffffff;
  uint32_t half = 0;
  if (rest > 0x7f800000) {
    half = 0x7e00 | ((rest >> 13) & 0x3ff);
  } else if (rest >= 0x477ff000) {
    half = 0x7c00;  // from halfway above the largest
  } else if (rest < 0x38800000) {
    // A denormal: adding 0.5 leaves it, rounded, in the lowest bits.
    half =
        std::bit_cast<uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000;
  } else {
    half = (rest + 0xfff + ((rest >> 13) & 1) - 0x38000000) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

float FromBfloat(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

uint16_t ToBfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t nan = (bits >> 16) | 0x40;
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan
                                                                : rounded);
}

}  // namespace

void Widen(DataType type, const void* from, float* to, size_t count) {
  const auto* in = static_cast<const uint16_t*>(from);
  if (type == DataType::kBfloat16) {
    for (size_t i = 0; i < count; ++i) to[i] = FromBfloat(in[i]);
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = FromHalf(in[i]);
  }
}

void Narrow(DataType type, const float* from, void* to, size_t count) {
  auto* out = static_cast<uint16_t*>(to);
  if (type == DataType::kBfloat16) {
    for (size_t i = 0; i < count; ++i) out[i] = ToBfloat(from[i]);
  } else {
    for (size_t i = 0; i < count; ++i) out[i] = ToHalf(from[i]);
  }
}

Combiner::Combiner(DataType type, ReduceOp op, int ranks)
    : type_(type),
      op_(op),
      ranks_(ranks),
      function_(ReduceFunctionFor(type, op)),
      all_(ReduceAllFunctionFor(type, op, BestInstructionSet())) {}

void Combiner::Combine(void* out, const void* a, const void* b, size_t count,
                       bool last) const {
  if (Is16Bit(type_)) {
    const void* const operands[2] = {a, b};
    CombineAll(out, operands, 2, count);
    return;
  }
  function_(out, a, b, count);
  if (last && op_ == ReduceOp::kMean) DivideForMean(type_, out, count, ranks_);
}

void Combiner::CombineAll(void* out, const void* const* operands,
                          size_t operand_count, size_t count) const {
  all_(&out, 1, operands, operand_count, count);
}

}  // namespace lockstep::worker::collective::tcp
