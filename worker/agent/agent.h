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
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/model/node.h"
#include "common/os/procfs.h"
#include "common/wire/worker_wire.h"
#include "lockstep/v1/worker.pb.h"
#include "worker/agent/core/agent_core.h"
#include "worker/agent/exits/out_of_memory.h"
#include "worker/agent/host/cgroup_tree.h"
#include "worker/agent/host/orphans.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/work_thread.h"
#include "worker/agent/metrics/agent_metrics.h"
#include "worker/agent/ports/port_lease.h"
#include "worker/agent/ports/port_watch.h"
#include "worker/agent/prepare/module_answers.h"
#include "worker/agent/prepare/prefetch_core.h"
#include "worker/agent/prepare/preflight.h"
#include "worker/agent/prepare/preparation.h"
#include "worker/agent/ranks/rank_environment.h"
#include "worker/agent/ranks/supervisor.h"
#include "worker/agent/readings/rank_readings.h"
#include "worker/agent/store/task_store.h"
#include "worker/agent/stream/coordinator_client.h"
#include "worker/agent/stream/log_shipper.h"
#include "worker/agent/stream/probe.h"
#include "worker/agent/work/work_store.h"
#include "worker/container/container_engine.h"
#include "worker/devices/gpu_sampler.h"
#include "worker/rank_link/server.h"
#include "worker/task/rank_page.h"

namespace lockstep {

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
  // What of it a job may ask for (RankEnvironmentInput).
  std::vector<std::string> inherit = DefaultInherit();
  std::vector<PortRange> port_ranges;
  // Says which certificate is out of its dates, after the connection ended with
  // this; may take half a second, and is called on probe_work_. May be empty.
  std::function<Status(const Status&)> check_dates;
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
  // While containers are there that nobody could remove.
  Duration container_sweep_every = std::chrono::seconds(30);
  // Below it no gang is prepared.
  DiskFloor disk_floor;
  // How long a rank that is started again waits for what its last shim holds.
  Duration shim_leave_time = std::chrono::seconds(10);
  // Of a preparation that fetches; throws std::system_error. For tests.
  std::function<std::thread(std::function<void()>)> start_thread =
      [](std::function<void()> run) { return std::thread(std::move(run)); };
  OutputIdentityOptions output_identity;
  // Of a directory; for tests.
  std::function<StatusOr<DiskSpace>(const std::string&)> disk_space =
      ReadDiskSpace;
  // Borrowed. Null: ranks share the daemon's own cgroup, without limits.
  CgroupTree* cgroups = nullptr;
  // Borrowed. Null: gangs that bring packages are refused.
  PackageCache* packages = nullptr;
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
  // Where other hosts may test whether they reach this one. Before Start.
  void SetProbeListener(std::unique_ptr<ProbeListener> listener) {
    probe_listener_ = std::move(listener);
  }
  void SetHttpAddress(const std::string& address, bool tls) {
    config_.node.http_address = address;
    config_.node.http_tls = tls;
  }
  // Finds what an earlier daemon started, then connects through `client`,
  // which is borrowed. The loop must run afterwards.
  Status Start(CoordinatorClient* client);
  // What runs containers here, once it is known; registers anew where the
  // coordinator knows of none. On the loop's thread, or before Start.
  void SetContainerEngine(std::shared_ptr<ContainerEngine> engine);

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
  void RemoveContainer(const task::TaskRecord& record,
                       std::function<void()> done) override;
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
    std::string job_uid;
    TaskType type = TaskType::kChief;
    int32_t index = 0;
    std::vector<int32_t> gpus;
    WallTime start{};
    int32_t restarts = 0;
    std::unique_ptr<task::PageReader> page;
    RankProgress progress;
    std::optional<task::RankCounters> counters;
    CpuPeak cpu_peak;
    // Empty: not looked for; nothing in it: none of its own.
    std::optional<std::optional<std::string>> cgroup;
    std::optional<TaskCgroupReading> cgroup_reading;
    Usage usage;
    uint64_t read_bytes = 0;
    uint64_t write_bytes = 0;
    double gpu_sum = 0;
    int64_t gpu_samples = 0;
    bool ended = false;
    // What paths.processes holds.
    std::string processes;
    // Of this start: of LOCKSTEP_TASK and its cgroup. "": it never started.
    std::string task_id;
    std::set<int32_t> ports;
    // Of those, on which somebody else was seen to listen, and who.
    std::map<int32_t, std::string> taken;
  };
  // For what the job left, at its end, on the node of rank 0.
  enum class OutputSearch { kNone, kRuns, kDone };
  struct GangInfo {
    std::vector<PortLease> leases;
    std::map<int32_t, std::string> link_nonces;
    // Rendezvous: what its ranks said or asked for, and who waits.
    std::map<std::string, std::string> puts;
    size_t put_bytes = 0;
    std::map<std::string, std::string> values;
    std::map<std::string, std::set<int32_t>> gets;
    OutputSearch search = OutputSearch::kNone;
    std::vector<OutputFile> outputs;
    // As `search`, for the working directories.
    OutputSearch work_walk = OutputSearch::kNone;
    std::vector<WorkDirectory> work;
    std::vector<PackageCache::Lease> packages;
    // Prepared::mounts; empty: it was prepared by an earlier daemon.
    std::map<std::string, ReachedDirectory> mounts;
    // What was said of it; absent: it was prepared by an earlier daemon.
    std::optional<TaskPreparation> preparation;
    // When its ranks were begun, and how long until all of a task (by its
    // index) ran.
    std::optional<MonoTime> launched;
    std::map<size_t, Duration> exec;
  };
  // What gets a gang ready: on work_, or on a thread of its own where it waits
  // for what it fetches. One at a time of a gang's name, in whose folder it is.
  struct Preparing {
    uint64_t run = 0;
    // The gang is gone and one of the same name waits for the end of this.
    bool superseded = false;
    // It fetches: what goes on in it is reported as it goes.
    bool fetches = false;
    // The id of the group that its tools run in; "": none.
    std::string cgroup;
    Cancellation cancel;
    std::thread thread;  // Last: it uses the others.
  };

  // A fetch for jobs that wait: of images one at a time, and of packages.
  struct AheadFetch {
    std::string key;  // Empty: none.
    std::shared_ptr<Cancellation> cancel;
    std::thread thread;
  };

  Agent(AgentConfig config, EventLoop* loop, FileSystem* files,
        const GpuSampler* gpus);
  static Status NotAdmitted();

  // agent.cc: actions of the core.
  void Execute(Actions actions);
  void Forget(const GangKey& key);
  void RemoveForgotten();
  // Gone by its name at once; its files by and by, off the loop.
  void RemoveLater(const std::string& directory);
  // What was set aside so.
  void RemoveAside(const std::string& directory);
  void SetCoreTimer();
  void Report(const GangKey& key);
  GangStatus FullStatus(const LocalGang& gang);

  // agent_prepare.cc
  void StartPreparing(const GangKey& key);
  PreparationInput PreparationOf(const GangKey& key,
                                 const LocalGang& gang);
  void OnPreparing(const GangKey& key, uint64_t run,
                   const TaskPreparation& preparation);
  void ReportIfStillPreparing(const GangKey& key, uint64_t run);
  void OnPrepareDone(const GangKey& key, uint64_t run, Prepared prepared);
  void StartCheckingOutput(const GangKey& key);
  void OnOutputCheckDone(const GangKey& key, uint64_t run, OutputCheck check);
  // On a thread of its own; `failed` where there is none.
  void RunAlone(Preparing* preparing, const std::function<void()>& run,
                const std::function<void(const Status&)>& failed);
  // What ends the preparation `run`; nothing: it is another's.
  std::shared_ptr<Preparing> TakePreparing(const GangKey& key, uint64_t run);
  void Release(const GangKey& key);
  // How long until the task of `ref` ran, if all of it does now.
  void NoteExec(const RankRef& ref);
  void AddPreparations(const GangKey& key, GangStatus* status) const;
  std::string CodeDirectory(const GangKey& key) const;

  // agent_prefetch.cc: what jobs that wait will need.
  void OnPrefetch(const Prefetch& wanted);
  // Begins what is due, ends what nobody wants any more.
  void FetchAhead();
  void FetchImageAhead(const ImageContent& wanted);
  void FetchPackageAhead(const Package& wanted);
  // Runs `fetch` on a thread of its own.
  void RunAhead(AheadFetch* slot, const std::string& key,
                std::function<PrefetchCore::Result(Cancellation*)> fetch);
  void OnAheadDone(AheadFetch* slot, const std::string& key,
                   PrefetchCore::Result result);
  // The disk has no room for what is not needed yet.
  Status RoomAhead() const;
  void ReportAhead();

  // agent_adopt.cc
  void AdoptAll(const TaskStore::Found& found);
  void AdoptGang(const StoredGang& stored);
  void AdoptPorts(const StoredGang& stored, GangInfo* gang);
  void ClearDamaged(const std::string& directory);
  void KillStrayProcesses();

  // agent_container.cc
  // Makes of a rank's `spec` the client of its engine.
  Status PutInContainer(const RankRef& ref, const Assignment& assignment,
                        const LocalTask& task, task::ShimSpec* spec);
  // What the engine is to be given for `image` of the gang.
  std::string ImageToRun(const GangKey& key, const Assignment& assignment,
                         const std::string& image) const;
  StatusOr<ReachedDirectory> ReachMount(const GangKey& key,
                                        const ContainerUser& user,
                                        const std::string& path);
  // Removes what is ours and of no rank here; again after a while, as long as
  // something is left.
  void SweepContainers();
  void SweepContainersLater();
  void RemoveDead(const std::vector<FoundContainer>& found);
  // `dead`: the program of its engine by a container's name.
  void RemoveNext(std::shared_ptr<std::map<std::string, std::string>> dead);
  bool MayHold(const std::string& container) const;
  void TryRemoval(const std::string& name, const std::string& program,
                  std::function<void(const Status&)> done);

  // agent_watch.cc: what a rank's host does to it.
  void WatchDisk();
  void WatchPorts();
  void ReadHostOomKills();
  void ExplainExit(const RankRef& ref, const task::ExitRecord& record,
                   ExitStatus* exit);
  // Of a rank that failed as it could not bind a port that is held for it.
  void NotePlainBind(const RankRef& ref, ExitStatus* exit);
  // Those of `ports` on which a process listens that is none of our ranks',
  // with who it is.
  std::map<int32_t, std::string> PortsTaken(const std::set<int32_t>& ports);
  void EnterCgroup(const RankRef& ref, const LocalTask& task,
                   task::ShimSpec* spec);
  void DropCgroup(const std::string& id);

  // agent_end.cc: what is said of a rank and a gang once they have ended.
  void AddLastWords(const RankRef& ref, ExitStatus* exit);
  // True while the report of the gang's end waits for what is found.
  bool AwaitsOutputs(const GangKey& key);
  void OnOutputs(const GangKey& key, std::vector<OutputFile> outputs);

  // agent_work.cc: working directories.
  // Where the ranks of a task start, if the job does not say.
  std::string WorkOf(const RankRef& ref, const Assignment& assignment,
                     const LocalTask& task) const;
  Status MakeWork(const Assignment& assignment, const LocalTask& task);
  // True while the report of the gang's end waits for what they hold.
  bool AwaitsWork(const GangKey& key);
  void OnWork(const GangKey& key, std::vector<WorkDirectory> work);
  // Some gang of this job is here.
  bool IsHere(const std::string& uid) const;
  // A gang of the job was forgotten.
  void SettleWork(const std::string& uid);
  void OnDropWork(const v1::DropWork& drop);
  void DropWork(const std::string& uid);
  // One of a job that is not here, while the disk is full.
  void DropOldestWork();
  void OnFileRequest(uint64_t stream, const FileQuery& query);

  // agent_restart.cc: a rank that is started again alone.
  bool IsRestart(const RankRef& ref) const;
  void RestartRank(const RankRef& ref);
  void RestartWhenFree(const RankRef& ref, MonoTime kill_at, MonoTime give_up);
  // False: somebody else holds what it needs, so far.
  bool RestoreLeases(const RankRef& ref);

  // agent_ranks.cc
  void BeforeLaunch(const GangKey& key);
  void StartRank(const GangKey& key, int32_t rank);
  void ExpectRank(const GangKey& key, int32_t rank);
  RankInfo& InfoOf(const RankRef& ref);
  // What the shim of a rank holds: the ports of its task, and the master's.
  std::vector<int> HoldPorts(const RankRef& ref, RankInfo* info);
  void NotStarted(const RankRef& ref, int error, const std::string& message);
  RankEnvironmentInput EnvironmentInput(const RankRef& ref,
                                        const Assignment& assignment,
                                        const LocalTask& task);
  task::ShimSpec MakeShimSpec(const RankRef& ref, const Assignment& assignment,
                              const LocalTask& task);
  void Sample();
  void SampleRank(const RankRef& ref, RankInfo* info,
                  const std::vector<ProcessStat>& all);
  void ReadPage(const RankRef& ref, RankInfo* info, bool last);
  TaskReading ReadingOf(const RankRef& ref, const RankInfo& info) const;
  void SampleGpus();
  // New errors wait for the next heartbeat.
  void TakeXids(const std::vector<GpuXids>& xids);
  void PublishMetrics();
  Status Save(const GangKey& key);

  // agent_stream.cc: the stream.
  void Connect();
  void OnMessage(uint64_t stream, const v1::CoordinatorMessage& message);
  void OnClosed(uint64_t stream, const Status& status);
  // At once, without grace.
  void StopAll();
  // Ends the loop once nothing runs here any more, or at `deadline`.
  void LeaveWhenOver(MonoTime deadline);
  void OnWelcome(const WelcomeInfo& welcome);
  // Whether to obey a coordinator; a later state of its store than was obeyed
  // before is on disk before anything is done for it.
  bool Obey(const WelcomeInfo& welcome);
  // The same of an order of a coordinator that was obeyed.
  bool ObeyOrder(uint64_t epoch);
  void Refuse(const Status& status);
  void SaveObeyedPoint();
  // An order was decided with this version of the store.
  void NoteVersion(int64_t version);
  void SetReady(Status status) ABSL_LOCKS_EXCLUDED(ready_mu_);
  void OnRendezvousValue(const RendezvousEntry& entry);
  void OnProbeRequest(uint64_t stream, const ProbeQuery& query);
  void Beat();
  void OnHeartbeatAck(uint64_t sequence);
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
  WorkStore work_store_;
  OrphanReaper orphans_;
  LogShipper shipper_;
  std::unique_ptr<RankLinkServer> link_;
  std::unique_ptr<Supervisor> supervisor_;
  std::map<RankRef, RankInfo> ranks_;
  std::map<GangKey, GangInfo> gangs_;
  std::map<GangKey, std::shared_ptr<Preparing>> preparing_;
  uint64_t last_run_ = 0;
  std::map<GangKey, MonoTime> forgotten_;
  std::vector<std::pair<MonoTime, TaskReading>> finished_;

  CoordinatorClient* client_ = nullptr;
  uint64_t stream_ = 0;
  bool open_ = false;  // Register is sent or on its way.
  bool welcomed_ = false;
  mutable Mutex ready_mu_;
  Status ready_ ABSL_GUARDED_BY(ready_mu_) = NotAdmitted();
  // The newest state of a coordinator's store that was obeyed, and what of it
  // is on disk.
  StorePoint obeyed_;
  StorePoint stored_obeyed_;
  uint64_t sequence_ = 0;  // Of heartbeats in this stream.
  uint64_t acknowledged_ = 0;
  // Heartbeats that were not answered yet, and when they were sent.
  std::map<uint64_t, MonoTime> unanswered_;
  // The GPUs' errors that they told.
  std::map<uint64_t, std::vector<GpuError>> unanswered_errors_;
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
  // In the order of the driver's GPUs: what was said of them already.
  std::vector<GpuXids> known_xids_;
  Status fatal_;
  std::string mark_;  // DirectoryMark.
  OomWatch oom_;
  ModuleAnswers module_answers_;
  // Jobs (by uid) whose program binds its ports without SO_REUSEADDR: their
  // ports are not held.
  std::set<std::string> plain_binders_;
  bool disk_is_full_ = false;
  // Sockets that listen on our ports and were seen to be our ranks'.
  std::set<uint64_t> own_listeners_;
  std::set<std::string> dropped_cgroups_;
  // Cleared by the destructor, for callbacks that come later.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::shared_ptr<ContainerEngine> engine_;  // Null: no containers here.
  const std::unique_ptr<ImageFetcher> images_ =
      std::make_unique<ImageFetcher>();
  PrefetchCore ahead_;
  // By digest, of packages that jobs that wait will need.
  std::map<std::string, PackageCache::Lease> ahead_leases_;
  AheadFetch image_ahead_;
  AheadFetch package_ahead_;
  uint64_t ahead_timer_ = 0;
  // That could not be removed, and the program of their engine.
  std::map<std::string, std::string> left_containers_;
  bool sweeping_ = false;
  bool sweep_is_due_ = false;
  // Jobs whose working directories go as soon as their gangs are gone.
  std::set<std::string> unwanted_work_;
  bool dropping_work_ = false;
  uint64_t dropped_work_ = 0;
  size_t file_requests_ = 0;
  // Last: their jobs post to the loop.
  std::unique_ptr<WorkThread> container_work_ = std::make_unique<WorkThread>();
  std::unique_ptr<WorkThread> removal_work_ = std::make_unique<WorkThread>();
  std::unique_ptr<WorkThread> work_ = std::make_unique<WorkThread>();
  std::unique_ptr<WorkThread> output_work_ = std::make_unique<WorkThread>();
  std::unique_ptr<WorkThread> walk_work_ = std::make_unique<WorkThread>();
  std::unique_ptr<ProbeListener> probe_listener_;
  // Of requests that wait for their answers.
  int probes_ = 0;
  std::unique_ptr<WorkThread> probe_work_ = std::make_unique<WorkThread>();
  std::unique_ptr<WorkThread> file_work_ = std::make_unique<WorkThread>();
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_AGENT_H_
