// Decides when a silent node counts as gone, from each job's patience, the
// answers of its neighbours, and the steps of its jobs. See
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
#include "server/coordinator/silent_nodes.h"
#include "server/core/inquiry.h"

namespace lockstep::server {

class FailureDetector {
 public:
  // All outlive this object.
  FailureDetector(const CoordinatorOptions* options, ClusterState* state,
                  Prober* prober)
      : options_(*options),
        state_(state),
        prober_(prober),
        silent_(&options->silence, options->membership.lease, state, prober) {}

  // Asks neighbours about each silent node with gangs.
  void AskNeighbours(Time now);
  // Records a node's answer about silent nodes. Targets that it was not asked
  // about are ignored.
  void TakeAnswer(const NodeName& node, const ProbeAnswer& answer, Time now);
  // The node registered.
  void Forget(const NodeName& node) {
    inquiries_.erase(node);
    silent_.NoteBack(node);
  }
  // An operator is about to forget the node.
  void GiveUp(const NodeName& node, MonoTime now) {
    inquiries_.erase(node);
    silent_.Forget(node, now);
  }
  // What becomes of the programs on silent nodes.
  const SilentNodes& silent() const { return silent_; }

  // A step that needed every rank of the job finished, so all its nodes were
  // alive.
  void NoteStep(const JobName& job, MonoTime now) { stepped_[job] = now; }
  // Extends leases by the steps since the last call.
  void ApplyLiveness();
  // Call it before every decision. If the coordinator itself was paused or
  // waited for its disk, that time does not count as silence of the nodes.
  void ExtendLeasesAfterPause(Time now);

  // Returns how long `node`, which has a gang of the native job, may be silent
  // while the job makes no step.
  Duration PatienceWith(const JobEntry& entry, const NodeName& node) const;
  // The same for all jobs of the node. Nullopt while a program there may live.
  std::optional<Duration> PatienceWith(const NodeName& node) const;
  // True if the silent node's lease is over, its neighbours do not reach it,
  // and no step has shown since that it lives.
  bool IsDead(const Member& silent, Time now) const {
    return IsUnreachable(silent.info.name) &&
           silent.SinceEvidence(now.mono) > options_.membership.lease;
  }
  // True if the node's daemon is from another boot than the one that started
  // the job's ranks there, while the ranks still step: the daemon is a copy.
  bool RunsUnseen(const JobEntry& entry, const NodeName& node, Time now) const;

 private:
  void Ask(const Member& silent, Inquiry* inquiry, Time now);
  // Its neighbours cannot reach it, and no job has shown since that it is
  // alive.
  bool IsUnreachable(const NodeName& node) const;
  Duration PatienceOf(const JobEntry& entry) const;

  const CoordinatorOptions& options_;
  ClusterState* const state_;
  Prober* const prober_;
  SilentNodes silent_;
  // The inquiries about silent nodes.
  std::map<NodeName, Inquiry> inquiries_;
  // Liveness evidence not applied to the nodes yet.
  std::map<JobName, MonoTime> stepped_;
  // The time of the coordinator's last decision.
  std::optional<MonoTime> awake_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_FAILURE_DETECTOR_H_
