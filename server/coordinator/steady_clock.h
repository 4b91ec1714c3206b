// The coordinator's wall clock: it goes on when the date of the machine is set.
//
// Records carry wall times because they outlive the process: deadlines of
// drains, limits of jobs, the age of what is deleted. A machine whose date is
// set an hour or a year ahead must not reach them all at once. So the wall time
// is read from the machine once, at the start, and goes on with the monotonic
// clock, which is never set. A difference to the machine's date is made up for
// by going at most a hundredth faster or slower: an hour takes four days, and
// no duration is ever wrong by more than that hundredth. NTP's own slewing
// moves both clocks, so there is a difference only after a step (or a sleep of
// the machine, which the monotonic clock does not count).
//
// A restart takes the machine's date as it is.
#ifndef LOCKSTEP_SERVER_COORDINATOR_STEADY_CLOCK_H_
#define LOCKSTEP_SERVER_COORDINATOR_STEADY_CLOCK_H_

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace lockstep {

// What is shown at `now`, after `shown` was; neither goes back. Pure.
Time SteadyTime(const Time& shown, const Time& now);

// Safe from any thread. Two readings never go back.
class SteadyClock final : public Clock {
 public:
  // `machine` outlives it; read at once.
  explicit SteadyClock(const Clock* machine)
      : machine_(machine), shown_(machine->Now()) {}

  // Says in the log when it begins to differ from the machine's by a minute,
  // and when it does no longer.
  Time Now() const override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const Clock* const machine_;
  mutable Mutex mu_;
  mutable Time shown_ ABSL_GUARDED_BY(mu_);
  mutable bool differs_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_STEADY_CLOCK_H_
