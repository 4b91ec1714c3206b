// The worker daemon: moves this node towards what the coordinator wants.
//
// AgentCore decides; this does: it talks with the coordinator (stream, full
// report after each connect, heartbeats, logs, rendezvous), with shims
// (Supervisor) and ranks (RankLinkServer), leases ports, reads /proc and
// pages, and keeps on disk what the next daemon must find.
//
// Everything runs on the event loop's thread; what may block runs on a
// WorkThread and comes back by Post. Ranks outlive this object.
#ifndef LOCKSTEP_WORKER_AGENT_AGENT_H_
#define LOCKSTEP_WORKER_AGENT_AGENT_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/node.h"
#include "common/os/procfs.h"
#include "common/wire/worker_wire.h"
#include "lockstep/v1/worker.pb.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/agent_metrics.h"
#include "worker/agent/coordinator_client.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/log_shipper.h"
#include "worker/agent/port_lease.h"
#include "worker/agent/preflight.h"
#include "worker/agent/rank_environment.h"
#include "worker/agent/supervisor.h"
#include "worker/agent/task_store.h"
#include "worker/agent/work_thread.h"
#include "worker/devices/gpu_sampler.h"
#include "worker/rank_link/server.h"
#include "worker/task/rank_page.h"

namespace lockstep {

struct AgentConfig {
  // With the incarnation that is on disk already.
  NodeInfo node;
  std::string dir;          // State that survives a restart.
  std::string runtime_dir;  // Sockets; short.
  std::string shim_program;
  std::optional<TaskUser> user;
  // Of the daemon; an allow-list of it is inherited.
  Environment environment;
  std::vector<PortRange> port_ranges;
  Duration reconnect_first = std::chrono::milliseconds(100);
  Duration reconnect_most = std::chrono::seconds(1);
  // Until the coordinator says otherwise.
  Duration heartbeat_interval = std::chrono::milliseconds(500);
  // For the answer to Register.
  Duration welcome_timeout = std::chrono::seconds(10);
  // Logs of a forgotten gang are given up after it.
  Duration forget_after = std::chrono::minutes(10);
};

class Agent final : public SupervisorHandler, public RankLinkHandler {
 public:
  // All pointers are borrowed; `gpus` may be null. InvalidArgument when
  // runtime_dir is too long for the sockets in it.
  static StatusOr<std::unique_ptr<Agent>> Create(AgentConfig config,
                                                 EventLoop* loop,
                                                 FileSystem* files,
                                                 const GpuSampler* gpus);
  ~Agent() override;

  // What the client must be made with; its events are posted to the loop.
  CoordinatorClient::Events ClientEvents();
  // Where /metrics is. Before Start.
  void SetHttpAddress(const std::string& address) {
    config_.node.http_address = address;
  }
  // Finds what an earlier daemon started, then connects through `client`,
  // which is borrowed. The loop must run afterwards.
  Status Start(CoordinatorClient* client);

  // Why the loop was stopped by the agent itself; OK: it was not. ABORTED:
  // another daemon speaks for this node now.
  const Status& fatal() const { return fatal_; }
  // Unavailable while the coordinator has not admitted this daemon. From any
  // thread.
  Status Ready() const;
  std::shared_ptr<AgentMetrics> metrics() { return metrics_; }
  const AgentCore& core() const { return core_; }

  // SupervisorHandler.
  void OnRankStarted(const RankRef& ref, int64_t pid) override;
  void OnRankExited(const RankRef& ref,
                    const task::ExitRecord& record) override;
  // RankLinkHandler.
  void OnPut(const RankKey& key, const std::string& name,
             const std::string& value) override;
  void OnGet(const RankKey& key, const std::string& name) override;
  void OnJoined(const RankKey& key) override;
  void OnReport(const RankKey& key, const v1::RankReport& report) override;

 private:
  // What is known of a rank beyond the core.
  struct RankInfo {
    RankPaths paths;
    TaskType type = TaskType::kChief;
    int32_t index = 0;
    std::vector<int32_t> gpus;
    WallTime start{};
    int32_t restarts = 0;
    std::unique_ptr<task::PageReader> page;
    RankProgress progress;
    std::optional<task::RankCounters> counters;
    // Empty: not looked for; nothing in it: none of its own.
    std::optional<std::optional<std::string>> cgroup;
    std::optional<TaskCgroupReading> cgroup_reading;
    Usage usage;
    uint64_t read_bytes = 0;
    uint64_t write_bytes = 0;
    double gpu_sum = 0;
    int64_t gpu_samples = 0;
    bool ended = false;
  };
  struct GangInfo {
    std::vector<PortLease> leases;
    std::map<int32_t, std::string> link_nonces;
    // Rendezvous: what its ranks said or asked for, and who waits.
    std::map<std::string, std::string> puts;
    size_t put_bytes = 0;
    std::map<std::string, std::string> values;
    std::map<std::string, std::set<int32_t>> gets;
  };
  struct Prepared {
    Status status;
    std::vector<PortLease> leases;
    int32_t master_port = 0;
  };

  Agent(AgentConfig config, EventLoop* loop, FileSystem* files,
        const GpuSampler* gpus);

  // agent.cc: actions of the core.
  void Execute(Actions actions);
  void Prepare(const GangKey& key);
  void OnPrepareDone(const GangKey& key, Prepared prepared);
  void Forget(const GangKey& key);
  void RemoveForgotten();
  void SetCoreTimer();
  void Report(const GangKey& key);
  GangStatus FullStatus(const AgentCore::Gang& gang);

  // agent_ranks.cc
  void AdoptAll(const TaskStore::Found& found);
  void AdoptGang(const StoredGang& stored);
  void ClearDamaged(const std::string& directory);
  void BeforeLaunch(const GangKey& key);
  void StartRank(const GangKey& key, int32_t rank);
  void ExpectRank(const GangKey& key, int32_t rank);
  RankInfo& InfoOf(const RankRef& ref);
  task::ShimSpec MakeShimSpec(const RankRef& ref, const Assignment& assignment,
                              const LocalTask& task);
  void Sample();
  void SampleRank(const RankRef& ref, RankInfo* info,
                  const std::vector<ProcessStat>& all);
  void ReadPage(const RankRef& ref, RankInfo* info, bool last);
  TaskReading ReadingOf(const RankRef& ref, const RankInfo& info) const;
  void SampleGpus();
  void PublishMetrics();
  Status Save(const GangKey& key);

  // agent_stream.cc: the stream.
  void Connect();
  void OnMessage(uint64_t stream, const v1::CoordinatorMessage& message);
  void OnClosed(uint64_t stream, const Status& status);
  void OnWelcome(const WelcomeInfo& welcome);
  void OnRendezvousValue(const RendezvousEntry& entry);
  void Beat();
  void ShipLogs();
  void Tick();
  void Send(const v1::WorkerMessage& message);

  AgentConfig config_;
  EventLoop* const loop_;
  FileSystem* const files_;
  const GpuSampler* const gpus_;
  const std::shared_ptr<AgentMetrics> metrics_;
  AgentCore core_;
  TaskStore store_;
  LogShipper shipper_;
  std::unique_ptr<RankLinkServer> link_;
  std::unique_ptr<Supervisor> supervisor_;
  std::map<RankRef, RankInfo> ranks_;
  std::map<GangKey, GangInfo> gangs_;
  std::map<GangKey, MonoTime> forgotten_;
  std::vector<std::pair<MonoTime, TaskReading>> finished_;

  CoordinatorClient* client_ = nullptr;
  uint64_t stream_ = 0;
  bool open_ = false;  // Register is sent or on its way.
  bool welcomed_ = false;
  std::atomic<bool> ready_{false};
  uint64_t highest_epoch_ = 0;
  uint64_t sequence_ = 0;  // Of heartbeats in this stream.
  uint64_t acknowledged_ = 0;
  uint64_t reconnects_ = 0;
  Duration heartbeat_interval_;
  Duration backoff_{};
  std::string last_complaint_;
  uint64_t beat_timer_ = 0;
  uint64_t core_timer_ = 0;
  uint64_t welcome_timer_ = 0;

  MonoTime next_sample_;
  CpuSeconds last_cpu_;
  NodeReadings readings_;
  Status fatal_;
  // Cleared by the destructor, for callbacks that come later.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  // Last: its jobs post to the loop.
  std::unique_ptr<WorkThread> work_ = std::make_unique<WorkThread>();
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_AGENT_H_
