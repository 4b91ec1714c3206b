// What becomes of a round that others disturbed.
#ifndef LOCKSTEP_TESTS_BENCH_BUSY_ROUNDS_H_
#define LOCKSTEP_TESTS_BENCH_BUSY_ROUNDS_H_

#include "tests/bench/machine_load.h"

namespace lockstep {

enum class OnBusy {
  kRepeat,          // as often as there are rounds, then give up
  kRepeatThenTake,  // half as often, then take them as they are
  kTake,
};

// Pure.
class BusyRounds {
 public:
  BusyRounds(OnBusy on_busy, int rounds) : on_busy_(on_busy), rounds_(rounds) {}

  enum class Next { kKeep, kRepeat, kGiveUp };
  // Of the round with these shares of the machine; `dropped`: it counts for
  // nothing, and is kept in any case.
  Next Judge(const CpuShares& shares, bool dropped);
  // The rounds begin anew.
  void Restart() { kept_busy_ = 0; }

  int repeated() const { return repeated_; }
  int kept_busy() const { return kept_busy_; }

 private:
  const OnBusy on_busy_;
  const int rounds_;
  int repeated_ = 0;
  int kept_busy_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_BUSY_ROUNDS_H_
