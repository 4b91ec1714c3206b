// Starts one lockstep-shim per rank, watches it, finds it again after a restart
// of the daemon, and reports how its rank ended.
//
// It never signals a bare pid: requests go over the shim's socket. If a shim is
// gone or does not answer, it uses pidfds whose start time was checked.
//
// Runs on the event loop's thread. A shim answers immediately, so a request
// waits for the answer, for at most kAnswerTime.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_SUPERVISOR_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_SUPERVISOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/os/process.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/host/stuck_processes.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/store/task_store.h"
#include "worker/shim/shim_client.h"
#include "worker/shim/warm_client.h"

namespace lockstep::worker::agent {

class SupervisorHandler {
 public:
  virtual ~SupervisorHandler() = default;
  // Its exec succeeded. Called once for each rank.
  virtual void OnRankStarted(const RankRef& ref, int64_t pid) = 0;
  // The rank and its tree have ended. The last call for it.
  virtual void OnRankExited(const RankRef& ref,
                            const task::ExitRecord& record) = 0;
  // Stops and removes the container of a rank whose shim is gone, then calls
  // `done` on the loop. The container may already be gone.
  virtual void RemoveContainer(const task::TaskRecord& /*record*/,
                               std::function<void()> done) {
    done();
  }
};

class Supervisor {
 public:
  // All are borrowed. `shim_program` is an absolute path.
  Supervisor(EventLoop* loop, std::string shim_program, std::string boot_id,
             SupervisorHandler* handler);
  // Leaves every rank running.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // OnRankExited also reports a failure to start. `held` are descriptors that
  // the shim keeps open besides its lock (ports). `warm` is a shim that becomes
  // the rank's; absent, or if it has ended: a new one is started.
  void Start(const RankRef& ref, const task::ShimSpec& spec,
             const RankPaths& paths, std::vector<int> held = {},
             std::optional<shim::WarmShim> warm = std::nullopt);
  // Adopts a rank that an earlier daemon started or was about to start. Waits
  // for a running shim that has written no record yet.
  void Adopt(const RankRef& ref, const RankPaths& paths);
  // Sends SIGTERM to the tree, and SIGKILL after `grace`. If the rank does not
  // end on a request without grace, a second one kills the shim itself.
  void KillTree(const RankRef& ref, Duration grace);

  // The rank may go on until `fence_nanos` (ShimSpec). For ranks that were
  // started with a fence. A shim that is not connected yet is told when it is.
  void Renew(const RankRef& ref, int64_t fence_nanos);

  // Starts a command in the rank (worker/shim/session.h) with its descriptors.
  // FailedPrecondition: the rank does not run, or its shim refused.
  Status StartSession(const RankRef& ref, const task::ShimRequest& request,
                      const std::vector<int>& fds);

  // Returns false if no shim of the rank runs, so it may be started (again).
  bool IsHeld(const RankRef& ref, const RankPaths& paths) const;
  // Returns the process whose tree contains all processes of the rank; absent
  // if unknown.
  std::optional<pid_t> ShimPid(const RankRef& ref) const;
  // Returns ShimPid of all ranks here.
  std::vector<pid_t> ShimPids() const;
  // Processes of ended ranks.
  StuckProcesses* stuck() { return &stuck_; }

 private:
  struct Rank {
    RankPaths paths;
    std::string socket;
    std::string nonce;
    std::optional<Process> shim;
    std::unique_ptr<shim::ShimClient> client;
    bool started = false;
    bool ended = false;
    int forced = 0;
    std::optional<Duration> kill_when_connected;
    // The last renewal; 0: none.
    int64_t fence_nanos = 0;
    MonoTime connect_by;
  };

  StatusOr<Process> Launch(const RankRef& ref, const task::ShimSpec& spec,
                           const RankPaths& paths, const std::vector<int>& held,
                           std::optional<shim::WarmShim> warm);
  // `lock_was_free` is set if no shim held the rank's lock.
  void AdoptShim(const RankRef& ref, const task::TaskRecord& record,
                 bool lock_was_free);
  void AwaitRecord(const RankRef& ref);
  void Hold(const RankRef& ref, Process shim);
  void Connect(const RankRef& ref);
  // Tells the shim the last renewal.
  void SendFence(const RankRef& ref);
  void OnClientReadable(const RankRef& ref);
  void OnState(const RankRef& ref, const task::ShimReply& state);
  void OnShimEnded(const RankRef& ref);
  void CloseClient(Rank* rank);
  // Also kills what an earlier look saw of the rank, by this daemon or the one
  // before. Processes that do not end are stuck.
  void KillLeftoversOf(const RankPaths& paths, const task::TaskRecord& record);
  void End(const RankRef& ref, const task::ExitRecord& record);
  void EndWithoutRecord(const RankRef& ref, const std::string& why);
  // Does the same once the rank's container is gone.
  void EndLost(const RankRef& ref, const task::TaskRecord& record,
               const std::string& why);
  Rank* Find(const RankRef& ref);
  Time Now() const { return loop_->Now(); }

  EventLoop* const loop_;
  const std::string shim_program_;
  const std::string boot_id_;
  SupervisorHandler* const handler_;
  std::map<RankRef, Rank> ranks_;
  StuckProcesses stuck_;
  Lifetime lifetime_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_SUPERVISOR_H_
