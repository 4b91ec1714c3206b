// Whether the first two processors share a cache just now.
//
// A hypervisor may move one of a guest's processors to cores that have a cache
// of their own, and back, many times a minute; nothing in the guest tells. What
// one processor writes and the other reads then takes several times as long, on
// either side of a comparison: rounds would say where they fell, not what runs.
#ifndef LOCKSTEP_TESTS_BENCH_CORE_DISTANCE_H_
#define LOCKSTEP_TESTS_BENCH_CORE_DISTANCE_H_

#include <chrono>
#include <functional>
#include <utility>

#include "common/base/clock.h"

namespace lockstep {

// One processor writes pieces that the other reads: the time to write them
// through the caches over that past them, which stays as it is. Takes some
// 5 ms. 0: there is one processor, or no such way to write.
double SharedWriteRatio();

// By that ratio. Pure.
bool AreApart(double ratio);

class CoreDistance {
 public:
  CoreDistance() : CoreDistance([] { return AreApart(SharedWriteRatio()); }) {}
  // `apart`: whether they are.
  explicit CoreDistance(std::function<bool()> apart,
                        Duration patience = std::chrono::seconds(5))
      : apart_(std::move(apart)), patience_(patience) {}

  // Waits until they share one, 5 s at most. Where that never comes, the
  // machine is so: from then on nothing waits, and all runs count.
  void WaitUntilNear();
  // Whether they have parted since, so that what ran meanwhile is to be done
  // again; at most `kMostAgain` times one after the other.
  bool HaveParted();
  static constexpr int kMostAgain = 5;

  // Times that HaveParted said so.
  int parted() const { return parted_; }
  // Times that it did not, for there had been enough.
  int kept() const { return kept_; }
  bool always_apart() const { return always_apart_; }

 private:
  const std::function<bool()> apart_;
  const Duration patience_;
  bool always_apart_ = false;
  int parted_ = 0;
  int kept_ = 0;
  int in_a_row_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_CORE_DISTANCE_H_
