// Read-only queries of the coordinator's state.
//
// Thread-safe: each call takes the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_CLUSTER_QUERIES_H_
#define LOCKSTEP_SERVER_COORDINATOR_CLUSTER_QUERIES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "server/coordinator/billing.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/found_ranks.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/snapshot.h"
#include "server/coordinator/snapshot_maker.h"
#include "server/coordinator/start_forecast.h"
#include "server/coordinator/store_writer.h"
#include "server/core/log_owner.h"
#include "server/core/work_files.h"

namespace lockstep::server {

class ClusterQueries {
 public:
  struct FoundWork {
    std::string job_uid;
    WorkSite site;
  };

  // All outlive this object.
  struct Parts {
    const StoreIdentity* identity;
    ClusterState* state;
    const StoreWriter* writer;
    const Billing* billing;
    const HistoryGuard* guard;
    const SnapshotMaker* snapshots;
  };
  // `clock` and `forecast` outlive this object. `parts` are used only while
  // `mu` is held.
  ClusterQueries(Mutex* mu, const Clock* clock, const StartForecast* forecast,
                 const Parts& parts)
      : mu_(*mu), clock_(*clock), forecast_(*forecast), parts_(parts) {}

  // The clock of records. Compare their times with this one.
  const Clock& clock() const { return clock_; }

  // With its expected start. NotFound if there is no such job.
  StatusOr<JobSnapshot> GetJob(const JobName& name) const;
  // Newest first, with queue positions and expected starts.
  std::vector<JobSnapshot> ListJobs() const;
  // 1 for the next job. 0 if the job is not queued or does not exist.
  int64_t QueuePosition(const JobName& name) const;
  // Returns "" if there is no such job.
  std::string OwnerOf(const JobName& name) const;
  // NotFound if there is no such node.
  StatusOr<NodeSnapshot> GetNode(const NodeName& name) const;
  // Sorted by name.
  std::vector<NodeSnapshot> ListNodes() const;
  CoordinatorStats Stats() const;
  // Includes jobs that ended within `linger`.
  CoordinatorView View(Duration linger) const;

  // Returns the owner of the job with this uid, for the log store.
  LogOwner FindLogOwner(const std::string& uid) const;
  // Returns the location of the working directory of the task of `rank`, if
  // `may` allows the caller to read it. NotFound, FailedPrecondition: see
  // WorkSiteOf.
  StatusOr<FoundWork> FindWork(const JobName& name, int32_t rank,
                               const JobCheck& may) const;
  // Returns those of `ranks` that run, of all if it is empty, if `may` allows
  // the caller to look at them. NotFound: the job does not have one of them.
  // FailedPrecondition: none runs.
  StatusOr<FoundRanks> FindRunning(const JobName& name,
                                   const std::set<int32_t>& ranks,
                                   const JobCheck& may) const;
  // Returns those of `ranks`, or all, of the ended attempt with this ordinal
  // (0: the newest one) of which the nodes kept evidence: it stood still, or
  // was ended by a limit, or failed by its ranks. `may` must allow the caller
  // to look at them. NotFound: it did not have one of them. FailedPrecondition:
  // there is no such attempt.
  StatusOr<FoundRanks> FindKept(const JobName& name,
                                const std::set<int32_t>& ranks, int32_t ordinal,
                                const JobCheck& may) const;
  // Returns package digests of all unfinished jobs.
  std::set<std::string> NeededPackages() const;
  Prices prices() const;

  // The version of the last commit.
  int64_t version() const;
  // False from a failed commit until the next successful one.
  bool store_healthy() const;
  // Aborted if another coordinator has opened the store. Then this one must
  // exit.
  Status taken_over() const;

  // Sets when the waiting ones of these jobs are expected to start.
  void AddExpectedStarts(const std::vector<JobSnapshot*>& jobs) const;

 private:
  Mutex& mu_;
  const Clock& clock_;
  const StartForecast& forecast_;
  const Parts parts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_CLUSTER_QUERIES_H_
