// What other tests look at memory with: it must not miss anything.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "worker/collective/periodic_test_util.h"

namespace lockstep::worker::collective {
namespace {

constexpr size_t kTestPeriod = 7;

std::vector<uint16_t> Filled(size_t count) {
  std::vector<uint16_t> values(count + 1, 999);
  FillPeriodic(values.data(), 2, count, kTestPeriod,
               [&](size_t i) { values[i] = static_cast<uint16_t>(i); });
  return values;
}

size_t Wrong(const std::vector<uint16_t>& values, size_t first, size_t end) {
  return FirstWrong(values.data(), 2, first, end, kTestPeriod, [&](size_t i) {
    return values[i] % 100 == i % kTestPeriod;
  });
}

TEST(PeriodicTest, FillsAllAndNoMore) {
  for (size_t count = 0; count < 100; ++count) {
    const std::vector<uint16_t> values = Filled(count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], i % kTestPeriod);
    ASSERT_EQ(values[count], 999);
  }
}

TEST(PeriodicTest, FindsTheFirstWrongElementWhereverItIs) {
  for (size_t end = 0; end < 60; ++end) {
    for (size_t first = 0; first <= end; ++first) {
      std::vector<uint16_t> values = Filled(60);
      ASSERT_EQ(Wrong(values, first, end), end);
      // What lies outside does not matter.
      if (first > 0) values[first - 1] = 50;
      values[end] = 50;
      ASSERT_EQ(Wrong(values, first, end), end);
      for (size_t bad = end; bad-- > first;) {
        values[bad] = 50;
        ASSERT_EQ(Wrong(values, first, end), bad);
      }
    }
  }
}

TEST(PeriodicTest, OtherBitsMayBeRight) {
  std::vector<uint16_t> values = Filled(60);
  for (const size_t other : {3, 20, 27, 59}) values[other] += 100;
  EXPECT_EQ(Wrong(values, 0, 60), 60u);
  // Wrong in every period.
  for (size_t i = 4; i < 60; i += kTestPeriod) values[i] = 50;
  EXPECT_EQ(Wrong(values, 0, 60), 4u);
  EXPECT_EQ(Wrong(values, 5, 60), 11u);
}

}  // namespace
}  // namespace lockstep::worker::collective
