// Makes decisions real: commits them, then puts them in the place of what was
// in memory, then publishes them to watchers. A failed commit leaves everything
// as it was.
// Thread-compatible; guarded by the coordinator's lock.
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

namespace lockstep {

class Committer {
 public:
  // All outlive it.
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
  // that changed them. The rows of `forget_nodes` go.
  Status CommitJobs(std::map<JobName, Job> changed,
                    std::optional<AnsweredRequest> request, Time now,
                    const std::vector<const NodeRecord*>& nodes = {},
                    const std::vector<NodeName>& forget_nodes = {});
  // Deletes jobs that have ended.
  Status CommitDeletion(const std::vector<JobName>& names,
                        std::optional<AnsweredRequest> request);
  // Commits the record of one node; the caller applies it.
  Status CommitNode(const NodeRecord& record);
  // Stores what changed of nodes beside commands, some nodes at a time.
  void StoreUnsavedNodes();
  // Tries a store that could not write. Commands are refused meanwhile, so
  // nothing else would find out that it can again.
  void ProbeStore(Time now);
  // Forgets old answers, some minutes after the last time at the earliest.
  // Commands do that, too.
  void ForgetOldAnswers(Time now);

  // Puts a job, which is stored, in the place of what was in memory.
  void Apply(const std::shared_ptr<const Job>& job, Time now);

 private:
  bool MayForgetAnswers(Time now) const;
  // Keeps what nodes have of the job, and wakes those that it concerns.
  void ApplyToNodes(const Job* before, const Job& job, Time now);

  const Parts parts_;
  MonoTime last_probe_;
  WallTime last_forget_{};
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_COMMITTER_H_
