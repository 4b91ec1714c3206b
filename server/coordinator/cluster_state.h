// State that all parts of the coordinator share: the jobs, the nodes, and the
// agenda of the next Reconcile.
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

namespace lockstep::server {

// Identifies the store and this run of the coordinator. Load sets it; it is
// constant afterwards and read without the lock.
struct StoreIdentity {
  // Returns the store point at `version`.
  StorePoint At(int64_t version) const;

  uint64_t epoch = 0;
  std::string history;
  // Histories that this one replaced.
  std::vector<std::string> replaced_histories;
  std::map<uint64_t, EpochStart> epoch_starts;
  // The highest generation that a replaced history may have used. 0 without a
  // replaced history.
  Generation generation_floor = 0;
};

// Jobs and nodes to examine again.
struct Agenda {
  // Nodes can take new work, or a queued job may fit.
  void RoomMade(MonoTime now) {
    capacity_changed = true;
    room_made = now;
  }

  // Jobs to decide about.
  std::set<JobName> jobs;
  // Nodes whose assignments may have changed.
  std::set<NodeName> nodes;
  // Nodes whose record changed outside commands. The next tick stores them.
  std::set<NodeName> unsaved_nodes;
  bool capacity_changed = true;
  // A running job waits for a node in place of another (replacing.h), or may
  // have found a spare (spares.h): the scheduler looks for one, without a pass
  // over the queue.
  bool places_wanted = true;
  // When a node registered, or the ranks of a job left one.
  MonoTime room_made;
  // The prefetch lists or the reports about them changed.
  bool ahead_changed = true;
};

// Thread-compatible; guarded by the coordinator's lock.
struct ClusterState {
  ClusterState(const StallOptions& stall, const MembershipOptions& membership)
      : jobs(stall), members(membership) {}

  // NotFound (NO_SUCH_NODE) if there is no such node.
  StatusOr<const Member*> GetMember(const NodeName& name) const;
  // The node's record changed. No effect for an unknown node.
  void NoteNode(const NodeName& node);
  // Adds every job with resources on the node to the agenda.
  void TouchJobsOf(const NodeName& node);

  JobRegistry jobs;
  Membership members;
  NodeRegistry nodes;
  Agenda agenda;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_CLUSTER_STATE_H_
