// Makes snapshots of jobs and nodes for lists, descriptions, metrics and pages.
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_SNAPSHOT_MAKER_H_
#define LOCKSTEP_SERVER_COORDINATOR_SNAPSHOT_MAKER_H_

#include <optional>

#include "common/base/clock.h"
#include "server/coordinator/billing.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/failure_detector.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/host_faults.h"
#include "server/coordinator/snapshot.h"

namespace lockstep::server {

class SnapshotMaker {
 public:
  // All outlive this object.
  struct Parts {
    const ClusterState* state;
    const Billing* billing;
    const HostFaults* faults;
    const HistoryGuard* guard;
    const FailureDetector* detector;
  };
  explicit SnapshotMaker(const Parts& parts) : parts_(parts) {}

  JobSnapshot SnapshotOf(const JobEntry& entry, Time now) const;
  // `member` may differ from the one in memory.
  NodeSnapshot SnapshotOf(const Member& member) const;

 private:
  // Adds the newest reports of the job's ranks.
  void AddLive(JobSnapshot* snapshot) const;
  // Returns an active job's problem, from soft state.
  std::optional<Cause> TroubleOf(const JobEntry& entry,
                                 const JobSnapshot& snapshot, Time now) const;
  std::optional<Cause> SilentNodeOf(const Job& job, MonoTime now) const;

  const Parts parts_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_SNAPSHOT_MAKER_H_
