// The coordinator: its owners, put together under one lock.
//
// Every public call of JobCommands, NodeCommands, NodeSessions and
// ClusterQueries, and every Tick, takes the lock and does the same, in this
// order: it gives what it learned to the pure rules of server/core, commits
// what they decided in one transaction, replaces the jobs in memory, and only
// then tells watchers and worker daemons. A failed commit leaves everything as
// it was; what was not committed is decided again at the next tick. Reports of
// a wide gang are taken in at once and may be decided together
// (server/core/report_pace.h).
//
// Hard state: jobs, nodes, answered requests (server/store). Soft state, which
// is rebuilt from reports: leases, progress, what each node has, rendezvous
// keys.
//
// Thread-safe. Nothing called with the lock held blocks but the commit.
#ifndef LOCKSTEP_SERVER_COORDINATOR_COORDINATOR_H_
#define LOCKSTEP_SERVER_COORDINATOR_COORDINATOR_H_

#include <cstdint>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "server/coordinator/admission.h"
#include "server/coordinator/billing.h"
#include "server/coordinator/cluster_queries.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/committer.h"
#include "server/coordinator/failure_detector.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/host_faults.h"
#include "server/coordinator/job_commands.h"
#include "server/coordinator/node_commands.h"
#include "server/coordinator/node_sessions.h"
#include "server/coordinator/options.h"
#include "server/coordinator/prefetch_planner.h"
#include "server/coordinator/prober.h"
#include "server/coordinator/queue_scheduler.h"
#include "server/coordinator/reconciler.h"
#include "server/coordinator/rendezvous_table.h"
#include "server/coordinator/retention.h"
#include "server/coordinator/snapshot_maker.h"
#include "server/coordinator/steady_clock.h"
#include "server/coordinator/store_writer.h"
#include "server/coordinator/watch_hub.h"

namespace lockstep {

// The owners that the lock guards. Each has what it needs from those before it.
// Thread-compatible.
struct CoordinatorCore {
  // All outlive it; `identity` is filled by Load.
  CoordinatorCore(const CoordinatorOptions* options,
                  const StoreIdentity* identity, Store* store,
                  const Clock* clock, WatchHub* hub);
  CoordinatorCore(const CoordinatorCore&) = delete;
  CoordinatorCore& operator=(const CoordinatorCore&) = delete;

  ClusterState state;
  Billing billing;
  StoreWriter writer;
  RendezvousTable rendezvous;
  Prober prober;
  HistoryGuard guard;
  FailureDetector detector;
  HostFaults faults;
  QueueScheduler scheduler;
  Committer committer;
  PrefetchPlanner prefetch;
  SnapshotMaker snapshots;
  Reconciler reconciler;
  Admission admission;
  Retention retention;
};

class Coordinator {
 public:
  // `store`, `clock` and `hub` outlive the coordinator. Of `clock` only steady
  // progress is believed (steady_clock.h).
  Coordinator(CoordinatorOptions options, Store* store, const Clock* clock,
              WatchHub* hub);

  // Reads the store; call once, before anything else.
  Status Load();
  uint64_t epoch() const { return identity_.epoch; }
  // The clock that records are written by. Compare their times with this one.
  const Clock& clock() const { return clock_; }

  JobCommands* jobs() { return &jobs_; }
  NodeCommands* nodes() { return &nodes_; }
  NodeSessions* sessions() { return &sessions_; }
  ClusterQueries* queries() { return &queries_; }

  // Leases, timeouts, backoffs, progress for watchers. Every 100 ms or so.
  void Tick();
  // What use costs from now on. The bill of a job that has ended does not
  // change.
  void SetPrices(Prices prices);

 private:
  // Puts what was stored in memory.
  void Restore(const StoreSnapshot& snapshot, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Says in the history of active jobs that the coordinator was restarted.
  void NoteRestart(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves nodes whose time is over.
  void ExpireNodes(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Time alone may change what is decided about any job that has not ended.
  void TouchLiveJobs(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Once a second.
  void PublishProgress(MonoTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CoordinatorOptions options_;
  const SteadyClock clock_;
  WatchHub* const hub_;
  // Set by Load, constant after it.
  StoreIdentity identity_;
  mutable Mutex mu_;
  CoordinatorCore core_ ABSL_GUARDED_BY(mu_);
  MonoTime last_progress_ ABSL_GUARDED_BY(mu_);
  // These take the lock.
  JobCommands jobs_;
  NodeCommands nodes_;
  NodeSessions sessions_;
  ClusterQueries queries_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_COORDINATOR_H_
