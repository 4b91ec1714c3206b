// Every instruction set against float64 and, bit for bit, against plain C++.
#include "worker/collective/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace lockstep::worker::collective {
namespace {

constexpr DataType kTypes[] = {
    DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
    DataType::kBfloat16, DataType::kInt32,   DataType::kInt64,
    DataType::kUint8,    DataType::kInt8,    DataType::kInt16};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kMean, ReduceOp::kProduct};

std::vector<InstructionSet> Sets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set :
       {InstructionSet::kPlain, InstructionSet::kAvx2,
        InstructionSet::kAvx512}) {
    if (set <= BestInstructionSet()) sets.push_back(set);
  }
  return sets;
}

template <typename T>
T Read(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

double HalfToDouble(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) {
    return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

// Element `i` as a number.
double Value(DataType type, const unsigned char* data, size_t i) {
  const unsigned char* const at = data + i * SizeOf(type);
  switch (type) {
    case DataType::kFloat32:
      return Read<float>(at);
    case DataType::kFloat64:
      return Read<double>(at);
    case DataType::kFloat16:
      return HalfToDouble(Read<uint16_t>(at));
    case DataType::kBfloat16: {
      const uint32_t bits = static_cast<uint32_t>(Read<uint16_t>(at)) << 16;
      float value;
      std::memcpy(&value, &bits, 4);
      return value;
    }
    case DataType::kInt32:
      return Read<int32_t>(at);
    case DataType::kInt64:
      return static_cast<double>(Read<int64_t>(at));
    case DataType::kUint8:
      return *at;
    case DataType::kInt8:
      return Read<int8_t>(at);
    case DataType::kInt16:
      return Read<int16_t>(at);
  }
  return 0;
}

// Any bit patterns at all: NaN, infinities and denormals among them.
std::vector<unsigned char> RandomBytesOf(size_t bytes, int seed) {
  std::mt19937 random(seed);
  std::vector<unsigned char> data(bytes);
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
  return data;
}

// Sums of any number of these are exact in every type; of `factors`, which are
// seldom not 1, products are.
std::vector<unsigned char> SmallNumbers(DataType type, size_t count, int seed,
                                        bool factors = false) {
  std::mt19937 random(seed);
  std::vector<unsigned char> data(count * SizeOf(type));
  for (size_t i = 0; i < count; ++i) {
    int value =
        static_cast<int>(random() % 13) - (type == DataType::kUint8 ? 0 : 6);
    if (factors) {
      const bool negative = value == 5 && type != DataType::kUint8;
      value = value == 6 ? 2 : negative ? -1 : 1;
    }
    unsigned char* const at = data.data() + i * SizeOf(type);
    const auto put = [&](auto v) { std::memcpy(at, &v, sizeof(v)); };
    const float wide = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &wide, 4);
    switch (type) {
      case DataType::kFloat32:
        put(wide);
        break;
      case DataType::kFloat64:
        put(static_cast<double>(value));
        break;
      case DataType::kFloat16: {
        const uint16_t magnitude =
            value == 0
                ? 0
                : static_cast<uint16_t>(((bits >> 13) & 0x3ff) |
                                        ((((bits >> 23) & 0xff) - 112) << 10));
        put(static_cast<uint16_t>(magnitude | (value < 0 ? 0x8000 : 0)));
        break;
      }
      case DataType::kBfloat16:
        put(static_cast<uint16_t>(bits >> 16));
        break;
      case DataType::kInt32:
        put(static_cast<int32_t>(value));
        break;
      case DataType::kInt64:
        put(static_cast<int64_t>(value));
        break;
      case DataType::kUint8:
        put(static_cast<uint8_t>(value));
        break;
      case DataType::kInt8:
        put(static_cast<int8_t>(value));
        break;
      case DataType::kInt16:
        put(static_cast<int16_t>(value));
        break;
    }
  }
  return data;
}

using Inputs = std::vector<std::vector<unsigned char>>;

// `offset` bytes into fresh memory, into `outs` outputs of which the first are
// the inputs' own memory.
std::vector<unsigned char> Reduce(DataType type, ReduceOp op,
                                  InstructionSet set, const Inputs& inputs,
                                  size_t outputs, size_t offset) {
  const size_t bytes = inputs[0].size();
  Inputs copies;
  std::vector<const void*> ins;
  std::vector<void*> outs;
  for (const auto& input : inputs) {
    copies.emplace_back(bytes + offset + 1);
    if (bytes > 0) {
      std::memcpy(copies.back().data() + offset, input.data(), bytes);
    }
  }
  for (auto& copy : copies) {
    ins.push_back(copy.data() + offset);
    if (outs.size() < outputs) outs.push_back(copy.data() + offset);
    copy.back() = 0x5a;
  }
  ReduceAllFunctionFor(type, op, set)(outs.data(), outs.size(), ins.data(),
                                      ins.size(), bytes / SizeOf(type));
  const unsigned char* const first = static_cast<unsigned char*>(outs[0]);
  for (void* out : outs) {
    EXPECT_EQ(std::memcmp(out, first, bytes), 0);
  }
  for (const auto& copy : copies) EXPECT_EQ(copy.back(), 0x5a);
  return {first, first + bytes};
}

std::string Title(DataType type, ReduceOp op, InstructionSet set, size_t n) {
  return fmt::format("{} op {} {} of {}", Name(type), static_cast<int>(op),
                     Name(set), n);
}

TEST(ReduceTest, EqualsFloat64) {
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const InstructionSet set : Sets()) {
        const auto function = ReduceAllFunctionFor(type, op, set);
        if (op == ReduceOp::kMean && !IsFloat(type)) {
          EXPECT_EQ(function, nullptr);
          continue;
        }
        for (const size_t n : {1, 2, 4, 8}) {
          SCOPED_TRACE(Title(type, op, set, n));
          for (const size_t count : {0, 1, 7, 64, 1023, 1024, 1025, 3001}) {
            Inputs inputs;
            for (size_t k = 0; k < n; ++k) {
              inputs.push_back(SmallNumbers(type, count, 10 * k + 1,
                                            op == ReduceOp::kProduct));
            }
            const auto result = Reduce(type, op, set, inputs, n, 0);
            for (size_t i = 0; i < count; ++i) {
              double expected = Value(type, inputs[0].data(), i);
              for (size_t k = 1; k < n; ++k) {
                const double b = Value(type, inputs[k].data(), i);
                if (op == ReduceOp::kMin) {
                  expected = std::min(expected, b);
                } else if (op == ReduceOp::kMax) {
                  expected = std::max(expected, b);
                } else if (op == ReduceOp::kProduct) {
                  expected *= b;
                } else {
                  expected += b;
                }
              }
              if (op == ReduceOp::kMean) expected /= static_cast<double>(n);
              ASSERT_EQ(Value(type, result.data(), i), expected) << i;
            }
          }
        }
      }
    }
  }
}

TEST(ReduceTest, AllInstructionsGiveTheSameBits) {
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      if (op == ReduceOp::kMean && !IsFloat(type)) continue;
      for (const size_t n : {1, 2, 3, 4, 5}) {
        for (const size_t count : {1, 15, 1029, 40000}) {
          Inputs inputs;
          for (size_t k = 0; k < n; ++k) {
            inputs.push_back(RandomBytesOf(count * SizeOf(type), 100 + k));
          }
          const auto plain =
              Reduce(type, op, InstructionSet::kPlain, inputs, 1, 0);
          for (const InstructionSet set : Sets()) {
            SCOPED_TRACE(Title(type, op, set, n));
            for (const size_t outputs : {size_t{1}, (n + 1) / 2, n}) {
              for (const size_t shift : {0, 1, 3}) {
                ASSERT_EQ(Reduce(type, op, set, inputs, outputs,
                                 shift * SizeOf(type)),
                          plain);
              }
            }
          }
        }
      }
    }
  }
}

template <typename T>
T ReduceOne(DataType type, ReduceOp op, InstructionSet set,
            const std::vector<T>& values) {
  std::vector<const void*> ins;
  for (const T& value : values) ins.push_back(&value);
  T result{};
  void* out = &result;
  ReduceAllFunctionFor(type, op, set)(&out, 1, ins.data(), ins.size(), 1);
  return result;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
uint32_t ToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

TEST(ReduceTest, TheFirstNaNIsKept) {
  const float one = 1.0f;
  const float first = FromBits(0x7fc00123);
  const float second = FromBits(0xffc00456);
  const float signalling = FromBits(0x7f800001);
  for (const InstructionSet set : Sets()) {
    for (const ReduceOp op : kOps) {
      SCOPED_TRACE(Title(DataType::kFloat32, op, set, 3));
      const auto of = [&](float a, float b, float c) {
        return ToBits(ReduceOne<float>(DataType::kFloat32, op, set, {a, b, c}));
      };
      EXPECT_EQ(of(first, second, one), 0x7fc00123u);
      EXPECT_EQ(of(second, first, one), 0xffc00456u);
      EXPECT_EQ(of(one, second, first), 0xffc00456u);
      EXPECT_EQ(of(one, one, second), 0xffc00456u);
      EXPECT_TRUE(std::isnan(FromBits(of(one, signalling, one))));
    }
  }
}

TEST(ReduceTest, SixteenBitsAreRoundedOnceToNearestEven) {
  for (const InstructionSet set : Sets()) {
    SCOPED_TRACE(Name(set));
    const auto half = [&](std::vector<uint16_t> values) {
      return ReduceOne(DataType::kFloat16, ReduceOp::kSum, set, values);
    };
    const auto bfloat = [&](std::vector<uint16_t> values) {
      return ReduceOne(DataType::kBfloat16, ReduceOp::kSum, set, values);
    };
    // 2048 + 1 + 1: rounding at every hop would stay at 2048.
    EXPECT_EQ(half({0x6800, 0x3c00, 0x3c00}), 0x6801);
    // 2048 + 1 is a tie: to the even one; 2050 + 1 also, upwards.
    EXPECT_EQ(half({0x6800, 0x3c00}), 0x6800);
    EXPECT_EQ(half({0x6801, 0x3c00}), 0x6802);
    // 65504 + 65504: infinity. The smallest denormal twice.
    EXPECT_EQ(half({0x7bff, 0x7bff}), 0x7c00);
    EXPECT_EQ(half({0x0001, 0x0001}), 0x0002);
    EXPECT_EQ(half({0x03ff, 0x0001}), 0x0400);
    // 256 + 1 + 1 in bfloat16, whose step there is 2.
    EXPECT_EQ(bfloat({0x4380, 0x3f80, 0x3f80}), 0x4381);
    EXPECT_EQ(bfloat({0x4380, 0x3f80}), 0x4380);
    EXPECT_EQ(bfloat({0x7f7f, 0x7f7f}), 0x7f80);
    EXPECT_EQ(bfloat({0x0001, 0x0001}), 0x0002);
  }
}

// Every half there is comes back from float32 as it was; NaN become quiet.
TEST(ReduceTest, EveryHalfSurvives) {
  std::vector<unsigned char> all(2 * 65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(all.data() + 2 * i, &bits, 2);
  }
  for (const InstructionSet set : Sets()) {
    const auto result =
        Reduce(DataType::kFloat16, ReduceOp::kMax, set, {all, all}, 1, 0);
    for (uint32_t i = 0; i < 65536; ++i) {
      const bool nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff) != 0;
      ASSERT_EQ(Read<uint16_t>(result.data() + 2 * i), nan ? i | 0x200 : i)
          << Name(set);
    }
  }
}

TEST(ReduceTest, IntegersWrapAround) {
  for (const InstructionSet set : Sets()) {
    EXPECT_EQ(ReduceOne<int32_t>(DataType::kInt32, ReduceOp::kSum, set,
                                 {INT32_MAX, 1}),
              INT32_MIN);
    EXPECT_EQ(ReduceOne<int64_t>(DataType::kInt64, ReduceOp::kSum, set,
                                 {INT64_MAX, 1, 1}),
              INT64_MIN + 1);
    EXPECT_EQ(
        ReduceOne<uint8_t>(DataType::kUint8, ReduceOp::kSum, set, {200, 100}),
        44);
    EXPECT_EQ(ReduceOne<int8_t>(DataType::kInt8, ReduceOp::kSum, set, {127, 1}),
              -128);
    EXPECT_EQ(ReduceOne<int16_t>(DataType::kInt16, ReduceOp::kSum, set,
                                 {INT16_MAX, 2}),
              INT16_MIN + 1);
    EXPECT_EQ(ReduceOne<int32_t>(DataType::kInt32, ReduceOp::kProduct, set,
                                 {INT32_MAX, 2}),
              -2);
    EXPECT_EQ(ReduceOne<int64_t>(DataType::kInt64, ReduceOp::kProduct, set,
                                 {INT64_MAX, 3}),
              INT64_MAX - 2);
    EXPECT_EQ(ReduceOne<int16_t>(DataType::kInt16, ReduceOp::kProduct, set,
                                 {-300, 300}),
              static_cast<int16_t>(-90000));
    EXPECT_EQ(
        ReduceOne<int8_t>(DataType::kInt8, ReduceOp::kProduct, set, {-16, 9}),
        112);
    EXPECT_EQ(ReduceOne<uint8_t>(DataType::kUint8, ReduceOp::kProduct, set,
                                 {200, 100}),
              32);
  }
}

TEST(ReduceTest, TwoOperandFunctionsAreTheSame) {
  const float a[] = {1, 5, std::nanf("")};
  const float b[] = {2, 3, 1};
  float out[3];
  ReduceFunctionFor(DataType::kFloat32, ReduceOp::kMean)(out, a, b, 3);
  DivideForMean(DataType::kFloat32, out, 3, 2);
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], 4.0f);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_EQ(ReduceFunctionFor(DataType::kFloat16, ReduceOp::kSum), nullptr);
}

TEST(ReduceTest, TwoOperandFunctionsMayOverwriteEither) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
    for (const size_t count : {1, 7, 1003}) {
      std::vector<float> a(count);
      std::vector<float> b(count);
      for (size_t i = 0; i < count; ++i) {
        a[i] = static_cast<float>(i % 13) * 0.1f;
        b[i] = static_cast<float>(i % 7) * -0.3f;
      }
      b[count / 2] = std::nanf("");
      const ReduceFunction function = ReduceFunctionFor(DataType::kFloat32, op);
      std::vector<float> apart(count);
      function(apart.data(), a.data(), b.data(), count);
      std::vector<float> over_a = a;
      function(over_a.data(), over_a.data(), b.data(), count);
      std::vector<float> over_b = b;
      function(over_b.data(), a.data(), over_b.data(), count);
      EXPECT_EQ(std::memcmp(apart.data(), over_a.data(), count * 4), 0);
      EXPECT_EQ(std::memcmp(apart.data(), over_b.data(), count * 4), 0);
    }
  }
}

}  // namespace
}  // namespace lockstep::worker::collective
