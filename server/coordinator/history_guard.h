// A store that gave something up, and nodes that know more than it: which nodes
// must not obey this coordinator, and which gangs are left alone. See
// docs/design/coordinator.md, "The store's file".
// Thread-compatible; guarded by the coordinator's lock.
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

namespace lockstep {

class HistoryGuard {
 public:
  // All outlive it.
  HistoryGuard(const StoreIdentity* identity, const StoreWriter* writer,
               ClusterState* state)
      : identity_(identity), writer_(writer), state_(state) {}

  // Returns OK, or why a node that has obeyed `obeyed` must not obey this
  // coordinator. The node counts as refused until it registers or is forgotten.
  Status CheckObeyed(const NodeName& node, const StorePoint& obeyed);
  // By node that refuses this coordinator: which one it obeyed.
  const std::map<NodeName, std::string>& refused_by() const {
    return refused_by_;
  }
  // The node obeys this coordinator.
  void Obeys(const NodeName& node) { refused_by_.erase(node); }
  void Forget(const NodeName& node);

  // A replaced history started the gang, and this store does not know it. It is
  // left alone until it ends, or until its node is drained with a grace.
  bool IsUnknown(const GangStatus& gang) const;
  // The node runs something unknown.
  bool RunsUnknown(const NodeName& node) const {
    return unknown_nodes_.contains(node);
  }
  // The drain that ends what is unknown on the node is over its deadline.
  bool EndsUnknown(const NodeName& node, Time now) const;
  std::vector<UnknownGang> UnknownOn(const NodeName& node) const;
  // Returns a node that runs an unknown gang of a job with this name.
  std::optional<NodeName> FindUnknown(const JobName& job) const;
  // By uid of a job that waits for the end of an unknown gang of its own: the
  // node of the gang.
  std::map<std::string, NodeName> UnknownUids() const;
  // The gangs of the node have changed: says in its history what is unknown.
  void NoteUnknown(const NodeName& node, Time now);
  // The grace of a drain may be over on any node that runs something unknown.
  void TouchUnknown();

 private:
  // Returns which store the node obeyed, if it is not this one or an earlier
  // point of this one; empty otherwise.
  std::string LaterStore(const StorePoint& obeyed) const;

  const StoreIdentity* const identity_;
  const StoreWriter* const writer_;
  ClusterState* const state_;
  // At most kMaxRefusedBy nodes.
  std::map<NodeName, std::string> refused_by_;
  // Nodes that run something unknown, and how many gangs.
  std::map<NodeName, size_t> unknown_nodes_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_HISTORY_GUARD_H_
