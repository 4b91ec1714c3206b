// Reports and saves the status of gangs, with the resource use of ranks, the
// progress of preparation and the files that ranks left.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_GANG_REPORTS_H_
#define LOCKSTEP_WORKER_AGENT_GANG_REPORTS_H_

#include <functional>
#include <map>

#include "common/model/node.h"
#include "lockstep/v1/worker.pb.h"
#include "worker/agent/agent_sampler.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/prepare/preparation_times.h"
#include "worker/agent/ranks/ranks.h"
#include "worker/agent/store/task_store.h"
#include "worker/agent/work/gang_leftovers.h"
#include "worker/agent/work/work_directories.h"

namespace lockstep::worker::agent {

class GangReports {
 public:
  // Owners that it uses. All are borrowed.
  struct Parts {
    EventLoop* loop = nullptr;
    const CoreRunner* core = nullptr;
    TaskStore* store = nullptr;
    Ranks* ranks = nullptr;
    const WorkDirectories* work = nullptr;
    const PreparationTimes* times = nullptr;
    AgentSampler* sampler = nullptr;
    // Sends a heartbeat now.
    std::function<void()> beat = nullptr;
  };

  // `send` sends to the coordinator.
  GangReports(const Parts& parts,
              std::function<void(const v1::WorkerMessage&)> send);

  // Returns the status to report to the coordinator.
  GangStatus StatusOf(const GangKey& key, const LocalGang& gang) const;
  // Saves the gang if the next daemon needs it, and reports it. For an ended
  // gang, waits until the list of its files is known, and for a moment until
  // its GPUs have been read: one that is not free is reported before the gang's
  // end makes room on it.
  void Report(const GangKey& key);
  // Saves the gang for the next daemon. Logs errors.
  void Save(const GangKey& key);
  void Forget(const GangKey& key);
  GangLeftovers* leftovers() { return &leftovers_; }

 private:
  // An ended gang waits for a reading of its GPUs.
  struct GpuWait {
    MonoTime end;
    // A timer for the next look is set.
    bool looks = false;
    bool over = false;
  };

  // False: report now.
  bool WaitsForGpus(const GangKey& key, const LocalGang& gang);

  const Parts parts_;
  const std::function<void(const v1::WorkerMessage&)> send_;
  GangLeftovers leftovers_;
  std::map<GangKey, GpuWait> gpu_waits_;
  Lifetime lifetime_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_GANG_REPORTS_H_
