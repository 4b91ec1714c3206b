// Builds a JobView (server/core/job_view.h), the facts from which the rules
// decide about one job. Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_JOB_VIEW_BUILDER_H_
#define LOCKSTEP_SERVER_COORDINATOR_JOB_VIEW_BUILDER_H_

#include <set>

#include "common/base/clock.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/failure_detector.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/host_faults.h"
#include "server/coordinator/options.h"
#include "server/core/job_view.h"

namespace lockstep::server {

class JobViewBuilder {
 public:
  // All outlive this object.
  struct Parts {
    const CoordinatorOptions* options;
    const ClusterState* state;
    const FailureDetector* detector;
    const HostFaults* faults;
    const HistoryGuard* guard;
  };
  explicit JobViewBuilder(const Parts& parts) : parts_(parts) {}

  // Covers all of the job's nodes.
  JobView ViewOf(const JobEntry& entry, Time now) const;
  // Covers these nodes only.
  JobView ViewOf(const JobEntry& entry, Time now,
                 const std::set<NodeName>& nodes) const;

 private:
  // Whether the job gives up its silent node.
  bool IsLost(const JobEntry& entry, const Member& silent, Time now) const;
  JobView::Node ViewOf(const JobEntry& entry, const NodeName& name,
                       Time now) const;

  const Parts parts_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_JOB_VIEW_BUILDER_H_
