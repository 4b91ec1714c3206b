// Prepares gangs for AgentCore, and keeps the resources of prepared gangs.
//
// Belongs to the event loop's thread. A preparation runs on a shared thread if
// it needs nothing remote, else on one of its own, and returns by a post. Each
// gang name has at most one preparation at a time, because the name is also
// that of its folder.
#ifndef LOCKSTEP_WORKER_AGENT_PREPARE_GANG_PREPARER_H_
#define LOCKSTEP_WORKER_AGENT_PREPARE_GANG_PREPARER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/file.h"
#include "worker/agent/containers/containers.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/host/rank_cgroups.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/loop/work_thread.h"
#include "worker/agent/ports/rank_ports.h"
#include "worker/agent/prepare/module_answers.h"
#include "worker/agent/prepare/preparation.h"
#include "worker/agent/prepare/preparation_times.h"
#include "worker/agent/prepare/prepare_options.h"
#include "worker/agent/store/removal.h"
#include "worker/agent/store/task_store.h"

namespace lockstep::worker::agent {

class GangPreparer {
 public:
  // Owners that it uses. All are borrowed.
  struct Parts {
    const DaemonSetup* setup = nullptr;
    const PrepareOptions* options = nullptr;
    EventLoop* loop = nullptr;
    FileSystem* files = nullptr;
    CoreRunner* core = nullptr;
    const TaskStore* store = nullptr;
    Removal* removal = nullptr;
    Containers* containers = nullptr;
    RankCgroups* cgroups = nullptr;
    RankPorts* ports = nullptr;
  };

  // `report` sends a gang's progress to the coordinator.
  GangPreparer(const Parts& parts, std::function<void(const GangKey&)> report);
  // Cancels running preparations and waits for them.
  ~GangPreparer();
  // Cancels all preparations for good and waits for them.
  void CancelAll();

  // Action::Kind::kPrepare and kCheckOutput. The answer goes to the core.
  void Prepare(const GangKey& key);
  void CheckOutput(const GangKey& key);
  // Cancels the preparation, and releases ports and packages.
  void Release(const GangKey& key);
  void Forget(const GangKey& key);

  // Some gang is being prepared.
  bool busy() const { return !running_.empty(); }
  bool IsPreparing(const GangKey& key) const { return running_.contains(key); }
  // Returns a directory to mount into the gang's containers; absent if it was
  // not checked, because an earlier daemon prepared the gang.
  std::optional<container::ReachedDirectory> MountOf(
      const GangKey& key, const std::string& path) const;
  PreparationTimes* times() { return &times_; }

 private:
  struct Run {
    uint64_t number = 0;
    // The gang is gone, and a new one of the same name waits for the end of
    // this run.
    bool superseded = false;
    // It fetches, and reports its progress.
    bool fetches = false;
    // The id of the group that its tools run in; "": none.
    std::string cgroup;
    package::Cancellation cancel;
    std::thread thread;  // Last: it uses the others.
  };
  // Resources of a prepared gang.
  struct Held {
    std::vector<package::PackageCache::Lease> packages;
    // Prepared::mounts.
    std::map<std::string, container::ReachedDirectory> mounts;
  };

  // Numbers the run and makes it the gang's.
  std::shared_ptr<Run> Begin(const GangKey& key);
  PreparationInput InputOf(const GangKey& key, const LocalGang& gang);
  void LimitTools(const GangKey& key, Run* run, PreparationInput* input);
  // Runs `work` on a thread of its own; calls `failed` if none can start.
  void RunAlone(Run* run, const std::function<void()>& work,
                const std::function<void(const Status&)>& failed);
  // Takes a state from another thread. Safe from any thread.
  std::function<void(const TaskPreparation&)> Sayer(const GangKey& key,
                                                    uint64_t number);
  void OnProgress(const GangKey& key, uint64_t number,
                  const TaskPreparation& preparation);
  void ReportIfStillRunning(const GangKey& key, uint64_t number);
  void OnPrepared(const GangKey& key, uint64_t number, Prepared prepared);
  void OnOutputChecked(const GangKey& key, uint64_t number, OutputCheck check);
  void Refuse(const GangKey& key, const Status& status);
  // Removes the run; returns null if a newer run has replaced it.
  std::shared_ptr<Run> Take(const GangKey& key, uint64_t number);
  bool IsWanted(const GangKey& key) const;

  const Parts parts_;
  const std::function<void(const GangKey&)> report_;
  std::map<GangKey, std::shared_ptr<Run>> running_;
  uint64_t last_number_ = 0;
  std::map<GangKey, Held> held_;
  PreparationTimes times_;
  // Cached answers of interpreters; the threads of preparations use it.
  ModuleAnswers module_answers_;
  Lifetime lifetime_;
  std::unique_ptr<WorkThread> thread_ = std::make_unique<WorkThread>();
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_GANG_PREPARER_H_
