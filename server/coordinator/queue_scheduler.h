// Places the jobs of the queue on the nodes.
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_QUEUE_SCHEDULER_H_
#define LOCKSTEP_SERVER_COORDINATOR_QUEUE_SCHEDULER_H_

#include <map>
#include <vector>

#include "common/base/clock.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/host_faults.h"
#include "server/coordinator/options.h"
#include "server/core/scheduler.h"

namespace lockstep {

class QueueScheduler {
 public:
  // All outlive it.
  struct Parts {
    const CoordinatorOptions* options;
    const Clock* clock;
    ClusterState* state;
    const HostFaults* faults;
    const HistoryGuard* guard;
  };
  explicit QueueScheduler(const Parts& parts) : parts_(parts) {}

  // The nodes as the scheduler sees them.
  std::vector<HostCapacity> Hosts() const;
  // Whether the job must not be placed yet. A job that a node had no room for
  // is tried again earlier where room was made since.
  bool BacksOff(const JobEntry& entry, Time now) const;
  // Adds the queued jobs that get a place to `changed`, and tells the others
  // why they wait. Jobs that are in `changed` already are left out.
  void Schedule(Time now, std::map<JobName, Job>* changed);

 private:
  // The queue in its order, without jobs that wait for something unknown of
  // their own.
  std::vector<QueuedJob> Queue(Time now, const std::map<JobName, Job>& changed);

  const Parts parts_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_QUEUE_SCHEDULER_H_
