// Sends each node its assignments. Thread-compatible; guarded by the
// coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_ASSIGNMENT_SENDER_H_
#define LOCKSTEP_SERVER_COORDINATOR_ASSIGNMENT_SENDER_H_

#include <map>
#include <memory>
#include <set>

#include "common/base/clock.h"
#include "common/model/assignment.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/job_view_builder.h"
#include "server/coordinator/store_writer.h"
#include "server/core/assignments.h"

namespace lockstep::server {

class AssignmentSender {
 public:
  // All outlive this object.
  struct Parts {
    const StopGraces* graces;
    const StoreIdentity* identity;
    const StoreWriter* writer;
    const HistoryGuard* guard;
    const JobViewBuilder* views;
    ClusterState* state;
  };
  explicit AssignmentSender(const Parts& parts) : parts_(parts) {}

  // Sends the agenda's nodes the assignments that changed.
  void Send(Time now);

 private:
  using Wanted = std::map<GangKey, Assignment>;

  // Returns the assignments of `nodes`, from one view of each job, without
  // cluster specs.
  std::map<NodeName, Wanted> WantedOf(const std::set<NodeName>& nodes,
                                      Time now) const;
  // Adds stops for the node's gangs that belong to no job.
  void Disown(const NodeName& node, Time now, Wanted* wanted) const;
  void SendTo(NodeEntry* node, Wanted wanted);
  // Returns the cluster spec for the assignment, or null.
  std::shared_ptr<const SharedClusterSpec> ClusterOf(
      const Assignment& assignment);

  const Parts parts_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_ASSIGNMENT_SENDER_H_
