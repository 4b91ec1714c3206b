// Sends each node its goals: what it should do for each job.
// Thread-compatible; guarded by the coordinator's lock.
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

namespace lockstep {

class AssignmentSender {
 public:
  // All outlive it.
  struct Parts {
    const StopGraces* graces;
    const StoreIdentity* identity;
    const StoreWriter* writer;
    const HistoryGuard* guard;
    const JobViewBuilder* views;
    ClusterState* state;
  };
  explicit AssignmentSender(const Parts& parts) : parts_(parts) {}

  // Sends the nodes of the agenda the goals that they were not sent before.
  void Send(Time now);

 private:
  using Wanted = std::map<GangKey, Assignment>;

  // What each of `nodes` should do, with one view of each job, and without
  // cluster specs.
  std::map<NodeName, Wanted> WantedOf(const std::set<NodeName>& nodes,
                                      Time now) const;
  // Adds the gangs of the node that are not of a job here: they have to stop.
  void Disown(const NodeName& node, Time now, Wanted* wanted) const;
  void SendTo(NodeEntry* node, Wanted wanted);
  // The cluster spec that goes with the assignment; null: none.
  std::shared_ptr<const SharedClusterSpec> ClusterOf(
      const Assignment& assignment);

  const Parts parts_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_ASSIGNMENT_SENDER_H_
