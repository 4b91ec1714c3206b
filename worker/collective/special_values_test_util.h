// NaN, infinities, denormals and numbers whose sum is rounded, of each
// floating-point type, and what float64 says that reducing them gives. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SPECIAL_VALUES_TEST_UTIL_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SPECIAL_VALUES_TEST_UTIL_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

inline double Combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
  }
  return 0;
}

// A floating-point type: its bits, those of its significand, and the exponent
// of its least denormal.
struct Format {
  DataType type;
  int bits;
  int precision;
  int least;

  size_t bytes() const { return static_cast<size_t>(bits) / 8; }
  double tiny() const { return std::ldexp(1.0, least); }
  double normal() const { return std::ldexp(1.0, least + precision - 1); }
  double largest() const { return Decode(Infinity() - 1); }
  uint64_t Infinity() const { return Bit(bits - 1) - Bit(precision - 1); }
  double Round(double value) const { return Decode(Encode(value)); }

  // To nearest even.
  uint64_t Encode(double value) const {
    const uint64_t sign = std::signbit(value) ? Bit(bits - 1) : 0;
    if (std::isnan(value)) return sign | Infinity() | Bit(precision - 2);
    if (std::isinf(value)) return sign | Infinity();
    if (value == 0) return sign;
    int exponent = 0;
    std::frexp(value, &exponent);
    const int last = std::max(exponent - precision, least);
    const double steps = std::nearbyint(std::ldexp(std::abs(value), -last));
    const uint64_t magnitude =
        static_cast<uint64_t>(steps) +
        static_cast<uint64_t>(last - least) * Bit(precision - 1);
    return sign | std::min(magnitude, Infinity());
  }
  double Decode(uint64_t code) const {
    const uint64_t magnitude = code & (Bit(bits - 1) - 1);
    const double sign = code == magnitude ? 1 : -1;
    if (magnitude > Infinity()) return std::nan("");
    if (magnitude == Infinity()) return sign * HUGE_VAL;
    const uint64_t one = Bit(precision - 1);
    const int exponent = static_cast<int>(magnitude / one);
    const uint64_t steps = magnitude % one + (exponent == 0 ? 0 : one);
    return sign * std::ldexp(static_cast<double>(steps),
                             least + std::max(exponent, 1) - 1);
  }

 private:
  static uint64_t Bit(int i) { return uint64_t{1} << i; }
};
inline constexpr Format kFormats[] = {{DataType::kFloat32, 32, 24, -149},
                                      {DataType::kFloat64, 64, 53, -1074},
                                      {DataType::kFloat16, 16, 11, -24},
                                      {DataType::kBfloat16, 16, 8, -133}};

// The value of each rank, from who = 0. No order of the ranks changes the
// result.
using Row = double (*)(const Format& f, int who);
inline constexpr Row kRows[] = {
    [](const Format&, int who) { return who == 0 ? std::nan("") : 1.0; },
    [](const Format&, int who) { return who == 0 ? std::nan("") : HUGE_VAL; },
    [](const Format&, int who) { return who == 0 ? HUGE_VAL : -1.0; },
    [](const Format&, int who) { return who == 0 ? -HUGE_VAL : 1.0; },
    [](const Format&, int who) {
      return who == 0 ? HUGE_VAL : who == 1 ? -HUGE_VAL : 1.0;
    },
    // Beyond all that is finite, and back before it.
    [](const Format& f, int) { return f.largest(); },
    [](const Format& f, int) { return -f.largest(); },
    [](const Format& f, int who) {
      return who == 0 ? f.largest() : who == 1 ? -f.largest() : 0.0;
    },
    // Denormals, which become others, normal, or nothing.
    [](const Format& f, int who) { return (who + 1) * f.tiny(); },
    [](const Format& f, int who) {
      return (who % 2 == 0 ? 1 : -1) * (who + 1) * f.tiny();
    },
    [](const Format& f, int who) { return who == 0 ? f.normal() : -f.tiny(); },
    [](const Format& f, int) { return f.normal() / 2; },
    [](const Format& f, int who) { return who == 0 ? 1.0 : f.tiny(); },
};
// After them, numbers whose sum is rounded; in float32 those of 16 bits are
// exact.
inline constexpr int kRough = 41;

// Each row with each rank as the first one.
inline std::vector<double> SpecialInput(const Format& f, int rank, int n) {
  std::vector<double> values;
  for (const Row row : kRows) {
    for (int first = 0; first < n; ++first) {
      values.push_back(row(f, (rank - first + n) % n));
    }
  }
  std::mt19937 random(rank);
  std::uniform_real_distribution<double> uniform(1, 2);
  for (int i = 0; i < kRough; ++i) {
    const double size = f.Round(uniform(random));
    const int exponent = static_cast<int>(random() % 10) - 4;
    values.push_back(std::ldexp(random() % 2 == 0 ? size : -size, exponent));
  }
  return values;
}

// In float64; NaN where any is.
inline double Reduced(ReduceOp op, const std::vector<double>& operands) {
  double result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    const bool nan = std::isnan(result) || std::isnan(operands[i]);
    result = nan ? std::nan("") : Combine(op, result, operands[i]);
  }
  return result;
}

struct Wanted {
  double value;
  double tolerance;
};
// The result of element `i`. 16-bit floats are rounded once; over a hierarchy
// once in each host, and once more. Larger ones may be at every rank.
inline Wanted WantedAt(const Format& f, ReduceOp op, std::string_view backend,
                       const std::vector<std::vector<double>>& inputs,
                       size_t i) {
  std::vector<double> operands;
  double sum_of_sizes = 0;
  for (const auto& input : inputs) {
    operands.push_back(input[i]);
    sum_of_sizes += std::abs(input[i]);
  }
  const bool rough = i >= inputs[0].size() - kRough;
  const double tolerance =
      rough && f.bits > 16 && op == ReduceOp::kSum
          ? std::ldexp(sum_of_sizes, -f.precision) * operands.size()
          : 0;
  if (backend == "hierarchical" && f.bits == 16) {
    const auto middle = operands.begin() + (operands.size() + 1) / 2;
    operands = {f.Round(Reduced(op, {operands.begin(), middle})),
                f.Round(Reduced(op, {middle, operands.end()}))};
  }
  return {f.Round(Reduced(op, operands)), tolerance};
}

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SPECIAL_VALUES_TEST_UTIL_H_
