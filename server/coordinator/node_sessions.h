// The streams of the worker daemons: daemons' reports and the rendezvous of the
// ranks.
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
#include "server/coordinator/gpu_checks.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/host_faults.h"
#include "server/coordinator/observer.h"
#include "server/coordinator/prefetch_planner.h"
#include "server/coordinator/reconciler.h"
#include "server/coordinator/rendezvous_table.h"
#include "server/coordinator/store_writer.h"
#include "server/coordinator/worker_link.h"
#include "server/core/idle_power.h"

namespace lockstep::server {

class NodeSessions {
 public:
  struct RankReport {
    JobName job;
    Generation generation = 0;
    std::vector<RankStatus> ranks;
  };

  // All outlive this object; `observer` may be null.
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
    GpuChecks* checks;
    Reconciler* reconciler;
    Admission* admission;
  };
  // `identity` outlives this object and is constant from the first daemon's
  // call on. `parts` are used only while `mu` is held.
  NodeSessions(Mutex* mu, const StoreIdentity* identity, const Parts& parts)
      : mu_(*mu), identity_(*identity), parts_(parts) {}

  // Returns the session of the new stream. Messages of an older stream of the
  // node are Aborted from now on. If another daemon's stream of the node is
  // open, this daemon is a newcomer (server/core/membership.h): its gangs are
  // recorded and its other reports dropped until it is admitted or its stream
  // is closed, within about a second. Unavailable if another newcomer is being
  // judged.
  StatusOr<SessionId> Register(const NodeInfo& info,
                               const std::vector<GangStatus>& gangs,
                               std::shared_ptr<WorkerLink> link,
                               const std::vector<std::string>& work_jobs = {},
                               int32_t probe_port = 0,
                               const std::vector<GpuReclaim>& reclaims = {});
  // True if a newcomer of the node waits.
  bool IsContested(const NodeName& node);
  // Returns the store point of this coordinator.
  StorePoint point();
  // Histories that its own replaced.
  const std::vector<std::string>& replaced_histories() const {
    return identity_.replaced_histories;
  }
  // Returns OK, or why a node that has obeyed `obeyed` must not obey this
  // coordinator. The node counts as refusing until it registers or is
  // forgotten.
  Status CheckObeyed(const NodeName& node, const StorePoint& obeyed);

  Status OnHeartbeat(SessionId session, uint64_t sequence,
                     NodeReadings readings,
                     const std::vector<RankReport>& reports);
  // ResourceExhausted if the node reports too many gangs.
  Status OnGangStatus(SessionId session, const GangStatus& status);
  // Records a node's answer about other nodes. Targets that it was not asked
  // about are ignored.
  Status OnProbed(SessionId session, const ProbeAnswer& answer);
  // Takes what a check of the node's GPUs found.
  Status OnGpuChecked(SessionId session, const GpuCheckAnswer& answer);
  // Takes the node's complete report about its prefetch list.
  Status OnPrefetched(SessionId session, std::vector<Prefetched> items);
  // Both: PermissionDenied if the node has no rank of the generation.
  // ResourceExhausted if the rendezvous store is full; a rank that waits for a
  // missing key then waits until its forming deadline.
  Status OnRendezvousPut(SessionId session, const JobName& job,
                         Generation generation, const std::string& key,
                         const std::string& value);
  Status OnRendezvousGet(SessionId session, const JobName& job,
                         Generation generation, const std::string& key);
  // NotFound if the job or attempt is unknown; the node may delete the log.
  // FailedPrecondition if a replaced history knew it and this store does not;
  // the node must keep the log. PermissionDenied if that rank never ran on this
  // node. `place` may be null.
  struct LogPlace {
    // The number of lone restarts that the node reported for the rank.
    int32_t life = 0;
    // LogKey::moves.
    int32_t moves = 0;
  };
  Status CheckLog(SessionId session, const JobName& job, const std::string& uid,
                  Generation generation, int32_t rank,
                  LogPlace* place = nullptr);
  void OnStreamEnd(SessionId session);

  // The job's logs are deleted. Connected nodes also remove its working
  // directories.
  void DropWork(const std::string& uid);
  // Ends all streams at shutdown, so that daemons reconnect.
  void CloseStreams();

 private:
  bool IsNewcomer(SessionId session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return parts_.state->nodes.FindNewcomer(session) != nullptr;
  }
  // Takes the readings of a heartbeat and applies their consequences.
  Status TakeBeat(const NodeName& node, NodeReadings readings, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeRanks(const NodeName& node, const RankReport& report, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Learns what GPUs without ranks draw.
  void TakePower(const NodeName& node, const NodeReadings& readings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeProgress(const NodeName& node, const RankStatus& rank,
                    JobEntry* entry, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // True if the generation is forming or running. PermissionDenied if the node
  // has no rank of it.
  StatusOr<bool> MayMeet(const NodeName& node, const JobName& job,
                         Generation generation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the number of lone restarts that the node reported for the rank. -1
  // if the node no longer has the rank.
  int32_t LifeOf(const NodeName& node, const GangKey& gang, int32_t rank) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex& mu_;
  const StoreIdentity& identity_;
  const Parts parts_ ABSL_GUARDED_BY(mu_);
  IdlePower idle_power_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_NODE_SESSIONS_H_
