// What the coordinator knows, for callers that change nothing.
//
// Thread-safe: each call takes the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_CLUSTER_QUERIES_H_
#define LOCKSTEP_SERVER_COORDINATOR_CLUSTER_QUERIES_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "server/coordinator/billing.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/snapshot.h"
#include "server/coordinator/snapshot_maker.h"
#include "server/coordinator/store_writer.h"
#include "server/core/log_owner.h"
#include "server/core/work_files.h"

namespace lockstep {

class ClusterQueries {
 public:
  struct FoundWork {
    std::string job_uid;
    WorkSite site;
  };

  // All outlive it.
  struct Parts {
    const StoreIdentity* identity;
    ClusterState* state;
    const StoreWriter* writer;
    const Billing* billing;
    const HistoryGuard* guard;
    const SnapshotMaker* snapshots;
  };
  // `clock` outlives it. `parts` are used with `mu` held only.
  ClusterQueries(Mutex* mu, const Clock* clock, const Parts& parts)
      : mu_(*mu), clock_(*clock), parts_(parts) {}

  // The clock that records are written by. Compare their times with this one.
  const Clock& clock() const { return clock_; }

  // NotFound: there is no such job.
  StatusOr<JobSnapshot> GetJob(const JobName& name) const;
  // Newest first, with their positions in the queue.
  std::vector<JobSnapshot> ListJobs() const;
  // 1: the next job; 0: the job does not wait, or there is no such job.
  int64_t QueuePosition(const JobName& name) const;
  // Empty: there is no such job.
  std::string OwnerOf(const JobName& name) const;
  // NotFound: there is no such node.
  StatusOr<NodeSnapshot> GetNode(const NodeName& name) const;
  // By name.
  std::vector<NodeSnapshot> ListNodes() const;
  CoordinatorStats Stats() const;
  // With the jobs that ended no longer than `linger` ago.
  CoordinatorView View(Duration linger) const;

  // The job with this uid, for the log store.
  LogOwner FindLogOwner(const std::string& uid) const;
  // Where the working directory of the task of `rank` is, for a caller who
  // `may` read it. NotFound, FailedPrecondition: see WorkSiteOf.
  StatusOr<FoundWork> FindWork(const JobName& name, int32_t rank,
                               const JobCheck& may) const;
  // Digests of the packages of all jobs that have not ended.
  std::set<std::string> NeededPackages() const;
  Prices prices() const;

  // Of the last commit.
  int64_t version() const;
  // False after a commit failed, until one succeeds.
  bool store_healthy() const;
  // Aborted: another coordinator has opened the store. This one must end.
  Status taken_over() const;

 private:
  Mutex& mu_;
  const Clock& clock_;
  const Parts parts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_CLUSTER_QUERIES_H_
