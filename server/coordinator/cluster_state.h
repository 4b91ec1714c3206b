// What all owners of the coordinator share: the jobs, the nodes, and the work
// that the next Reconcile takes up.
#ifndef LOCKSTEP_SERVER_COORDINATOR_CLUSTER_STATE_H_
#define LOCKSTEP_SERVER_COORDINATOR_CLUSTER_STATE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/store_point.h"
#include "server/coordinator/job_registry.h"
#include "server/coordinator/node_registry.h"
#include "server/core/membership.h"
#include "server/store/store.h"

namespace lockstep {

// Which store this is, and which run of the coordinator. Set by Load, constant
// after it: it is read without the lock.
struct StoreIdentity {
  // What the coordinator says of its store at `version`.
  StorePoint At(int64_t version) const;

  uint64_t epoch = 0;
  std::string history;
  // Histories that this one replaced.
  std::vector<std::string> replaced_histories;
  std::map<uint64_t, EpochStart> epoch_starts;
  // A replaced history may have used generations up to this one; 0: there is
  // no replaced history.
  Generation generation_floor = 0;
};

// What has to be looked at again.
struct Agenda {
  // Nodes take new work, or a queued job may be placed.
  void RoomMade(MonoTime now) {
    capacity_changed = true;
    room_made = now;
  }

  // Jobs to decide about.
  std::set<JobName> jobs;
  // Nodes whose goals may have changed.
  std::set<NodeName> nodes;
  // Nodes whose record changed beside commands: the next tick stores them.
  std::set<NodeName> unsaved_nodes;
  bool capacity_changed = true;
  // When a node came, or the ranks of a job left one.
  MonoTime room_made;
  // What nodes should fetch ahead, or what they report of it.
  bool ahead_changed = true;
};

// Thread-compatible; guarded by the coordinator's lock.
struct ClusterState {
  ClusterState(const StallOptions& stall, const MembershipOptions& membership)
      : jobs(stall), members(membership) {}

  // NotFound (NO_SUCH_NODE): there is no such node.
  StatusOr<const Member*> GetMember(const NodeName& name) const;
  // The node's record changed; does nothing for a node that is not known.
  void NoteNode(const NodeName& node);
  // Every job that holds something on the node is to be decided about.
  void TouchJobsOf(const NodeName& node);

  JobRegistry jobs;
  Membership members;
  NodeRegistry nodes;
  Agenda agenda;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_CLUSTER_STATE_H_
