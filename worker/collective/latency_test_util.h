// Whether all ranks leave a collective within what is promised, over several
// tries: a machine that is busy with something else adds to some.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_LATENCY_TEST_UTIL_H_
#define LOCKSTEP_WORKER_COLLECTIVE_LATENCY_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "worker/collective/testing.h"

namespace lockstep::worker::collective {

// The times of several tries, each from the abort to the end of the last rank.
class LeavingTimes {
 public:
  static constexpr int kTries = 11;
  // This many of the tries must keep the promise.
  static constexpr int kWithin = 9;
  static constexpr Duration kPromised = std::chrono::milliseconds(50);
  static constexpr Duration kWorst = std::chrono::seconds(5);
  // A woken thread that starts later than this shows that the machine is too
  // busy to measure on.
  static constexpr Duration kBusy = std::chrono::milliseconds(10);

  void Add(Duration time) {
    times_.push_back(time);
    wakes_.push_back(WakeUpTime());
  }

  // Call it at the end of a test. No try may hang, however busy the machine is.
  // Tries during which a plain thread waited as well do not count; if too few
  // are left, the test is skipped.
  void Check() {
    ASSERT_EQ(times_.size(), static_cast<size_t>(kTries));
    std::vector<Duration> quiet;
    for (int i = 0; i < kTries; ++i) {
      if (wakes_[i] <= kBusy) quiet.push_back(times_[i]);
    }
    Report();
    EXPECT_LE(Milliseconds(*std::max_element(times_.begin(), times_.end())),
              Milliseconds(kWorst));
    if (quiet.size() < kWithin) {
      GTEST_SKIP() << "the machine is too busy: in " << kTries - quiet.size()
                   << " of " << kTries << " tries a plain thread took more "
                   << "than " << Milliseconds(kBusy) << " ms to wake up";
    }
    if (kSanitized) return;
    const auto late =
        std::count_if(quiet.begin(), quiet.end(),
                      [](Duration time) { return time > kPromised; });
    EXPECT_LE(late, kTries - kWithin)
        << "tries that took more than " << Milliseconds(kPromised) << " ms";
  }

 private:
  static double Milliseconds(Duration time) {
    using std::chrono::microseconds;
    return static_cast<double>(time / microseconds(1)) / 1e3;
  }
  static Duration MedianOf(std::vector<Duration> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  void Report() const {
    const Duration median = MedianOf(times_);
    const Duration worst = *std::max_element(times_.begin(), times_.end());
    const std::chrono::microseconds us(1);
    ::testing::Test::RecordProperty("median_us", static_cast<int>(median / us));
    ::testing::Test::RecordProperty("worst_us", static_cast<int>(worst / us));
    printf("median %.2f ms, worst %.2f ms; a plain wake-up %.2f ms\n",
           Milliseconds(median), Milliseconds(worst),
           Milliseconds(MedianOf(wakes_)));
  }

  std::vector<Duration> times_;
  std::vector<Duration> wakes_;
};

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_LATENCY_TEST_UTIL_H_
