// Operators' commands on nodes. Each is committed together with its answer, so
// that a repeated command gets the first answer.
//
// Thread-safe: each call takes the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_NODE_COMMANDS_H_
#define LOCKSTEP_SERVER_COORDINATOR_NODE_COMMANDS_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "server/coordinator/admission.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/committer.h"
#include "server/coordinator/failure_detector.h"
#include "server/coordinator/gpu_checks.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/host_faults.h"
#include "server/coordinator/idempotency_cache.h"
#include "server/coordinator/reconciler.h"
#include "server/coordinator/snapshot.h"
#include "server/coordinator/snapshot_maker.h"
#include "server/coordinator/store_writer.h"

namespace lockstep::server {

class NodeCommands {
 public:
  // Encodes a command's answer, which is stored with its effect.
  using EncodeNode = std::function<std::string(const NodeSnapshot&)>;
  using EncodeJobs = std::function<std::string(const std::vector<JobName>&)>;

  // All outlive this object.
  struct Parts {
    const Clock* clock;
    ClusterState* state;
    const StoreWriter* writer;
    const SnapshotMaker* snapshots;
    HistoryGuard* guard;
    FailureDetector* detector;
    HostFaults* faults;
    Committer* committer;
    GpuChecks* checks;
    Reconciler* reconciler;
    Admission* admission;
  };
  // `parts` are used only while `mu` is held.
  NodeCommands(Mutex* mu, const Parts& parts) : mu_(*mu), parts_(parts) {}

  // All return the encoded answer. NotFound if there is no such node.

  // Sets `drain.time`.
  StatusOr<std::string> DrainNode(const RequestKey& request,
                                  const NodeName& name, Drain drain,
                                  const EncodeNode& encode);
  // Ends a drain, a quarantine and a cool-down.
  // `gpus` not empty: only lifts the faults of these GPUs. InvalidArgument: the
  // node has no such GPU.
  StatusOr<std::string> UndrainNode(const RequestKey& request,
                                    const NodeName& name,
                                    const std::vector<int32_t>& gpus,
                                    const EncodeNode& encode);
  // Approves the node's offer.
  StatusOr<std::string> ApproveNode(const RequestKey& request,
                                    const NodeName& name,
                                    const EncodeNode& encode);
  // Checks GPUs of the node, as GpuChecks::Ask says. The answer is not stored.
  Status CheckGpus(const RequestKey& request, const NodeName& name,
                   const std::vector<int32_t>& gpus, GpuChecks::Done done);
  // `encode` gets the jobs with gangs on the node. FailedPrecondition if the
  // node is connected.
  StatusOr<std::string> ForgetNode(const RequestKey& request,
                                   const NodeName& name,
                                   const EncodeJobs& encode);

 private:
  // Applies a command that changes one record.
  StatusOr<std::string> Change(
      const RequestKey& request, const NodeName& name, const EncodeNode& encode,
      const std::function<NodeRecord(const Member&, Time)>& change)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Commits the record, an event on each job of the node, and the answer. Then
  // ends a quarantine if requested.
  StatusOr<std::string> Answer(const RequestKey& request,
                               const NodeRecord& record,
                               const EncodeNode& encode, Time now,
                               bool ends_quarantine = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes a deleted node from memory.
  void Forget(const NodeName& name, const std::string& client, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the node's jobs, each with this event added.
  std::map<JobName, Job> JobsWithEvent(const NodeName& node, Reason reason,
                                       const std::string& message,
                                       Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex& mu_;
  const Parts parts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_NODE_COMMANDS_H_
