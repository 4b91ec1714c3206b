// When a silent node counts as gone: how long each job waits for it, what its
// neighbours say, and what the steps of its jobs prove. See
// docs/design/coordinator.md, "When a node or a rank counts as gone".
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_FAILURE_DETECTOR_H_
#define LOCKSTEP_SERVER_COORDINATOR_FAILURE_DETECTOR_H_

#include <map>
#include <optional>

#include "common/base/clock.h"
#include "common/model/probe.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/options.h"
#include "server/coordinator/prober.h"
#include "server/core/inquiry.h"

namespace lockstep {

class FailureDetector {
 public:
  // All outlive it.
  FailureDetector(const CoordinatorOptions* options, ClusterState* state,
                  Prober* prober)
      : options_(*options), state_(state), prober_(prober) {}

  // Asks neighbours about each silent node that has something of a job.
  void AskNeighbours(Time now);
  // What `node` says of silent nodes. Targets that it was not asked about are
  // ignored.
  void TakeAnswer(const NodeName& node, const ProbeAnswer& answer, Time now);
  // The node registered, or was forgotten.
  void Forget(const NodeName& node) { inquiries_.erase(node); }

  // A step that needed every rank of the job finished: all its nodes lived.
  void NoteStep(const JobName& job, MonoTime now) { proven_[job] = now; }
  // Passes on what steps have proven since the last call.
  void ApplyProofs();
  // To be called before anything is decided. A coordinator that was stopped, or
  // waited for its disk, heard no node: that time is not the nodes' silence.
  void ForgiveAbsence(Time now);

  // How long `node`, which has something of the job, may be silent while the
  // job makes no step.
  Duration PatienceWith(const JobEntry& entry, const NodeName& node) const;
  // The same for all jobs of the node; nullopt: for ever.
  std::optional<Duration> PatienceWith(const NodeName& node) const;
  // The node's daemon is of another boot than the one that started the job's
  // ranks there, and the ranks still step: the daemon is a copy.
  bool RunsUnseen(const JobEntry& entry, const NodeName& node, Time now) const;

 private:
  void Ask(const Member& silent, Inquiry* inquiry, Time now);
  // Its neighbours do not reach it, and no job proved since that it lives.
  bool IsUnreachable(const NodeName& node) const;
  Duration PatienceOf(const JobEntry& entry) const;

  const CoordinatorOptions& options_;
  ClusterState* const state_;
  Prober* const prober_;
  // Of silent nodes.
  std::map<NodeName, Inquiry> inquiries_;
  // Proofs that the nodes were not given yet.
  std::map<JobName, MonoTime> proven_;
  // When the coordinator last came to decide anything.
  std::optional<MonoTime> awake_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_FAILURE_DETECTOR_H_
