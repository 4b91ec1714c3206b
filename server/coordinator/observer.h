// Events inside the coordinator that metrics can see only as they happen.
// Everything else is read from a CoordinatorView.
#ifndef LOCKSTEP_SERVER_COORDINATOR_OBSERVER_H_
#define LOCKSTEP_SERVER_COORDINATOR_OBSERVER_H_

#include <string>

#include "common/base/clock.h"
#include "server/core/scheduler.h"

namespace lockstep::server {

// Called with the coordinator's lock held, so it must be quick, must not block
// and must not call the coordinator.
class CoordinatorObserver {
 public:
  virtual ~CoordinatorObserver() = default;
  // A change was stored. `before` is null for a new job and for one read from
  // the store.
  virtual void OnJob(const Job* before, const Job& after, Time now) = 0;
  virtual void OnCommit(Duration took, bool ok) = 0;
  // A node of `pool` reported the round trip time of a heartbeat.
  virtual void OnRoundTrip(const std::string& /*pool*/, Duration /*took*/) {}
  // The scheduler ran over the queue.
  virtual void OnSchedule(Duration took, const ScheduleResult& result) = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_OBSERVER_H_
