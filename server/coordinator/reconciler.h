// Decides about changed jobs, commits the decisions, and notifies the nodes,
// always in this order. The next tick decides again about decisions that failed
// to commit. Thread-compatible; guarded by the coordinator's lock.
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

namespace lockstep::server {

class Reconciler {
 public:
  // All outlive this object.
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
    const Billing* billing;
  };
  explicit Reconciler(const Parts& parts);

  // Processes the agenda until it is empty.
  void Reconcile(Time now);
  // As Reconcile, but in a large cluster the next tick does it. Otherwise each
  // of many returning nodes would cause a full pass.
  void ReconcileSoon(Time now);

  const JobViewBuilder& views() const { return views_; }

 private:
  // Decides about the jobs of the agenda and returns those that change.
  std::map<JobName, Job> Decide(Time now);
  Job DecideOne(JobEntry* entry, Time now);
  // Sets the stall for which the generation is to be ended, once evidence of
  // its ranks is captured. Asks for that, as at every stall and at the limit of
  // the running time.
  void CaptureEvidence(JobEntry* entry, JobView* view, Time now) const;
  // Sets all_started_since once every rank has started.
  void NoteStarted(JobEntry* entry, Time now) const;
  // Adds the start and the end of a rank's stall to the job's history.
  static void NoteStall(JobEntry* entry, Job* job, Time now);
  // Adds to the job's history that a node of it is silent, and what follows.
  void NoteSilence(JobEntry* entry, Job* job, Time now) const;
  // Adds to the job's history that it is idle or works again. Notes that it is
  // to be ended, once it was idle for too long.
  void NoteIdle(JobEntry* entry, Job* job, Time now) const;
  // Adds events for tasks with faulty GPUs.
  void NoteBadGpus(Job* job, const JobView& view, Time now) const;

  const Parts parts_;
  const JobViewBuilder views_;
  AssignmentSender sender_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_RECONCILER_H_
