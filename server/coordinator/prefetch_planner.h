// Plans which images and packages nodes fetch for queued jobs.
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_PREFETCH_PLANNER_H_
#define LOCKSTEP_SERVER_COORDINATOR_PREFETCH_PLANNER_H_

#include <map>
#include <vector>

#include "common/base/clock.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/queue_scheduler.h"
#include "server/core/images.h"

namespace lockstep::server {

class PrefetchPlanner {
 public:
  // All outlive this object.
  struct Parts {
    const PrefetchOptions* options;
    const StoreIdentity* identity;
    ClusterState* state;
    const QueueScheduler* scheduler;
  };
  explicit PrefetchPlanner(const Parts& parts) : parts_(parts) {}

  // Takes a connected node's complete report about its prefetch list.
  void TakeReport(const NodeName& node, std::vector<Prefetched> items);
  // Adds the queued jobs that these reports affect to `changed`, except those
  // already in it.
  void Apply(Time now, std::map<JobName, Job>* changed) const;
  // Sends each node its list if it changed.
  void Send();

 private:
  // Returns the front of the queue without jobs in `changed`.
  std::vector<const Job*> JobsAhead(
      const std::map<JobName, Job>& changed) const;

  const Parts parts_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_PREFETCH_PLANNER_H_
