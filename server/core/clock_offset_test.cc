#include "server/core/clock_offset.h"

#include <gtest/gtest.h>

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""h;

class ClockOffsetTest : public testing::Test {
 protected:
  // A message of a node whose clock is `behind`, `way` after it was sent.
  void Heard(Duration behind, Duration way) {
    now_.mono += 500ms;
    now_.wall += 500ms;
    offset_.Take(now_.wall - way - behind, now_);
  }

  Time now_{MonoTime(1h), WallTime(400'000h)};
  ClockOffset offset_;
};

TEST_F(ClockOffsetTest, NothingIsKnownAtFirst) {
  EXPECT_EQ(offset_.offset(), Duration{});
}

TEST_F(ClockOffsetTest, TheShortestWayCounts) {
  Heard(3s, 20ms);
  EXPECT_EQ(offset_.offset(), 3020ms);
  Heard(3s, 1ms);
  Heard(3s, 700ms);
  EXPECT_EQ(offset_.offset(), 3001ms);
}

TEST_F(ClockOffsetTest, AClockThatIsAhead) {
  Heard(-2s, 1ms);
  EXPECT_EQ(offset_.offset(), -1999ms);
}

TEST_F(ClockOffsetTest, AClockThatIsSetIsFollowed) {
  Heard(0s, 1ms);
  Heard(-60s, 1ms);
  EXPECT_EQ(offset_.offset(), -59999ms) << "ahead: at once";
  for (int i = 0; i < 60; ++i) Heard(60s, 1ms);
  EXPECT_EQ(offset_.offset(), -59999ms) << "back: still within the window";
  Heard(60s, 1ms);
  EXPECT_EQ(offset_.offset(), 60001ms);
}

TEST_F(ClockOffsetTest, TimesThatCannotBeAreNotTaken) {
  offset_.Take(WallTime::min(), now_);
  offset_.Take(WallTime::max(), now_);
  EXPECT_EQ(offset_.offset(), Duration{});
}

}  // namespace
}  // namespace lockstep::server
