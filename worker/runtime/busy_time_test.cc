#include "worker/runtime/busy_time.h"

#include <gtest/gtest.h>

namespace lockstep::worker::runtime {
namespace {

constexpr Duration kSecond = std::chrono::seconds(1);

MonoTime At(int seconds) { return MonoTime() + seconds * kSecond; }

TEST(BusyTimeTest, SpansThatOverlapCountOnce) {
  BusyTime busy;
  EXPECT_EQ(busy.Take(), Duration(0));
  busy.Add(At(1), At(3));
  busy.Add(At(2), At(5));
  busy.Add(At(2), At(4));
  busy.Add(At(8), At(9));
  EXPECT_EQ(busy.Take(), 5 * kSecond);
  EXPECT_EQ(busy.Take(), Duration(0));
  // What was taken is not counted again, either.
  busy.Add(At(8), At(11));
  EXPECT_EQ(busy.Take(), 2 * kSecond);
}

}  // namespace
}  // namespace lockstep::worker::runtime
