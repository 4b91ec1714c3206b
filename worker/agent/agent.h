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

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/model/node.h"
#include "common/os/procfs.h"
#include "common/wire/worker_wire.h"
#include "lockstep/v1/worker.pb.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/agent_metrics.h"
#include "worker/agent/cgroup_tree.h"
#include "worker/agent/coordinator_client.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/log_shipper.h"
#include "worker/agent/out_of_memory.h"
#include "worker/agent/port_lease.h"
#include "worker/agent/port_watch.h"
#include "worker/agent/preflight.h"
#include "worker/agent/rank_environment.h"
#include "worker/agent/supervisor.h"
#include "worker/agent/task_store.h"
#include "worker/agent/work_thread.h"
#include "worker/devices/gpu_sampler.h"
#include "worker/rank_link/server.h"
#include "worker/task/rank_page.h"

namespace lockstep {

// Of the file system that `path` is on.
StatusOr<DiskSpace> ReadDiskSpace(const std::string& path);

// How much of a log is kept where `ranks` share `total` bytes: its beginning
// and its end.
struct LogShare {
  uint64_t head = 0;
  uint64_t tail = 0;
};
LogShare ShareOfLogs(uint64_t total, size_t ranks);

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
  // Of all ranks' logs on this node, about: what each may keep follows.
  uint64_t log_bytes = uint64_t{8} << 30;
  // Below it no gang is prepared.
  DiskFloor disk_floor;
  // Of a directory; for tests.
  std::function<StatusOr<DiskSpace>(const std::string&)> disk_space =
      ReadDiskSpace;
  // Borrowed. Null: ranks share the daemon's own cgroup, without limits.
  CgroupTree* cgroups = nullptr;
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
  void SetHttpAddress(const std::string& address, bool tls) {
    config_.node.http_address = address;
    config_.node.http_tls = tls;
  }
  // Finds what an earlier daemon started, then connects through `client`,
  // which is borrowed. The loop must run afterwards.
  Status Start(CoordinatorClient* client);

  // Why the loop was stopped by the agent itself; OK: it was not. ABORTED:
  // another daemon speaks for this node now.
  const Status& fatal() const { return fatal_; }
  // Unavailable while the coordinator has not admitted this daemon,
  // FailedPrecondition while this daemon does not obey the one that answers.
  // From any thread.
  Status Ready() const ABSL_LOCKS_EXCLUDED(ready_mu_);
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
    // Of this start: of LOCKSTEP_TASK and its cgroup. "": it never started.
    std::string task_id;
    std::set<int32_t> ports;
    // Of those, on which somebody else listens, as far as was told.
    std::set<int32_t> taken;
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
  static Status NotAdmitted();

  // agent.cc: actions of the core.
  void Execute(Actions actions);
  void Prepare(const GangKey& key);
  void OnPrepareDone(const GangKey& key, Prepared prepared);
  void Forget(const GangKey& key);
  void RemoveForgotten();
  void SetCoreTimer();
  void Report(const GangKey& key);
  GangStatus FullStatus(const AgentCore::Gang& gang);

  // agent_adopt.cc
  void AdoptAll(const TaskStore::Found& found);
  void AdoptGang(const StoredGang& stored);
  void AdoptPorts(const StoredGang& stored, GangInfo* gang);
  void ClearDamaged(const std::string& directory);
  void KillStrayProcesses();

  // agent_watch.cc: what a rank's host does to it.
  void WatchDisk();
  void WatchPorts(const std::vector<ProcessStat>& all);
  void ReadHostOomKills();
  void ExplainExit(const RankRef& ref, const task::ExitRecord& record,
                   ExitStatus* exit);
  std::set<int32_t> PortsTaken(const std::set<int32_t>& ports,
                               const std::vector<ProcessStat>& all);
  void EnterCgroup(const RankRef& ref, const LocalTask& task,
                   task::ShimSpec* spec);
  void DropCgroup(const std::string& id);

  // agent_ranks.cc
  void BeforeLaunch(const GangKey& key);
  void StartRank(const GangKey& key, int32_t rank);
  void ExpectRank(const GangKey& key, int32_t rank);
  RankInfo& InfoOf(const RankRef& ref);
  // What the shim of a rank holds: the ports of its task, and the master's.
  std::vector<int> HoldPorts(const RankRef& ref, RankInfo* info);
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
  // Whether to obey a coordinator of `epoch`; a new highest one is on disk
  // before anything is done for it.
  bool Obey(uint64_t epoch);
  void SetReady(Status status) ABSL_LOCKS_EXCLUDED(ready_mu_);
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
  mutable Mutex ready_mu_;
  Status ready_ ABSL_GUARDED_BY(ready_mu_) = NotAdmitted();
  uint64_t highest_epoch_ = 0;
  uint64_t stored_epoch_ = 0;
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
  std::string mark_;  // DirectoryMark.
  OomWatch oom_;
  bool disk_is_full_ = false;
  // Sockets that listen on our ports and were seen to be our ranks'.
  std::set<uint64_t> own_listeners_;
  std::set<std::string> dropped_cgroups_;
  // Cleared by the destructor, for callbacks that come later.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  // Last: its jobs post to the loop.
  std::unique_ptr<WorkThread> work_ = std::make_unique<WorkThread>();
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_AGENT_H_
