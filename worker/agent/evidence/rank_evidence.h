// Answers the coordinator's questions what ranks of this node do, and keeps
// what they did before they are stopped.
//
// Belongs to the event loop's thread; threads of its own capture. One query is
// answered after the other, and never delays what is to be kept.
#ifndef LOCKSTEP_WORKER_AGENT_EVIDENCE_RANK_EVIDENCE_H_
#define LOCKSTEP_WORKER_AGENT_EVIDENCE_RANK_EVIDENCE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/evidence.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/evidence/kept_evidence.h"
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
    FileSystem* files = nullptr;
  };
  // `shim_of` returns the process whose tree contains the rank; absent if
  // unknown. `answer` sends on the stream of that number, if it is still open.
  RankEvidenceTaker(
      const Parts& parts,
      std::function<std::optional<pid_t>(const RankRef& ref)> shim_of,
      std::function<void(uint64_t stream, const EvidenceAnswer&)> answer);

  // Answers with one EvidenceAnswer for each rank of the query that runs here,
  // or of which something is kept.
  void OnQuery(uint64_t stream, const EvidenceQuery& query);
  // Captures the gang's ranks that run here and writes that to disk. Calls
  // `done` on the loop's thread, later, whatever came of it.
  void Keep(const GangKey& key, const std::string& job_uid,
            std::function<void()> done);
  // Keeps what /proc tells of the gang's ranks that run here, and how `ended`
  // ones ended, with their last lines. It does not replace stacks of the last
  // minute. Takes milliseconds, unless the disk is slow.
  void KeepFailure(const GangKey& key, const std::string& job_uid,
                   const std::vector<RankStatus>& ended,
                   std::function<void()> done);

  // Removes what is kept of these jobs, later.
  void Drop(std::set<std::string> job_uids);

 private:
  // Of the ranks that run here, of `ranks` or, if it is empty, all.
  std::vector<evidence::CaptureTarget> Running(
      const GangKey& key, const std::vector<int32_t>& ranks) const;
  evidence::CaptureTarget EndedTarget(const RankRef& ref,
                                      const RankStatus& status) const;
  // On the keeper's thread.
  void Capture(const GangKey& key, const std::string& job_uid,
               std::vector<evidence::CaptureTarget> running,
               std::vector<evidence::CaptureTarget> ended,
               const evidence::CaptureOptions& options);
  evidence::CaptureOptions OptionsFor(Duration within) const;
  void AnswerKept(uint64_t stream, const EvidenceQuery& query);
  evidence::CaptureTarget TargetOf(const RankRef& ref, pid_t shim) const;
  // Readings and Xids of the GPUs that the rank has.
  void AddGpus(const std::vector<int32_t>& gpus, RankEvidence* known) const;
  void SendLater(uint64_t stream, EvidenceAnswer answer);

  const Parts parts_;
  const std::function<std::optional<pid_t>(const RankRef&)> shim_of_;
  const std::function<void(uint64_t, const EvidenceAnswer&)> answer_;
  KeptEvidence kept_;
  size_t waiting_ = 0;
  Lifetime lifetime_;
  // Last: their jobs use the others.
  WorkThread thread_;
  WorkThread keeper_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_EVIDENCE_RANK_EVIDENCE_H_
