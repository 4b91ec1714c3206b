// Answers the coordinator's questions what ranks of this node do.
//
// Belongs to the event loop's thread; a thread of its own captures. One query
// is answered after the other.
#ifndef LOCKSTEP_WORKER_AGENT_EVIDENCE_RANK_EVIDENCE_H_
#define LOCKSTEP_WORKER_AGENT_EVIDENCE_RANK_EVIDENCE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/model/evidence.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/host/rank_cgroups.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/loop/work_thread.h"
#include "worker/agent/readings/rank_sampler.h"
#include "worker/agent/store/rank_table.h"
#include "worker/devices/gpu_sampler.h"
#include "worker/evidence/capture.h"

namespace lockstep::worker::agent {

class RankEvidenceTaker {
 public:
  // Owners that it uses. All are borrowed; `gpus` may be null.
  struct Parts {
    const DaemonSetup* setup = nullptr;
    const evidence::StackTools* tools = nullptr;
    EventLoop* loop = nullptr;
    const RankTable* table = nullptr;
    RankSampler* sampler = nullptr;
    const RankCgroups* cgroups = nullptr;
    const devices::GpuSampler* gpus = nullptr;
  };
  // `shim_of` returns the process whose tree contains the rank; absent if
  // unknown. `answer` sends on the stream of that number, if it is still open.
  RankEvidenceTaker(
      const Parts& parts,
      std::function<std::optional<pid_t>(const RankRef& ref)> shim_of,
      std::function<void(uint64_t stream, const EvidenceAnswer&)> answer);

  // Answers with one EvidenceAnswer for each rank of the query that runs here.
  void OnQuery(uint64_t stream, const EvidenceQuery& query);

 private:
  StatusOr<std::vector<evidence::CaptureTarget>> TargetsOf(
      const EvidenceQuery& query) const;
  evidence::CaptureTarget TargetOf(const RankRef& ref, pid_t shim) const;
  // Readings and Xids of the GPUs that the rank has.
  void AddGpus(const std::vector<int32_t>& gpus, RankEvidence* known) const;
  void SendLater(uint64_t stream, EvidenceAnswer answer);

  const Parts parts_;
  const std::function<std::optional<pid_t>(const RankRef&)> shim_of_;
  const std::function<void(uint64_t, const EvidenceAnswer&)> answer_;
  size_t waiting_ = 0;
  Lifetime lifetime_;
  // Last: its jobs use the others.
  WorkThread thread_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_EVIDENCE_RANK_EVIDENCE_H_
