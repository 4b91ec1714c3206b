// The coordinator: its parts, assembled under one lock.
//
// Every public call of JobCommands, NodeCommands, NodeSessions and
// ClusterQueries, and every Tick, takes the lock and follows one order: it
// passes new facts to the pure rules of server/core, commits their decisions in
// one transaction, replaces the jobs in memory, and only then notifies watchers
// and worker daemons. A failed commit changes nothing, and the next tick
// decides again. Reports of a wide gang are recorded at once and may be decided
// together (server/core/report_pace.h).
//
// Hard state: jobs, nodes, answered requests (server/store). Soft state,
// rebuilt from reports: leases, progress, the gangs of each node, rendezvous
// keys.
//
// Thread-safe. Under the lock only the commit blocks.
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
#include "server/coordinator/gpu_checks.h"
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

namespace lockstep::server {

// The parts that the lock guards. Each depends only on earlier ones.
// Thread-compatible.
struct CoordinatorCore {
  // All outlive this object; Load fills `identity`.
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
  GpuChecks checks;
  PrefetchPlanner prefetch;
  SnapshotMaker snapshots;
  Reconciler reconciler;
  Admission admission;
  Retention retention;
};

class Coordinator {
 public:
  // `store`, `clock` and `hub` outlive the coordinator. Jumps of `clock` are
  // smoothed (steady_clock.h).
  Coordinator(CoordinatorOptions options, Store* store, const Clock* clock,
              WatchHub* hub);

  // Reads the store. Call it once, before any other function.
  Status Load();
  uint64_t epoch() const { return identity_.epoch; }
  // The clock of records. Compare their times with this one.
  const Clock& clock() const { return clock_; }

  JobCommands* jobs() { return &jobs_; }
  NodeCommands* nodes() { return &nodes_; }
  NodeSessions* sessions() { return &sessions_; }
  ClusterQueries* queries() { return &queries_; }

  // Handles leases, timeouts, backoffs and progress. Call it about every 100
  // ms.
  void Tick();
  // Sets the prices from now on. The bill of an ended job does not change.
  void SetPrices(Prices prices);

 private:
  // Loads the stored state into memory.
  void Restore(const StoreSnapshot& snapshot, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds the coordinator's restart to the history of active jobs.
  void NoteRestart(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Changes the state of nodes whose lease expired.
  void ExpireNodes(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Time may change the decision about any unfinished job.
  void TouchLiveJobs(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs once per second.
  void PublishProgress(MonoTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CoordinatorOptions options_;
  const SteadyClock clock_;
  WatchHub* const hub_;
  // Load sets it; constant afterwards.
  StoreIdentity identity_;
  mutable Mutex mu_;
  CoordinatorCore core_ ABSL_GUARDED_BY(mu_);
  MonoTime last_progress_ ABSL_GUARDED_BY(mu_);
  MonoTime last_look_ ABSL_GUARDED_BY(mu_);
  // These take the lock themselves.
  JobCommands jobs_;
  NodeCommands nodes_;
  NodeSessions sessions_;
  const StartForecast forecast_;
  ClusterQueries queries_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_COORDINATOR_H_
