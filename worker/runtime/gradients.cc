#include "worker/runtime/gradients.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>

#include "worker/runtime/step_tail.h"

namespace lockstep::worker::runtime {
namespace {

constexpr uint32_t kExponent = 0x7f800000u;
// What lies in a core's first cache while it is looked at twice.
constexpr size_t kBlock = 2048;

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

uint32_t NotFinite(const float* values, size_t count) {
  // An exponent of all ones is NaN or infinite. No branch in the loop, so that
  // the compiler uses vectors.
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    bad |= static_cast<uint32_t>((Bits(values[i]) & kExponent) == kExponent);
  }
  return bad;
}

std::vector<uint32_t> LastFirst(size_t parameters) {
  std::vector<uint32_t> order(parameters);
  std::iota(order.rbegin(), order.rend(), 0u);
  return order;
}

Status CheckOrder(std::span<const uint32_t> order, size_t parameters) {
  std::vector<bool> seen(parameters);
  bool whole = order.size() == parameters;
  for (const uint32_t i : order) {
    whole = whole && i < parameters && !seen[i];
    if (whole) seen[i] = true;
  }
  if (whole) return OkStatus();
  return InvalidArgument(
      "the order of the gradients does not name each of {} parameters once",
      parameters);
}

}  // namespace

StatusOr<collective::BucketPlan> PlanGradients(
    const std::vector<Parameter>& parameters, const ReducerOptions& options,
    int world_size, const collective::BucketSizes& sizes) {
  const std::vector<uint32_t> order =
      options.order.empty() ? LastFirst(parameters.size()) : options.order;
  LOCKSTEP_RETURN_IF_ERROR(CheckOrder(order, parameters.size()));
  std::vector<collective::BucketParameter> ordered;
  for (const uint32_t i : order) {
    ordered.push_back({parameters[i].name, parameters[i].elements,
                       options.bf16_wire ? collective::DataType::kBfloat16
                                         : collective::DataType::kFloat32});
  }
  collective::BucketPlanOptions plan;
  plan.bucket_bytes = sizes.bucket;
  plan.first_bucket_bytes = sizes.first;
  plan.last_bucket_bytes = sizes.last;
  plan.control_words = TailWords(world_size);
  LOCKSTEP_ASSIGN_OR_RETURN(collective::BucketPlan made,
                            PlanBuckets(ordered, plan));
  for (collective::BucketLayout& bucket : made.buckets) {
    for (collective::BucketEntry& entry : bucket.entries) {
      entry.parameter = order[entry.parameter];
    }
  }
  return made;
}

std::string FormatOrder(std::span<const uint32_t> order) {
  std::string text;
  for (const uint32_t i : order) {
    if (!text.empty()) text += ',';
    text += std::to_string(i);
  }
  return text;
}

StatusOr<std::vector<uint32_t>> ParseOrder(std::string_view text) {
  std::vector<uint32_t> order;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at < end) {
    uint32_t i = 0;
    const auto [next, error] = std::from_chars(at, end, i);
    if (error != std::errc() || (next < end && *next != ',') ||
        next + 1 == end) {
      return DataLoss(
          "'{}' is not an order of gradients: use numbers from 0, separated by "
          "commas",
          text.substr(0, 100));
    }
    order.push_back(i);
    at = next < end ? next + 1 : end;
  }
  return order;
}

bool AllFinite(std::span<const float> values) {
  for (size_t i = 0; i < values.size(); i += kBlock) {
    if (NotFinite(values.data() + i, std::min(kBlock, values.size() - i)) !=
        0) {
      return false;
    }
  }
  return true;
}

bool CopyFinite(std::span<const float> from, std::span<float> to) {
  uint32_t bad = 0;
  for (size_t i = 0; i < from.size(); i += kBlock) {
    const size_t count = std::min(kBlock, from.size() - i);
    bad |= NotFinite(from.data() + i, count);
    std::memcpy(to.data() + i, from.data() + i, count * sizeof(float));
  }
  return bad == 0;
}

bool AddFinite(std::span<const float> from, std::span<float> to) {
  const float* __restrict in = from.data();
  float* __restrict out = to.data();
  uint32_t bad = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    const float sum = out[i] + in[i];
    bad |= static_cast<uint32_t>((Bits(sum) & kExponent) == kExponent);
    out[i] = sum;
  }
  return bad == 0;
}

void SumInOrder(std::span<const float* const> parts, std::span<float> sum) {
  std::array<float, kBlock> block;
  for (size_t begin = 0; begin < sum.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, sum.size() - begin);
    std::copy_n(parts[0] + begin, count, block.data());
    for (const float* const part : parts.subspan(1)) {
      for (size_t i = 0; i < count; ++i) block[i] += part[begin + i];
    }
    std::copy_n(block.data(), count, sum.data() + begin);
  }
}

bool RoundFinite(std::span<const float> from, std::span<uint16_t> to) {
  const float* __restrict in = from.data();
  uint16_t* __restrict out = to.data();
  uint32_t bad = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    const uint32_t bits = Bits(in[i]);
    const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    // A NaN stays one: rounding might carry it to zero. Signalling or not,
    // the quiet bit is set.
    const bool nan = (bits & 0x7fffffffu) > kExponent;
    const uint32_t kept = nan ? (bits | 0x400000u) : rounded;
    bad |= static_cast<uint32_t>((kept & kExponent) == kExponent);
    out[i] = static_cast<uint16_t>(kept >> 16);
  }
  return bad == 0;
}

double Bfloat16WireError(std::string_view backend) {
  // The sums of the hosts are rounded, too.
  const int roundings = backend == "hierarchical" ? 3 : 2;
  return roundings * std::ldexp(1.0, -8);
}

void Widen(std::span<const uint16_t> from, std::span<float> to) {
  const uint16_t* __restrict in = from.data();
  float* __restrict out = to.data();
  for (size_t i = 0; i < from.size(); ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(in[i]) << 16);
  }
}

double SumOfSquares(std::span<const float> values) {
  // Eight sums, so that the compiler uses vectors without changing the order.
  std::array<double, 8> sums{};
  size_t i = 0;
  for (; i + sums.size() <= values.size(); i += sums.size()) {
    for (size_t k = 0; k < sums.size(); ++k) {
      const double value = values[i + k];
      sums[k] += value * value;
    }
  }
  double sum = 0;
  for (; i < values.size(); ++i) sum += double{values[i]} * double{values[i]};
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace lockstep::worker::runtime
