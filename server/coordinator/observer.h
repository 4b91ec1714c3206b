// What happens inside the coordinator, for metrics: what only the moment
// tells. Everything else is read from a CoordinatorView.
#ifndef LOCKSTEP_SERVER_COORDINATOR_OBSERVER_H_
#define LOCKSTEP_SERVER_COORDINATOR_OBSERVER_H_

#include <string>

#include "common/base/clock.h"
#include "server/core/scheduler.h"

namespace lockstep {

// Called with the coordinator's lock held: be quick, never block, and do not
// call the coordinator.
class CoordinatorObserver {
 public:
  virtual ~CoordinatorObserver() = default;
  // A change that is stored. `before` is null for a job that is new, or was
  // read from the store.
  virtual void OnJob(const Job* before, const Job& after, Time now) = 0;
  virtual void OnCommit(Duration took, bool ok) = 0;
  // Node of `pool` says how long the answer to a heartbeat took.
  virtual void OnRoundTrip(const std::string& /*pool*/, Duration /*took*/) {}
  // The queue was looked at.
  virtual void OnSchedule(Duration took, const ScheduleResult& result) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_OBSERVER_H_
