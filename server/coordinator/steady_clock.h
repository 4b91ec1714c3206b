// The coordinator's wall clock, which does not jump when the machine's date is
// set.
//
// Records carry wall times because they outlive the process: deadlines of
// drains, limits of jobs, ages for deletion. Setting the machine's date an hour
// or a year ahead must not expire them all at once. So the wall time is read
// from the machine once, at the start, and then advances with the monotonic
// clock. A difference to the machine's date is corrected by running at most a
// hundredth faster or slower: an hour takes four days, and no duration is wrong
// by more than a hundredth. NTP's slewing moves both clocks, so a difference
// arises only from a step (or a sleep of the machine, which the monotonic clock
// does not count).
//
// A restart reads the machine's date again.
#ifndef LOCKSTEP_SERVER_COORDINATOR_STEADY_CLOCK_H_
#define LOCKSTEP_SERVER_COORDINATOR_STEADY_CLOCK_H_

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace lockstep::server {

// Returns the time to show at `now` after `shown`. Neither clock goes back.
// Pure.
Time SteadyTime(const Time& shown, const Time& now);

// Safe from any thread. Readings never go back.
class SteadyClock final : public Clock {
 public:
  // `machine` outlives this object and is read at once.
  explicit SteadyClock(const Clock* machine)
      : machine_(machine), shown_(machine->Now()) {}

  // Logs when its difference to the machine's clock first reaches a minute, and
  // when it no longer does.
  Time Now() const override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const Clock* const machine_;
  mutable Mutex mu_;
  mutable Time shown_ ABSL_GUARDED_BY(mu_);
  mutable bool differs_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_STEADY_CLOCK_H_
