// Decides about what has changed, commits the decisions, and tells the nodes:
// in that order, always. What could not be committed is decided again at the
// next tick.
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_RECONCILER_H_
#define LOCKSTEP_SERVER_COORDINATOR_RECONCILER_H_

#include <map>

#include "common/base/clock.h"
#include "server/coordinator/assignment_sender.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/committer.h"
#include "server/coordinator/failure_detector.h"
#include "server/coordinator/host_faults.h"
#include "server/coordinator/job_view_builder.h"
#include "server/coordinator/options.h"
#include "server/coordinator/prefetch_planner.h"
#include "server/coordinator/queue_scheduler.h"

namespace lockstep {

class Reconciler {
 public:
  // All outlive it.
  struct Parts {
    const CoordinatorOptions* options;
    const StoreIdentity* identity;
    const StoreWriter* writer;
    ClusterState* state;
    const HistoryGuard* guard;
    FailureDetector* detector;
    HostFaults* faults;
    QueueScheduler* scheduler;
    PrefetchPlanner* prefetch;
    Committer* committer;
  };
  explicit Reconciler(const Parts& parts);

  // Takes up the agenda until nothing more follows from it.
  void Reconcile(Time now);
  // As Reconcile, but in a large cluster the next tick does it: when all its
  // nodes come back at once, each would have everything decided again.
  void ReconcileSoon(Time now);

 private:
  // Decides about the jobs of the agenda and returns those that change.
  std::map<JobName, Job> Decide(Time now);
  Job DecideOne(JobEntry* entry, Time now);
  // Sets all_started_since once every rank has been started.
  void NoteStarted(JobEntry* entry, Time now) const;
  // Says in the job's history that a rank stands still, and that it goes on.
  static void NoteStanding(JobEntry* entry, Job* job, Time now);
  // Adds events for tasks whose GPUs are bad.
  void NoteBadGpus(Job* job, const JobView& view, Time now) const;

  const Parts parts_;
  const JobViewBuilder views_;
  AssignmentSender sender_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_RECONCILER_H_
