// Handles a store that lost data while nodes know more than it: which nodes
// must not obey this coordinator, and which gangs are left running. See
// docs/design/coordinator.md, "The store's file". Thread-compatible; guarded by
// the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_HISTORY_GUARD_H_
#define LOCKSTEP_SERVER_COORDINATOR_HISTORY_GUARD_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/snapshot.h"
#include "server/coordinator/store_writer.h"

namespace lockstep::server {

class HistoryGuard {
 public:
  // All outlive this object.
  HistoryGuard(const StoreIdentity* identity, const StoreWriter* writer,
               ClusterState* state)
      : identity_(identity), writer_(writer), state_(state) {}

  // Returns OK, or why a node that has obeyed `obeyed` must not obey this
  // coordinator. The node counts as refusing until it registers or is
  // forgotten.
  Status CheckObeyed(const NodeName& node, const StorePoint& obeyed);
  // Maps each refusing node to the coordinator that it obeyed.
  const std::map<NodeName, std::string>& refused_by() const {
    return refused_by_;
  }
  // The node obeys this coordinator.
  void Obeys(const NodeName& node) { refused_by_.erase(node); }
  void Forget(const NodeName& node);

  // True if a replaced history started the gang and this store lacks it. The
  // gang runs until it ends or its node is drained with a grace.
  bool IsUnknown(const GangStatus& gang) const;
  // True if the node runs an unknown gang.
  bool RunsUnknown(const NodeName& node) const {
    return unknown_nodes_.contains(node);
  }
  // True if the deadline of a drain that ends unknown gangs on the node has
  // passed.
  bool EndsUnknown(const NodeName& node, Time now) const;
  std::vector<UnknownGang> UnknownOn(const NodeName& node) const;
  // Returns a node that runs an unknown gang of a job with this name.
  std::optional<NodeName> FindUnknown(const JobName& job) const;
  // For each job that waits for the end of its own unknown gang: its uid and
  // the gang's node.
  std::map<std::string, NodeName> UnknownUids() const;
  // The node's gangs changed. Adds unknown ones to its history.
  void NoteUnknown(const NodeName& node, Time now);
  // The grace of a drain may have ended on a node with unknown gangs.
  void TouchUnknown();

 private:
  // Returns the store that the node obeyed if it is not this one or an earlier
  // point of this one; otherwise "".
  std::string LaterStore(const StorePoint& obeyed) const;

  const StoreIdentity* const identity_;
  const StoreWriter* const writer_;
  ClusterState* const state_;
  // At most kMaxRefusedBy nodes.
  std::map<NodeName, std::string> refused_by_;
  // Nodes with unknown gangs, and the number of gangs.
  std::map<NodeName, size_t> unknown_nodes_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_HISTORY_GUARD_H_
