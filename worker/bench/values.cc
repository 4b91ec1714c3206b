#include "worker/bench/values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

namespace lockstep::worker::bench {
namespace {

using collective::DataType;
using collective::ReduceOp;

constexpr size_t kPeriod = 4099;

uint64_t Mix(uint64_t x) {  // splitmix64's.
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The upper half of a float32.
struct Bfloat16 {
  // Of a value that has at most 8 significant bits.
  explicit Bfloat16(double value = 0)
      : bits(static_cast<uint16_t>(
            std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16)) {}
  operator double() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  uint16_t bits;
};

// Calls f with a value of the type.
template <typename F>
auto WithType(DataType type, const F& f) {
  switch (type) {
    case DataType::kFloat32:
      return f(float());
    case DataType::kFloat64:
      return f(double());
    case DataType::kFloat16:
      return f(_Float16());
    case DataType::kBfloat16:
      return f(Bfloat16());
    case DataType::kInt32:
      return f(int32_t());
    case DataType::kInt64:
      return f(int64_t());
    case DataType::kUint8:
      return f(uint8_t());
    case DataType::kInt8:
      return f(int8_t());
    case DataType::kInt16:
      break;
  }
  return f(int16_t());
}

double Decode(DataType type, const void* data, size_t i) {
  return WithType(type, [&](auto value) {
    std::memcpy(&value, static_cast<const char*>(data) + i * sizeof(value),
                sizeof(value));
    return static_cast<double>(value);
  });
}

void Encode(DataType type, double value, void* data, size_t i) {
  WithType(type, [&](auto stored) {
    stored = static_cast<decltype(stored)>(value);
    std::memcpy(static_cast<char*>(data) + i * sizeof(stored), &stored,
                sizeof(stored));
  });
}

// Half of the distance between 1 and the next number: what one rounding may
// cost, relative.
double RoundingOf(DataType type) {
  constexpr std::pair<DataType, int> kSignificantBits[] = {
      {DataType::kFloat32, 24},
      {DataType::kFloat64, 53},
      {DataType::kFloat16, 11},
      {DataType::kBfloat16, 8}};
  for (const auto& [of, bits] : kSignificantBits) {
    if (of == type) return std::ldexp(1, -bits);
  }
  return 0;
}

// As the type has it: integers wrap around, floats become infinite.
double Reduce(DataType type, ReduceOp op, const std::vector<double>& values) {
  if (op == ReduceOp::kMin) return *std::ranges::min_element(values);
  if (op == ReduceOp::kMax) return *std::ranges::max_element(values);
  const bool multiplies = op == ReduceOp::kProduct;
  double result = multiplies ? 1 : 0;
  uint64_t whole = multiplies ? 1 : 0;
  for (const double value : values) {
    const auto number = static_cast<uint64_t>(value);
    result = multiplies ? result * value : result + value;
    whole = multiplies ? whole * number : whole + number;
  }
  if (!IsFloat(type)) {
    return WithType(type, [&](auto kept) {
      return static_cast<double>(static_cast<decltype(kept)>(whole));
    });
  }
  if (op == ReduceOp::kMean) result /= static_cast<double>(values.size());
  const double most = type == DataType::kFloat16   ? 65520
                      : type == DataType::kFloat64 ? HUGE_VAL
                                                   : 0x1p128;
  return result >= most ? HUGE_VAL : result;
}

// expected(i) for i < kPeriod.
std::vector<double> Expected(DataType type, ReduceOp op, int ranks, int round) {
  std::vector<double> expected(kPeriod);
  std::vector<double> values(ranks);
  for (size_t i = 0; i < kPeriod; ++i) {
    for (int rank = 0; rank < ranks; ++rank) {
      values[rank] = InputValue(type, rank, i, round);
    }
    expected[i] = Reduce(type, op, values);
  }
  return expected;
}

uint64_t Compare(DataType type, const std::vector<double>& expected,
                 double tolerance, size_t first, size_t count,
                 const void* data) {
  uint64_t wrong = 0;
  size_t at = first % kPeriod;
  for (size_t i = 0; i < count; ++i) {
    const double want = expected[at];
    const double got = Decode(type, data, i);
    at = at + 1 < kPeriod ? at + 1 : 0;
    // NaN is wrong, too.
    const double distance = std::abs(got - want);
    const bool near =
        std::isfinite(distance) && distance <= tolerance * std::abs(want);
    if (got != want && !near) ++wrong;
  }
  return wrong;
}

}  // namespace

double InputValue(DataType type, int rank, size_t i, int round) {
  const uint64_t random =
      Mix((static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(round)) *
              kPeriod +
          i % kPeriod);
  const auto whole = static_cast<double>(1 + (random & 7));
  if (type == DataType::kFloat32) {
    // Of 24 bits, so that it is a float32.
    return whole + static_cast<double>(random >> 44) * std::ldexp(1, -20);
  }
  if (type == DataType::kFloat64) {
    return whole + static_cast<double>(random >> 15) * std::ldexp(1, -49);
  }
  return whole;
}

void FillInput(DataType type, int rank, size_t first, size_t count, int round,
               void* data) {
  const size_t size = SizeOf(type);
  char* const out = static_cast<char*>(data);
  const size_t period = std::min(count, kPeriod);
  for (size_t i = 0; i < period; ++i) {
    Encode(type, InputValue(type, rank, first + i, round), out, i);
  }
  for (size_t done = period; done < count;) {
    // What lies before is whole periods.
    const size_t n = std::min(done, count - done);
    std::memcpy(out + done * size, out, n * size);
    done += n;
  }
}

uint64_t CountWrong(DataType type, ReduceOp op, int ranks, size_t first,
                    size_t count, int round, const void* data) {
  const bool exact = op == ReduceOp::kMin || op == ReduceOp::kMax;
  // One rounding for each operand, two for a mean that multiplies by 1 / ranks;
  // in float64 what it is compared with rounds, too.
  const double roundings = (ranks + 2) * (type == DataType::kFloat64 ? 2 : 1);
  const double tolerance = exact ? 0 : roundings * RoundingOf(type);
  return Compare(type, Expected(type, op, ranks, round), tolerance, first,
                 count, data);
}

uint64_t CountDifferent(DataType type, int rank, size_t first, size_t count,
                        int round, const void* data) {
  std::vector<double> expected(kPeriod);
  for (size_t i = 0; i < kPeriod; ++i) {
    expected[i] = InputValue(type, rank, i, round);
  }
  return Compare(type, expected, 0, first, count, data);
}

}  // namespace lockstep::worker::bench
