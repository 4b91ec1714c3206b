#include "worker/runtime/busy_time.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

MonoTime At(int seconds) { return MonoTime() + std::chrono::seconds(seconds); }
constexpr Duration kSecond = std::chrono::seconds(1);

TEST(BusyTimeTest, IsFromTheFirstBeginToTheEnd) {
  BusyTime busy;
  busy.End(At(1));  // Nothing had begun.
  EXPECT_FALSE(busy.begun());
  EXPECT_EQ(busy.Take(), Duration(0));
  busy.Begin(At(2));
  busy.Begin(At(4));
  EXPECT_TRUE(busy.begun());
  busy.End(At(5));
  busy.Begin(At(8));
  busy.End(At(9));
  EXPECT_EQ(busy.Take(), 4 * kSecond);
  EXPECT_EQ(busy.Take(), Duration(0));
}

TEST(BusyTimeTest, SpansCountOnceWhereTheyOverlap) {
  BusyTime busy;
  busy.Add(At(1), At(3));
  busy.Add(At(2), At(5));
  busy.Add(At(2), At(4));
  busy.Add(At(8), At(9));
  EXPECT_EQ(busy.Take(), 5 * kSecond);
  // Those of the step before are over.
  busy.Add(At(8), At(11));
  EXPECT_EQ(busy.Take(), 2 * kSecond);
}

}  // namespace
}  // namespace lockstep
