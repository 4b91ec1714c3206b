#include "common/rpc/timers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

TEST(TimersTest, CallsInTheOrderOfTheirTimesAndNotWhatWasDropped) {
  Mutex mu;
  CondVar changed;
  std::string calls;
  Timers timers;
  const MonoTime now = MonotonicNow();
  const auto add = [&](MonoTime time, char name) {
    return timers.Set(time, [&, name] {
      MutexLock lock(&mu);
      calls += name;
      changed.NotifyAll();
    });
  };
  add(now + 1h, 'z');
  add(now + 60ms, 'c');
  timers.Drop(add(now + 40ms, 'x'));
  add(now + 20ms, 'b');
  add(now - 1s, 'a');
  MutexLock lock(&mu);
  const MonoTime deadline = now + 60s;
  while (calls.size() < 3 && changed.WaitUntil(&mu, deadline)) {
  }
  EXPECT_EQ(calls, "abc");
}

}  // namespace
}  // namespace lockstep
