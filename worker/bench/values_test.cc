#include "worker/bench/values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::worker::bench {
namespace {

using collective::DataType;
using collective::ReduceOp;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat64,
                               DataType::kFloat16, DataType::kBfloat16,
                               DataType::kInt32,   DataType::kInt64,
                               DataType::kUint8};

TEST(ValuesTest, InputIsItself) {
  for (const DataType type : kTypes) {
    std::vector<char> data(10000 * SizeOf(type));
    FillInput(type, 3, 17, 10000, 1, data.data());
    EXPECT_EQ(CountDifferent(type, 3, 17, 10000, 1, data.data()), 0u)
        << Name(type);
    // The sum of one rank's input is that input.
    EXPECT_GT(CountDifferent(type, 2, 17, 10000, 1, data.data()), 5000u)
        << Name(type);
    EXPECT_GT(CountDifferent(type, 3, 18, 10000, 1, data.data()), 5000u)
        << Name(type);
    EXPECT_GT(CountDifferent(type, 3, 17, 10000, 2, data.data()), 5000u)
        << Name(type);
  }
}

TEST(ValuesTest, OneWrongElementIsFound) {
  constexpr size_t kCount = 5000;
  std::vector<float> sum(kCount);
  std::vector<float> other(kCount);
  FillInput(DataType::kFloat32, 0, 0, kCount, 1, sum.data());
  FillInput(DataType::kFloat32, 1, 0, kCount, 1, other.data());
  for (size_t i = 0; i < kCount; ++i) sum[i] += other[i];
  const auto wrong = [&] {
    return CountWrong(DataType::kFloat32, ReduceOp::kSum, 2, 0, kCount, 1,
                      sum.data());
  };
  EXPECT_EQ(wrong(), 0u);
  sum[4321] *= 1.00001f;
  EXPECT_EQ(wrong(), 1u);
  sum[7] = std::nanf("");
  EXPECT_EQ(wrong(), 2u);
}

TEST(ValuesTest, EveryOpIsKnown) {
  std::vector<int32_t> data(100);
  const auto fill = [&](auto op) {
    for (size_t i = 0; i < data.size(); ++i) {
      const double a = InputValue(DataType::kInt32, 0, i, 0);
      const double b = InputValue(DataType::kInt32, 1, i, 0);
      data[i] = static_cast<int32_t>(op(a, b));
    }
  };
  const auto wrong = [&](ReduceOp op) {
    return CountWrong(DataType::kInt32, op, 2, 0, data.size(), 0, data.data());
  };
  fill([](double a, double b) { return std::min(a, b); });
  EXPECT_EQ(wrong(ReduceOp::kMin), 0u);
  EXPECT_GT(wrong(ReduceOp::kMax), 0u);
  fill([](double a, double b) { return std::max(a, b); });
  EXPECT_EQ(wrong(ReduceOp::kMax), 0u);
  fill([](double a, double b) { return a + b; });
  EXPECT_EQ(wrong(ReduceOp::kSum), 0u);
  EXPECT_GT(wrong(ReduceOp::kMin), 0u);
}

TEST(ValuesTest, HalvesAreEncodedAsIeeeSays) {
  struct Encoded {
    double value;
    uint16_t half, brain;
  };
  for (const Encoded& want :
       {Encoded{1, 0x3c00, 0x3f80}, Encoded{3, 0x4200, 0x4040},
        Encoded{8, 0x4800, 0x4100}}) {
    size_t i = 0;
    while (InputValue(DataType::kFloat16, 0, i, 0) != want.value) ++i;
    uint16_t half = 0;
    FillInput(DataType::kFloat16, 0, i, 1, 0, &half);
    EXPECT_EQ(half, want.half);
    uint16_t brain = 0;
    FillInput(DataType::kBfloat16, 0, i, 1, 0, &brain);
    EXPECT_EQ(brain, want.brain);
  }
}

}  // namespace
}  // namespace lockstep::worker::bench
