#include "worker/bench/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lockstep {
namespace {

constexpr size_t kPeriod = 4099;

uint64_t Mix(uint64_t x) {  // splitmix64's.
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// For values with at most 8 significant bits that are normal in the type.
uint16_t ToBfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

uint16_t ToFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t exponent = (bits >> 23 & 0xff) - 112;
  return static_cast<uint16_t>(sign | exponent << 10 | (bits >> 13 & 0x3ff));
}

double FromBfloat16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

double FromFloat16(uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const int mantissa = half & 0x3ff;
  double value = 0;
  if (exponent == 0x1f) {
    value = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(mantissa + 1024, exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

template <typename T>
T Get(const void* data, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * sizeof(T),
              sizeof(T));
  return value;
}

double Decode(DataType type, const void* data, size_t i) {
  switch (type) {
    case DataType::kFloat32:
      return Get<float>(data, i);
    case DataType::kFloat64:
      return Get<double>(data, i);
    case DataType::kFloat16:
      return FromFloat16(Get<uint16_t>(data, i));
    case DataType::kBfloat16:
      return FromBfloat16(Get<uint16_t>(data, i));
    case DataType::kInt32:
      return Get<int32_t>(data, i);
    case DataType::kInt64:
      return static_cast<double>(Get<int64_t>(data, i));
    case DataType::kUint8:
      return Get<uint8_t>(data, i);
  }
  return 0;
}

template <typename T>
void Put(void* data, size_t i, T value) {
  std::memcpy(static_cast<char*>(data) + i * sizeof(T), &value, sizeof(T));
}

void Encode(DataType type, double value, void* data, size_t i) {
  const auto single = static_cast<float>(value);
  switch (type) {
    case DataType::kFloat32:
      return Put(data, i, single);
    case DataType::kFloat64:
      return Put(data, i, value);
    case DataType::kFloat16:
      return Put(data, i, ToFloat16(single));
    case DataType::kBfloat16:
      return Put(data, i, ToBfloat16(single));
    case DataType::kInt32:
      return Put(data, i, static_cast<int32_t>(value));
    case DataType::kInt64:
      return Put(data, i, static_cast<int64_t>(value));
    case DataType::kUint8:
      return Put(data, i, static_cast<uint8_t>(value));
  }
}

// Half of the distance between 1 and the next number: what one rounding may
// cost, relative.
double RoundingOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return std::ldexp(1, -24);
    case DataType::kFloat64:
      return std::ldexp(1, -53);
    case DataType::kFloat16:
      return std::ldexp(1, -11);
    case DataType::kBfloat16:
      return std::ldexp(1, -8);
    default:
      return 0;
  }
}

double Reduce(ReduceOp op, const std::vector<double>& values) {
  double result = values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMean:
        result += values[i];
        break;
      case ReduceOp::kMin:
        result = std::min(result, values[i]);
        break;
      case ReduceOp::kMax:
        result = std::max(result, values[i]);
        break;
    }
  }
  if (op == ReduceOp::kMean) result /= static_cast<double>(values.size());
  return result;
}

// expected(i) for i < kPeriod.
std::vector<double> Expected(DataType type, ReduceOp op, int ranks, int round) {
  std::vector<double> expected(kPeriod);
  std::vector<double> values(ranks);
  for (size_t i = 0; i < kPeriod; ++i) {
    for (int rank = 0; rank < ranks; ++rank) {
      values[rank] = InputValue(type, rank, i, round);
    }
    expected[i] = Reduce(op, values);
    // Sums of bytes wrap around.
    if (type == DataType::kUint8) expected[i] = std::fmod(expected[i], 256);
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
    if (!(std::abs(got - want) <= tolerance * std::abs(want))) ++wrong;
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

}  // namespace lockstep
