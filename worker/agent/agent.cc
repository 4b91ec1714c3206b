#include "worker/agent/agent.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/fault_point.h"
#include "common/base/logging.h"
#include "worker/agent/host/stray_processes.h"
#include "worker/rank_link/packet.h"

namespace lockstep {
namespace {

AgentOptions CoreOptions(const AgentConfig& config) {
  AgentOptions options;
  options.node = config.node.name;
  return options;
}

}  // namespace

StatusOr<std::unique_ptr<Agent>> Agent::Create(AgentConfig config,
                                               EventLoop* loop,
                                               FileSystem* files,
                                               const GpuSampler* gpus) {
  // The longest name of a socket in there: 16 digits and ".sock".
  if (const size_t size = config.runtime_dir.size() + 1 + 21;
      size > kMaxSocketPath) {
    return InvalidArgument(
        "--runtime_dir {} is too long: a socket in it would have a path of {} "
        "bytes, and Linux takes {}",
        config.runtime_dir, size, kMaxSocketPath);
  }
  LOCKSTEP_RETURN_IF_ERROR(files->MakeDirs(config.runtime_dir, 0711));
  std::unique_ptr<Agent> agent(new Agent(std::move(config), loop, files, gpus));
  LOCKSTEP_RETURN_IF_ERROR(agent->store_.Init());
  LOCKSTEP_ASSIGN_OR_RETURN(agent->mark_,
                            DirectoryMark(files, agent->config_.dir));
  LOCKSTEP_ASSIGN_OR_RETURN(agent->stored_obeyed_,
                            LoadObeyed(files, agent->config_.dir));
  agent->obeyed_ = agent->stored_obeyed_;
  LOCKSTEP_ASSIGN_OR_RETURN(
      agent->link_,
      RankLinkServer::Listen(JoinPath(agent->config_.runtime_dir, "link.sock"),
                             agent.get()));
  return agent;
}

Agent::Agent(AgentConfig config, EventLoop* loop, FileSystem* files,
             const GpuSampler* gpus)
    : config_(std::move(config)),
      loop_(loop),
      files_(files),
      gpus_(gpus),
      metrics_(std::make_shared<AgentMetrics>(
          AgentMetrics::Options{.gpus = gpus,
                                .hostname = config_.node.hostname,
                                .dir = config_.dir,
                                .offered = config_.node.gpus})),
      core_(CoreOptions(config_)),
      store_(files, config_.dir),
      work_store_(files, config_.dir),
      shipper_(LogShipperOptions(), files),
      supervisor_(std::make_unique<Supervisor>(loop, config_.shim_program,
                                               config_.node.boot_id, this)),
      heartbeat_interval_(config_.heartbeat_interval) {}

Agent::~Agent() {
  *alive_ = false;
  for (const auto& [key, preparing] : preparing_) preparing->cancel.Cancel();
  for (const auto& [key, preparing] : preparing_) {
    if (preparing->thread.joinable()) preparing->thread.join();
  }
  for (AheadFetch* ahead : {&image_ahead_, &package_ahead_}) {
    if (ahead->cancel != nullptr) ahead->cancel->Cancel();
    if (ahead->thread.joinable()) ahead->thread.join();
  }
  work_.reset();  // Its jobs use the rest.
  output_work_.reset();
  walk_work_.reset();
  file_work_.reset();
  probe_work_.reset();
  container_work_.reset();
  removal_work_.reset();
  if (link_) loop_->Unwatch(link_->fd());
  if (probe_listener_ != nullptr) loop_->Unwatch(probe_listener_->fd());
}

Status Agent::Start(CoordinatorClient* client) {
  client_ = client;
  LOCKSTEP_ASSIGN_OR_RETURN(const TaskStore::Found found, store_.LoadAll());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> dropped,
                            work_store_.Init());
  WatchDisk();
  AdoptAll(found);
  for (const std::string& directory : dropped) RemoveAside(directory);
  SweepContainers();
  LOCKSTEP_RETURN_IF_ERROR(
      loop_->Watch(link_->fd(), [this] { link_->Dispatch(); }));
  if (probe_listener_ != nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(loop_->Watch(
        probe_listener_->fd(), [this] { probe_listener_->Dispatch(); }));
  }
  Tick();
  Connect();
  return OkStatus();
}

Status Agent::NotAdmitted() {
  return Unavailable("the coordinator has not admitted this worker");
}

Status Agent::Ready() const {
  MutexLock lock(&ready_mu_);
  return ready_;
}

void Agent::SetReady(Status status) {
  MutexLock lock(&ready_mu_);
  ready_ = std::move(status);
}

void Agent::Execute(Actions actions) {
  std::set<GangKey> changed;
  std::set<GangKey> launched;
  for (const Action& action : actions) {
    const RankKey link_key{action.gang.job, action.gang.generation,
                           action.rank};
    const RankRef ref{action.gang, action.rank};
    switch (action.kind) {
      case Action::Kind::kPrepare:
        StartPreparing(action.gang);
        break;
      case Action::Kind::kCheckOutput:
        StartCheckingOutput(action.gang);
        break;
      case Action::Kind::kStartRank:
        if (IsRestart(ref)) {
          RestartRank(ref);
          break;
        }
        if (launched.insert(action.gang).second) BeforeLaunch(action.gang);
        StartRank(action.gang, action.rank);
        break;
      case Action::Kind::kGo:
        link_->SendGo(link_key);
        break;
      case Action::Kind::kAbort:
        link_->SendAbort(link_key, action.message);
        break;
      case Action::Kind::kDirective:
        link_->SendDirective(link_key, action.directive.id,
                             action.directive.kind == DirectiveKind::kStop
                                 ? v1::RankDirective::STOP
                                 : v1::RankDirective::CHECKPOINT);
        break;
      case Action::Kind::kKillTree:
        supervisor_->KillTree(ref, action.grace);
        break;
      case Action::Kind::kRelease:
        Release(action.gang);
        break;
      case Action::Kind::kReport:
        changed.insert(action.gang);
        break;
      case Action::Kind::kForget:
        changed.erase(action.gang);
        Forget(action.gang);
        break;
    }
  }
  for (const GangKey& key : changed) Report(key);
  SetCoreTimer();
}

void Agent::SetCoreTimer() {
  if (core_timer_ != 0) loop_->CancelTimer(core_timer_);
  core_timer_ = 0;
  const auto deadline = core_.NextDeadline();
  if (!deadline) return;
  core_timer_ = loop_->At(*deadline, [this, alive = alive_] {
    if (!*alive) return;
    core_timer_ = 0;
    Actions actions;
    core_.OnTick(loop_->Now(), &actions);
    Execute(std::move(actions));
  });
}

void Agent::Report(const GangKey& key) {
  const LocalGang* gang = core_.Find(key);
  if (gang == nullptr) return;
  // From LAUNCHED on there is something that the next daemon must find.
  if (gang->status.phase >= GangPhase::kLaunched &&
      gang->assignment.spec.has_value()) {
    if (const Status saved = Save(key); !saved.ok()) {
      LOG_ERROR("{}: {}", Describe(key), Message(saved));
    }
  }
  const bool awaits_outputs = AwaitsOutputs(key);
  if (AwaitsWork(key) || awaits_outputs) return;
  v1::WorkerMessage message;
  *message.mutable_gang_status() = ToProto(FullStatus(*gang));
  Send(message);
}

GangStatus Agent::FullStatus(const LocalGang& gang) {
  GangStatus status = gang.status;
  const GangKey key{status.job, status.generation};
  for (RankStatus& rank : status.ranks) {
    const auto it = ranks_.find({key, rank.rank});
    if (it == ranks_.end() || rank.exit) continue;
    rank.progress = it->second.progress;
    rank.usage = it->second.usage;
  }
  if (const auto it = gangs_.find(key); it != gangs_.end()) {
    status.outputs = it->second.outputs;
    status.work = it->second.work;
  }
  AddPreparations(key, &status);
  return status;
}

Status Agent::Save(const GangKey& key) {
  const LocalGang* gang = core_.Find(key);
  if (gang == nullptr) return OkStatus();
  return store_.Save(
      {gang->assignment, FullStatus(*gang), gangs_[key].link_nonces});
}

void Agent::Forget(const GangKey& key) {
  for (const auto& [ref, info] : ranks_) {
    if (ref.gang != key) continue;
    link_->Forget({key.job, key.generation, ref.rank});
    // Logs of a gang that its store does not know are not answered before.
    shipper_.SendAgain(ref);
  }
  // The core knows it no more; that is still here.
  std::string uid;
  for (const auto& [ref, info] : ranks_) {
    if (ref.gang == key) uid = info.job_uid;
  }
  gangs_.erase(key);
  SettleWork(uid);
  forgotten_[key] = loop_->Now().mono;
  RemoveForgotten();
}

void Agent::RemoveForgotten() {
  const MonoTime now = loop_->Now().mono;
  std::erase_if(forgotten_, [&](const auto& entry) {
    const GangKey& key = entry.first;
    if (core_.Find(key) != nullptr) return true;  // It came back.
    if (preparing_.contains(key)) return false;   // Its folder is in use.
    std::vector<RankRef> refs;
    bool shipped = true;
    for (const auto& [ref, info] : ranks_) {
      if (ref.gang != key) continue;
      refs.push_back(ref);
      shipped = shipped && shipper_.Done(ref);
    }
    if (!shipped && now - entry.second < config_.forget_after) return false;
    for (const RankRef& ref : refs) {
      finished_.emplace_back(now, ReadingOf(ref, ranks_[ref]));
      shipper_.Remove(ref);
      ranks_.erase(ref);
    }
    RemoveLater(store_.GangDirectory(key));
    return true;
  });
}

void Agent::RemoveLater(const std::string& directory) {
  const auto aside = store_.SetAside(directory);
  if (aside.ok()) return RemoveAside(*aside);
  if (aside.status().code() != StatusCode::kNotFound) {
    LOG_WARN("{}", Message(aside.status()));
  }
}

void Agent::RemoveAside(const std::string& directory) {
  removal_work_->Add([files = files_, directory] {
    if (const Status removed = files->RemoveAll(directory); !removed.ok()) {
      LOG_WARN("{}: the next start of the worker tries it again",
               Message(removed));
    }
  });
}

void Agent::OnRankStarted(const RankRef& ref, int64_t pid) {
  (void)FaultPoint("worker.after_start");
  Actions actions;
  core_.OnRankStarted(ref.gang, ref.rank, pid, &actions);
  NoteExec(ref);
  LOG_INFO("{}: {} as process {}", Describe(ref),
           actions.empty() ? "goes on" : "started", pid);
  Execute(std::move(actions));
}

}  // namespace lockstep
