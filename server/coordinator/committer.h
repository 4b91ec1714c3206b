// Commits decisions, then updates memory, then publishes to watchers. A failed
// commit changes nothing. Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_COMMITTER_H_
#define LOCKSTEP_SERVER_COORDINATOR_COMMITTER_H_

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "server/coordinator/billing.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/host_faults.h"
#include "server/coordinator/options.h"
#include "server/coordinator/rendezvous_table.h"
#include "server/coordinator/store_writer.h"
#include "server/coordinator/watch_hub.h"

namespace lockstep::server {

class Committer {
 public:
  // All outlive this object.
  struct Parts {
    const CoordinatorOptions* options;
    StoreWriter* writer;
    ClusterState* state;
    const Billing* billing;
    RendezvousTable* rendezvous;
    HostFaults* faults;
    WatchHub* hub;
  };
  explicit Committer(const Parts& parts) : parts_(parts) {}

  // Commits the jobs, the records of `nodes`, and the answer to the command
  // that changed them. Deletes the rows of `forget_nodes`.
  Status CommitJobs(std::map<JobName, Job> changed,
                    std::optional<AnsweredRequest> request, Time now,
                    const std::vector<const NodeRecord*>& nodes = {},
                    const std::vector<NodeName>& forget_nodes = {});
  // Deletes ended jobs.
  Status CommitDeletion(const std::vector<JobName>& names,
                        std::optional<AnsweredRequest> request);
  // Commits the record of one node. The caller applies it.
  Status CommitNode(const NodeRecord& record);
  // Stores node changes made outside commands, a few nodes at a time.
  void StoreUnsavedNodes();
  // Retries a store that could not write. Commands are rejected meanwhile, so
  // no other write would detect its recovery.
  void ProbeStore(Time now);
  // Deletes expired answers, at most every few minutes. Commands also do it.
  void ForgetOldAnswers(Time now);

  // Replaces the job in memory by `job`, which is stored.
  void Apply(const std::shared_ptr<const Job>& job, Time now);

 private:
  bool MayForgetAnswers(Time now) const;
  // Updates the gangs of the job's nodes and wakes the affected nodes.
  void ApplyToNodes(const Job* before, const Job& job, Time now);

  const Parts parts_;
  MonoTime last_probe_;
  WallTime last_forget_{};
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_COMMITTER_H_
