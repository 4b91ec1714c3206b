// The nodes' streams and what their daemons report. All of it is soft state:
// after a restart the daemons report it again. Which nodes there are, and how
// they are, is in Membership (server/core/membership.h).
// Thread-compatible; guarded by the coordinator's lock.
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
#include "server/coordinator/worker_link.h"
#include "server/core/membership.h"

namespace lockstep {

// Names one stream of a worker daemon; 0: none.
using SessionId = uint64_t;
using GangKey = std::pair<JobName, Generation>;

struct NodeSession {
  SessionId id = 0;
  Incarnation incarnation;
  std::shared_ptr<WorkerLink> link;
  // Without the cluster spec, which does not change within a generation.
  std::map<GangKey, Assignment> sent;
  // What the node was told to fetch ahead; absent: nothing yet.
  std::optional<Prefetch> prefetch;
};

// A stream that registers.
struct Arrival {
  SessionId id = 0;
  std::vector<GangStatus> gangs;
  std::shared_ptr<WorkerLink> link;
  std::vector<std::string> work_jobs;
  int32_t probe_port = 0;
};

// A newcomer's stream is open until the newcomer is admitted or refused.
struct WaitingNewcomer {
  Newcomer newcomer;
  Arrival arrival;
};

struct NodeEntry {
  // Drops the gangs and packages of an earlier stream.
  void Reset(Arrival arrival, const Incarnation& incarnation);

  bool reported = false;
  std::map<GangKey, GangStatus> gangs;
  std::vector<Prefetched> prefetched;
  std::optional<NodeSession> session;
  // Jobs that hold resources here.
  std::set<JobName> jobs;
  // Uids of jobs whose working directories may be here.
  std::set<std::string> work_jobs;
  // From the last registration since the coordinator started; 0: none.
  int32_t probe_port = 0;
  // When a daemon of another boot than the one before it was admitted.
  std::optional<MonoTime> booted;
};

class NodeRegistry {
 public:
  // A node reports this many gangs at most, as many as a registration may list,
  // and this many working directories.
  static constexpr size_t kMaxGangs = 4096;
  static constexpr size_t kMaxWorkJobs = 100'000;

  std::map<NodeName, NodeEntry>& entries() { return entries_; }
  // Null: there is no such entry.
  const NodeEntry* Find(const NodeName& node) const;
  // Adds the entry when it is not there.
  NodeEntry& At(const NodeName& node) { return entries_[node]; }

  SessionId NewSession() { return next_session_++; }
  // Aborted (STALE_SESSION): a later stream of the node has registered.
  StatusOr<NodeName> NodeOf(SessionId session) const;
  // Gives the node to the stream of `arrival`.
  void Open(const NodeInfo& info, Arrival arrival);
  // The node has no stream any more.
  void Close(const NodeName& node);
  // Null: the session is not a newcomer's.
  WaitingNewcomer* FindNewcomer(SessionId session);
  // By node; a node has one newcomer at most.
  std::map<NodeName, WaitingNewcomer>& newcomers() { return newcomers_; }

  // Connected nodes remove the working directories of the job with this uid. A
  // node that is away reports its directories when it comes back.
  void DropWork(const std::string& uid);
  // Ends all streams.
  void CloseStreams(const Status& status);

 private:
  std::map<NodeName, NodeEntry> entries_;
  std::map<SessionId, NodeName> sessions_;
  std::map<NodeName, WaitingNewcomer> newcomers_;
  SessionId next_session_ = 1;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_NODE_REGISTRY_H_
