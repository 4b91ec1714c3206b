// The ranks of this node, from their start to the last byte of their logs.
//
// Owns the classes that handle ranks and passes events between them. Belongs to
// the event loop's thread. Ranks outlive this object.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_RANKS_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_RANKS_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/session.h"
#include "lockstep/v1/worker.pb.h"
#include "worker/agent/evidence/rank_evidence.h"
#include "worker/agent/metrics/task_reading.h"
#include "worker/agent/ranks/rank_parts.h"
#include "worker/agent/ranks/rank_restarts.h"
#include "worker/agent/ranks/rank_starter.h"
#include "worker/agent/store/removal.h"
#include "worker/devices/gpu_sampler.h"

namespace lockstep::worker::agent {

class Ranks final : public SupervisorHandler {
 public:
  // Owners that it uses. All are borrowed; `cgroups` and `gpus` may be null.
  struct Parts {
    const DaemonSetup* setup = nullptr;
    const RankOptions* options = nullptr;
    EventLoop* loop = nullptr;
    FileSystem* files = nullptr;
    CoreRunner* core = nullptr;
    TaskStore* store = nullptr;
    Containers* containers = nullptr;
    WorkDirectories* work = nullptr;
    CgroupTree* cgroups = nullptr;
    const devices::GpuSampler* gpus = nullptr;
  };

  // `send` sends to the coordinator.
  Ranks(const Parts& parts, RankHooks hooks,
        std::function<void(const v1::WorkerMessage&)> send);

  RankPorts* ports() { return &ports_; }
  RankCgroups* cgroups() { return &cgroups_; }
  RankLinks* links() { return &links_; }
  LogShipper* logs() { return &logs_; }
  RankSampler* sampler() { return &sampler_; }
  RankExits* exits() { return &exits_; }
  RankEvidenceTaker* evidence() { return &evidence_; }
  RankFences* fences() { return &fences_; }
  WarmRanks* warm() { return starter_.warm(); }
  StuckProcesses* stuck() { return supervisor_.stuck(); }
  const RankTable& table() const { return table_; }
  // Returns a reading of each rank.
  std::vector<TaskReading> Readings() const;

  // Recovers the ranks of an earlier daemon. Call it before the loop runs.
  void Adopt(const TaskStore::Found& found, Removal* removal);
  // Action::Kind::kStartRank. `begun` contains the gangs whose first rank the
  // same decision started.
  void Start(const RankRef& ref, std::set<GangKey>* begun);
  // Action::Kind::kKillTree.
  void Kill(const RankRef& ref, Duration grace) {
    supervisor_.KillTree(ref, grace);
  }
  // Starts the command of a session, or of a connection to a port, with its
  // descriptors (worker/shim/session.h).
  Status StartSession(const RankRef& ref, const SessionRequest& request,
                      const std::vector<int>& fds);
  // Returns what contains all processes of a rank that runs here.
  StatusOr<pid_t> ProcessOf(const RankRef& ref) const;
  // Reports ports of ranks on which other processes listen to the core.
  void WatchPorts();

  // The core has forgotten the gang. Returns the uid of its job, or "" if it
  // had no ranks here.
  std::string Forget(const GangKey& key);
  // Drops the ranks of forgotten gangs whose logs are shipped or have expired.
  // Returns these gangs, whose files may be removed, and adds the last readings
  // of their ranks to `last`. Skips gangs for which `in_use` is true.
  std::vector<GangKey> TakeForgotten(
      const std::function<bool(const GangKey&)>& in_use,
      std::vector<TaskReading>* last);

  // SupervisorHandler.
  void OnRankStarted(const RankRef& ref, int64_t pid) override;
  void OnRankExited(const RankRef& ref,
                    const task::ExitRecord& record) override;
  void RemoveContainer(const task::TaskRecord& record,
                       std::function<void()> done) override;

 private:
  RankParts AllParts();
  TaskReading ReadingOf(const RankRef& ref, const Rank& rank) const;

  const Parts parts_;
  const RankHooks hooks_;
  RankTable table_;
  RankPorts ports_;
  RankCgroups cgroups_;
  RankLinks links_;
  LogShipper logs_;
  RankSampler sampler_;
  RankExits exits_;
  Supervisor supervisor_;
  RankFences fences_;
  RankStarter starter_;
  RankRestarts restarts_;
  RankEvidenceTaker evidence_;
  // Time at which the gang was forgotten.
  std::map<GangKey, MonoTime> forgotten_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_RANKS_H_
