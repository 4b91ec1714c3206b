// The nodes' streams and their daemons' reports. All of it is soft state, which
// daemons report again after a restart. Membership (server/core/membership.h)
// holds the nodes and their states. Thread-compatible; guarded by the
// coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_NODE_REGISTRY_H_
#define LOCKSTEP_SERVER_COORDINATOR_NODE_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/assignment.h"
#include "common/model/probe.h"
#include "server/coordinator/worker_link.h"
#include "server/core/membership.h"

namespace lockstep::server {

// Identifies one stream of a worker daemon. 0 for none.
using SessionId = uint64_t;
using GangKey = std::pair<JobName, Generation>;

struct NodeSession {
  SessionId id = 0;
  Incarnation incarnation;
  std::shared_ptr<WorkerLink> link;
  // Without the cluster spec, which is constant within a generation.
  std::map<GangKey, Assignment> sent;
  // The last prefetch list sent to the node. Absent if none.
  std::optional<Prefetch> prefetch;
  // The last list of neighbours. Absent if none.
  std::optional<NeighbourList> neighbours = std::nullopt;
};

// A registering stream.
struct Arrival {
  SessionId id = 0;
  std::vector<GangStatus> gangs;
  std::shared_ptr<WorkerLink> link;
  std::vector<std::string> work_jobs;
  int32_t probe_port = 0;
  std::vector<GpuReclaim> reclaims = {};
};

// The open stream of a newcomer that waits for admission.
struct WaitingNewcomer {
  Newcomer newcomer;
  Arrival arrival;
};

struct NodeEntry {
  // Discards the gangs and packages of an earlier stream.
  void Reset(Arrival arrival, const Incarnation& incarnation);

  bool reported = false;
  std::map<GangKey, GangStatus> gangs;
  std::vector<Prefetched> prefetched;
  std::optional<NodeSession> session;
  // By rank the highest number of restarts that the node was told since it
  // registered. A daemon whose stream has ended may have begun them.
  std::map<GangKey, std::map<int32_t, int32_t>> restarts;
  // Jobs with resources on this node.
  std::set<JobName> jobs;
  // Uids of jobs whose working directories may be on this node.
  std::set<std::string> work_jobs;
  // From the last registration since the coordinator's start. 0 for none.
  int32_t probe_port = 0;
  // When a daemon from a different boot was admitted.
  std::optional<MonoTime> booted;
};

class NodeRegistry {
 public:
  // Limits of a node's reported gangs, the same as in a registration, and of
  // its working directories.
  static constexpr size_t kMaxGangs = 4096;
  static constexpr size_t kMaxWorkJobs = 100'000;

  std::map<NodeName, NodeEntry>& entries() { return entries_; }
  // Returns null if there is no entry.
  const NodeEntry* Find(const NodeName& node) const;
  // Adds a missing entry.
  NodeEntry& At(const NodeName& node) { return entries_[node]; }

  SessionId NewSession() { return next_session_++; }
  // Aborted (STALE_SESSION) if a later stream of the node has registered.
  StatusOr<NodeName> NodeOf(SessionId session) const;
  // Assigns the node to the stream of `arrival`.
  void Open(const NodeInfo& info, Arrival arrival);
  // Removes the node's stream.
  void Close(const NodeName& node);
  // Returns null if the session is not a newcomer's.
  WaitingNewcomer* FindNewcomer(SessionId session);
  // By node. A node has at most one newcomer.
  std::map<NodeName, WaitingNewcomer>& newcomers() { return newcomers_; }

  // Tells connected nodes to remove the working directories of the job. Other
  // nodes report their directories when they return.
  void DropWork(const std::string& uid);
  // Ends all streams.
  void CloseStreams(const Status& status);

 private:
  std::map<NodeName, NodeEntry> entries_;
  std::map<SessionId, NodeName> sessions_;
  std::map<NodeName, WaitingNewcomer> newcomers_;
  SessionId next_session_ = 1;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_NODE_REGISTRY_H_
