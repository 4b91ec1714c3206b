// The streams of the worker daemons: what daemons report, and the rendezvous
// of the ranks.
//
// Thread-safe: each call takes the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_NODE_SESSIONS_H_
#define LOCKSTEP_SERVER_COORDINATOR_NODE_SESSIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/model/probe.h"
#include "server/coordinator/admission.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/failure_detector.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/host_faults.h"
#include "server/coordinator/observer.h"
#include "server/coordinator/prefetch_planner.h"
#include "server/coordinator/reconciler.h"
#include "server/coordinator/rendezvous_table.h"
#include "server/coordinator/store_writer.h"
#include "server/coordinator/worker_link.h"

namespace lockstep {

class NodeSessions {
 public:
  struct RankReport {
    JobName job;
    Generation generation = 0;
    std::vector<RankStatus> ranks;
  };

  // All outlive it; `observer` may be null.
  struct Parts {
    const Clock* clock;
    CoordinatorObserver* observer;
    const StoreWriter* writer;
    ClusterState* state;
    HistoryGuard* guard;
    FailureDetector* detector;
    HostFaults* faults;
    RendezvousTable* rendezvous;
    PrefetchPlanner* prefetch;
    Reconciler* reconciler;
    Admission* admission;
  };
  // `identity` is constant once the first daemon calls, and outlives it.
  // `parts` are used with `mu` held only.
  NodeSessions(Mutex* mu, const StoreIdentity* identity, const Parts& parts)
      : mu_(*mu), identity_(*identity), parts_(parts) {}

  // Returns the session of the new stream. Messages of an older stream of the
  // same node are Aborted. Where another daemon's stream of the node is open,
  // this daemon is a newcomer (server/core/membership.h): its gangs are taken
  // in, and the rest of its reports is dropped, until it is admitted or its
  // stream is closed, within a second or so. Unavailable: another newcomer is
  // judged just now.
  StatusOr<SessionId> Register(const NodeInfo& info,
                               const std::vector<GangStatus>& gangs,
                               std::shared_ptr<WorkerLink> link,
                               const std::vector<std::string>& work_jobs = {},
                               int32_t probe_port = 0);
  // Whether a newcomer of the node is waiting.
  bool IsContested(const NodeName& node);
  // What this coordinator says of its store.
  StorePoint point();
  // Histories that its own replaced.
  const std::vector<std::string>& replaced_histories() const {
    return identity_.replaced_histories;
  }
  // Returns OK, or why a node that has obeyed `obeyed` must not obey this
  // coordinator. The node counts as refused until it registers or is forgotten.
  Status CheckObeyed(const NodeName& node, const StorePoint& obeyed);

  Status OnHeartbeat(SessionId session, uint64_t sequence,
                     NodeReadings readings,
                     const std::vector<RankReport>& reports);
  // ResourceExhausted: the node reports too many gangs.
  Status OnGangStatus(SessionId session, const GangStatus& status);
  // What a node says of other nodes. Targets that it was not asked about are
  // ignored.
  Status OnProbed(SessionId session, const ProbeAnswer& answer);
  // All that the node says of what it was told to fetch ahead.
  Status OnPrefetched(SessionId session, std::vector<Prefetched> items);
  // Both: PermissionDenied: the node has no rank of the generation.
  // ResourceExhausted: ranks have put too much into the rendezvous; a rank that
  // asked for a missing key then waits until its forming deadline.
  Status OnRendezvousPut(SessionId session, const JobName& job,
                         Generation generation, const std::string& key,
                         const std::string& value);
  Status OnRendezvousGet(SessionId session, const JobName& job,
                         Generation generation, const std::string& key);
  // NotFound: the job or attempt is not (or no longer) known; its bytes may go.
  // FailedPrecondition: a replaced history knew it, and this store does not;
  // the bytes may not go. PermissionDenied: that rank never ran on this node.
  // `*life`: how often the node has said that it started the rank again alone.
  Status CheckLog(SessionId session, const JobName& job, const std::string& uid,
                  Generation generation, int32_t rank, int32_t* life = nullptr);
  void OnStreamEnd(SessionId session);

  // The job's logs are gone: connected nodes remove its working directories,
  // too.
  void DropWork(const std::string& uid);
  // Ends all streams: the coordinator is leaving, daemons shall try again.
  void CloseStreams();

 private:
  bool IsNewcomer(SessionId session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return parts_.state->nodes.FindNewcomer(session) != nullptr;
  }
  // Takes in the readings of a beat, and what follows from them.
  Status TakeBeat(const NodeName& node, NodeReadings readings, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeRanks(const NodeName& node, const RankReport& report, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeProgress(const RankStatus& rank, JobEntry* entry, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the generation still forms or runs. PermissionDenied: the node has
  // no rank of it.
  StatusOr<bool> MayMeet(const NodeName& node, const JobName& job,
                         Generation generation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How often the node has said that it started the rank again; -1: the node
  // has nothing of it any more.
  int32_t LifeOf(const NodeName& node, const GangKey& gang, int32_t rank) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex& mu_;
  const StoreIdentity& identity_;
  const Parts parts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_NODE_SESSIONS_H_
