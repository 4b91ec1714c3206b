// Places queued jobs on nodes. Thread-compatible; guarded by the coordinator's
// lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_QUEUE_SCHEDULER_H_
#define LOCKSTEP_SERVER_COORDINATOR_QUEUE_SCHEDULER_H_

#include <map>
#include <set>
#include <vector>

#include "common/base/clock.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/host_faults.h"
#include "server/coordinator/options.h"
#include "server/core/scheduler.h"

namespace lockstep::server {

class QueueScheduler {
 public:
  // All outlive this object.
  struct Parts {
    const CoordinatorOptions* options;
    const Clock* clock;
    ClusterState* state;
    const HostFaults* faults;
    const HistoryGuard* guard;
  };
  explicit QueueScheduler(const Parts& parts) : parts_(parts) {}

  // Returns the scheduler's view of the nodes.
  std::vector<HostCapacity> Hosts() const;
  // True if the job must not be placed yet. A job that did not fit is retried
  // early if room was made since.
  bool BacksOff(const JobEntry& entry, Time now) const;
  // Adds placed jobs to `changed` and gives the others their reason to wait.
  // Ignores jobs already in `changed`. Running jobs that wait for a node in
  // place of another (replacing.h), and then those that want spares (spares.h),
  // come before the queue.
  void Schedule(Time now, std::map<JobName, Job>* changed);
  // The same for those running jobs alone. Fills `hosts` if it is empty and
  // such a job is there, and takes their room from it.
  void PlaceReplacements(Time now, std::vector<HostCapacity>* hosts,
                         std::map<JobName, Job>* changed);

  // Looks for room for running jobs that may have more tasks than they have
  // (rescale.h): JobEntry::Awaited::room.
  void LookForMoreRoom(Time now);

 private:
  // The nodes that know the job's generation.
  std::set<NodeName> NodesThatKnow(const Job& job) const;
  // Returns the queue in order, without jobs that wait for their own unknown
  // gangs.
  std::vector<QueuedJob> Queue(Time now, const std::map<JobName, Job>& changed);

  const Parts parts_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_QUEUE_SCHEDULER_H_
