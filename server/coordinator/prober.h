// Asks nodes whether they reach other nodes (common/model/probe.h).
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_PROBER_H_
#define LOCKSTEP_SERVER_COORDINATOR_PROBER_H_

#include <cstdint>
#include <map>
#include <set>

#include "common/base/clock.h"
#include "server/coordinator/cluster_state.h"

namespace lockstep::server {

class Prober {
 public:
  // A node's attempt to reach another fails after `timeout`. `state` outlives
  // this object.
  Prober(Duration timeout, ClusterState* state)
      : timeout_(timeout), state_(state) {}

  // True if the node is connected and reachable by probes.
  bool MayBeAsked(const NodeName& node) const;
  // Asks each node of `asked`, which must be connected, about the nodes that it
  // maps to. Returns the query's id, which the answers carry. `unknown_port` is
  // that of nodes that have not registered yet.
  uint64_t Ask(const std::map<NodeName, std::set<NodeName>>& asked,
               int32_t unknown_port = 0);

 private:
  const Duration timeout_;
  ClusterState* const state_;
  uint64_t next_id_ = 1;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_PROBER_H_
