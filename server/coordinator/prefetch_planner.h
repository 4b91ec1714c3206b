// What nodes fetch ahead for the jobs that wait.
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_PREFETCH_PLANNER_H_
#define LOCKSTEP_SERVER_COORDINATOR_PREFETCH_PLANNER_H_

#include <map>
#include <vector>

#include "common/base/clock.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/queue_scheduler.h"
#include "server/core/images.h"

namespace lockstep {

class PrefetchPlanner {
 public:
  // All outlive it.
  struct Parts {
    const PrefetchOptions* options;
    const StoreIdentity* identity;
    ClusterState* state;
    const QueueScheduler* scheduler;
  };
  explicit PrefetchPlanner(const Parts& parts) : parts_(parts) {}

  // All that a connected node says of what it was told to fetch.
  void TakeReport(const NodeName& node, std::vector<Prefetched> items);
  // Adds the waiting jobs to `changed` that learn from these reports. Jobs that
  // are in `changed` already are left out.
  void Apply(Time now, std::map<JobName, Job>* changed) const;
  // Sends each node its list if it has changed.
  void Send();

 private:
  // The front of the queue, without jobs in `changed`.
  std::vector<const Job*> JobsAhead(
      const std::map<JobName, Job>& changed) const;

  const Parts parts_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_PREFETCH_PLANNER_H_
