// Which nodes cool down and which are kept apart, and the evidence for it: what
// broke a generation, and whether its nodes reach each other. See
// docs/design/coordinator.md, "Hosts that fail jobs, and ways that are cut".
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_HOST_FAULTS_H_
#define LOCKSTEP_SERVER_COORDINATOR_HOST_FAULTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/probe.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/options.h"
#include "server/coordinator/prober.h"
#include "server/coordinator/snapshot.h"
#include "server/core/job_view.h"
#include "server/core/pair_probe.h"
#include "server/core/scheduler.h"
#include "server/core/strikes.h"

namespace lockstep {

class HostFaults {
 public:
  // All outlive it.
  HostFaults(const CoordinatorOptions* options, ClusterState* state,
             Prober* prober)
      : options_(*options),
        state_(state),
        prober_(prober),
        strikes_(options->strikes) {}

  // A stall of a native job that is past its limit, or past the deadline of a
  // step where all ranks wait and their nodes do not reach each other.
  std::optional<Stall> StallOf(const JobEntry& entry, const JobView& view,
                               Time now);
  // Adds to the view what is known of the generation that is given up.
  void AddEvidence(const JobName& job, Time now, JobView* view) const;
  // The job `before` is about to become `next`: that may say something about
  // its nodes.
  void NoteOutcome(const Job& before, const Job& next, const JobView& view,
                   Time now);
  // A new generation begins: what was found about the last one is over.
  void ForgetGeneration(const JobName& job);
  // The job with this uid ended.
  void ForgetJob(const std::string& uid) { strikes_.ForgetJob(uid); }

  // Takes the answer of `node` about other nodes. Returns a job that should be
  // decided about now, as all its nodes have answered.
  std::optional<JobName> TakeAnswer(const NodeName& node,
                                    const ProbeAnswer& answer, Time now);
  // Ends what is over, and asks nodes apart whether they reach each other.
  void Expire(Time now);
  // An operator says that the node is well, or it is forgotten.
  void Clear(const NodeName& node) { strikes_.Clear(node); }

  bool IsCooling(const NodeName& node) const {
    return strikes_.CoolingOf(node) != nullptr;
  }
  // Adds it to what is shown of the node.
  void Show(NodeSnapshot* node) const;
  // Adds it to what the scheduler sees of the nodes.
  void KeepApart(std::vector<HostCapacity>* hosts) const;

 private:
  // Of a generation that is being given up, see JobView.
  struct Evidence {
    std::set<NodeName> late;
    bool all_stood = false;
    uint64_t pair_probe_id = 0;
    std::optional<PairProbe> pair_probe;
  };

  // Which of the job's nodes are asked about which: all of them, or in a wide
  // gang those that its ranks name as lost.
  std::map<NodeName, std::set<NodeName>> PairsToProbe(
      const Job& job, const JobView& view) const;
  // Asks the job's nodes whether they reach each other.
  void ProbePairs(const Job& job, const JobView& view, Time now);
  // The generation is being given up: records what is known at this moment
  // only.
  void NoteGivenUp(const Job& next, const JobView& view, Time now);
  void TakeStrikes(const Strikes::News& news, Time now);
  void EndMendTest(Time now);
  // Null: the job's nodes are not asked.
  const PairProbe* FindPairProbe(const JobName& job) const;

  const CoordinatorOptions& options_;
  ClusterState* const state_;
  Prober* const prober_;
  Strikes strikes_;
  std::map<JobName, Evidence> evidence_;
  // By a query's id: the job whose nodes were asked.
  std::map<uint64_t, JobName> pair_probes_;
  // Asks nodes that are apart.
  std::optional<PairProbe> mend_test_;
  uint64_t mend_test_id_ = 0;
  MonoTime last_mend_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_HOST_FAULTS_H_
