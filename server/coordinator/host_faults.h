// Decides which nodes cool down and which are kept apart, from the failures of
// generations and the connectivity of their nodes. See
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

namespace lockstep::server {

class HostFaults {
 public:
  // All outlive this object.
  HostFaults(const CoordinatorOptions* options, ClusterState* state,
             Prober* prober)
      : options_(*options),
        state_(state),
        prober_(prober),
        strikes_(options->strikes) {}

  // Returns a job's stall that exceeds its limit, or the step deadline
  // if all ranks wait and their nodes cannot reach each other.
  std::optional<Stall> StallOf(const JobEntry& entry, const JobView& view,
                               Time now);
  // Adds the evidence about the failed generation to the view.
  void AddEvidence(const JobName& job, Time now, JobView* view) const;
  // The job `before` becomes `next`. Records what that shows about its nodes.
  void NoteOutcome(const Job& before, const Job& next, const JobView& view,
                   Time now);
  // A new generation begins. Discards the evidence about the last one.
  void ForgetGeneration(const JobName& job);
  // The job with this uid ended.
  void ForgetJob(const std::string& uid) { strikes_.ForgetJob(uid); }

  // Records a node's answer about other nodes. Returns a job to decide about at
  // once, because all its nodes have answered.
  std::optional<JobName> TakeAnswer(const NodeName& node,
                                    const ProbeAnswer& answer, Time now);
  // Removes expired records and asks separated nodes whether they reach each
  // other.
  void Expire(Time now);
  // An operator declared the node healthy, or it was forgotten.
  void Clear(const NodeName& node) { strikes_.Clear(node); }

  bool IsCooling(const NodeName& node) const {
    return strikes_.CoolingOf(node) != nullptr;
  }
  // Adds the node's faults to its snapshot.
  void Show(NodeSnapshot* node) const;
  // Adds the faults to the scheduler's view of the nodes.
  void KeepApart(std::vector<HostCapacity>* hosts) const;

 private:
  // Evidence about a generation that is being ended; see JobView.
  struct Evidence {
    std::set<NodeName> late;
    bool all_stood = false;
    uint64_t pair_probe_id = 0;
    std::optional<PairProbe> pair_probe;
  };

  // Returns which of the job's nodes test which: all pairs, or for a wide gang
  // the peers that its ranks lost.
  std::map<NodeName, std::set<NodeName>> PairsToProbe(
      const Job& job, const JobView& view) const;
  // Asks the job's nodes whether they reach each other.
  void ProbePairs(const Job& job, const JobView& view, Time now);
  // The generation is being ended. Records evidence that is available only now.
  void NoteGivenUp(const Job& next, const JobView& view, Time now);
  // A run of the job has ended, by a failure of one of its ranks or well.
  void NoteGpuRun(const Job& job, bool failed, Time now);
  void TakeStrikes(const Strikes::News& news, Time now);
  void EndMendTest(Time now);
  // Null if the job's nodes are not being asked.
  const PairProbe* FindPairProbe(const JobName& job) const;

  const CoordinatorOptions& options_;
  ClusterState* const state_;
  Prober* const prober_;
  Strikes strikes_;
  std::map<JobName, Evidence> evidence_;
  // Maps a query id to the job whose nodes were asked.
  std::map<uint64_t, JobName> pair_probes_;
  // A test between separated nodes.
  std::optional<PairProbe> mend_test_;
  uint64_t mend_test_id_ = 0;
  MonoTime last_mend_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_HOST_FAULTS_H_
