// Parts shared by the classes that start, restart and adopt ranks.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_RANK_PARTS_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_RANK_PARTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/evidence.h"
#include "worker/agent/containers/containers.h"
#include "worker/agent/exits/rank_exits.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/host/rank_cgroups.h"
#include "worker/agent/link/rank_links.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/ports/rank_ports.h"
#include "worker/agent/ranks/rank_environment.h"
#include "worker/agent/ranks/rank_fences.h"
#include "worker/agent/ranks/supervisor.h"
#include "worker/agent/readings/rank_sampler.h"
#include "worker/agent/store/rank_table.h"
#include "worker/agent/store/task_store.h"
#include "worker/agent/stream/log_shipper.h"
#include "worker/agent/work/work_directories.h"
#include "worker/container/reach.h"
#include "worker/evidence/stacks.h"

namespace lockstep::worker::agent {

struct RankOptions {
  std::string shim_program;  // An absolute path.
  // Variables of the daemon that a job may request (RankEnvironmentInput).
  std::vector<std::string> inherit = DefaultInherit();
  // The programs that read the stacks of ranks.
  evidence::StackTools stack_tools = {};
  // Approximate limit for the logs of all ranks here; it determines each rank's
  // share.
  uint64_t log_bytes = uint64_t{8} << 30;
  // Time that a restarting rank waits for the resources of its previous shim.
  Duration shim_leave_time = std::chrono::seconds(10);
  // How long a program's rank may show no sign of progress before its first.
  Duration first_sign = std::chrono::minutes(10);
  // Unshipped logs of a forgotten gang are dropped after this time.
  Duration forget_after = std::chrono::minutes(10);
};

// All are borrowed.
struct RankParts {
  const DaemonSetup* setup = nullptr;
  const RankOptions* options = nullptr;
  EventLoop* loop = nullptr;
  CoreRunner* core = nullptr;
  TaskStore* store = nullptr;
  Containers* containers = nullptr;
  WorkDirectories* work = nullptr;
  RankTable* table = nullptr;
  RankSampler* sampler = nullptr;
  RankPorts* ports = nullptr;
  RankCgroups* cgroups = nullptr;
  RankLinks* links = nullptr;
  LogShipper* logs = nullptr;
  RankExits* exits = nullptr;
  Supervisor* supervisor = nullptr;
  const RankFences* fences = nullptr;
};

// Callbacks into the rest of the daemon.
struct RankHooks {
  // Returns a directory to mount into the gang's containers; absent if it was
  // not checked at the preparation.
  std::function<std::optional<container::ReachedDirectory>(
      const GangKey& key, const std::string& path)>
      mount_of;
  // Saves the gang, for the next daemon.
  std::function<void(const GangKey& key)> save;
  // The first rank of the gang is about to start.
  std::function<void(const GangKey& key)> launching;
  // A rank runs.
  std::function<void(const RankRef& ref)> started;
  // A rank is about to restart alone.
  std::function<void(const GangKey& key)> restarting;
  // A gang of an earlier daemon is recovered; its ranks are not yet.
  std::function<void(const GangKey& key, const GangStatus& status)> adopted;
  // Sends an answer on the coordinator's stream of that number, if it is still
  // open.
  std::function<void(uint64_t stream, const EvidenceAnswer& answer)> answer;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_RANK_PARTS_H_
