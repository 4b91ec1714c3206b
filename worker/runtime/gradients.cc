#include "worker/runtime/gradients.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "worker/runtime/step_tail.h"

namespace lockstep {

bool AllFinite(std::span<const float> values) {
  // An exponent of all ones is NaN or infinite. Blocks of a fixed size, so
  // that the compiler uses vectors.
  constexpr uint32_t kExponent = 0x7f800000u;
  constexpr size_t kBlock = 256;
  size_t i = 0;
  for (; i + kBlock <= values.size(); i += kBlock) {
    std::array<uint32_t, kBlock> bits;
    std::memcpy(bits.data(), values.data() + i, sizeof(bits));
    uint32_t bad = 0;
    for (const uint32_t word : bits) {
      bad |= static_cast<uint32_t>((word & kExponent) == kExponent);
    }
    if (bad != 0) return false;
  }
  for (; i < values.size(); ++i) {
    if ((std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent) {
      return false;
    }
  }
  return true;
}

StatusOr<BucketPlan> PlanGradients(const std::vector<Parameter>& parameters,
                                   size_t bucket_bytes, int world_size) {
  std::vector<BucketParameter> reversed;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    reversed.push_back({it->name, it->elements, DataType::kFloat32});
  }
  BucketPlanOptions options;
  options.bucket_bytes = bucket_bytes;
  options.first_bucket_bytes =
      std::min(options.first_bucket_bytes, bucket_bytes);
  options.control_words = TailWords(world_size);
  return PlanBuckets(reversed, options);
}

}  // namespace lockstep
