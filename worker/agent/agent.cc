#include "worker/agent/agent.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "common/wire/evidence_wire.h"
#include "common/wire/gpu_check_wire.h"
#include "common/wire/probe_wire.h"
#include "common/wire/session_wire.h"
#include "common/wire/worker_wire.h"
#include "worker/agent/host/stray_processes.h"
#include "worker/agent/ranks/container_rank.h"
#include "worker/rank_link/packet.h"

namespace lockstep::worker::agent {
namespace {

// Period of log shipping, readings and cleanup.
constexpr Duration kTick = std::chrono::milliseconds(200);
// Grace for ranks when the daemon stops for good.
constexpr Duration kEndOwnTime = std::chrono::seconds(10);

AgentOptions CoreOptions(const DaemonSetup& daemon) {
  AgentOptions options;
  options.node = daemon.node.name;
  return options;
}

v1::WorkerMessage MessageOf(const std::vector<Prefetched>& here) {
  v1::WorkerMessage message;
  *message.mutable_prefetch_status() = ToProto(PrefetchReport{here});
  return message;
}

}  // namespace

StatusOr<std::unique_ptr<Agent>> Agent::Create(
    AgentConfig config, EventLoop* loop, FileSystem* files,
    const devices::GpuSampler* gpus) {
  const std::string& runtime_dir = config.daemon.runtime_dir;
  // The longest name of a socket in there: 16 digits and ".sock".
  if (const size_t size = runtime_dir.size() + 1 + 21;
      size > rank_link::kMaxSocketPath) {
    return InvalidArgument(
        "--runtime-dir {} is too long: a socket path in it has {} bytes, and "
        "Linux allows {}",
        runtime_dir, size, rank_link::kMaxSocketPath);
  }
  LOCKSTEP_RETURN_IF_ERROR(files->MakeDirs(runtime_dir, 0711));
  std::unique_ptr<Agent> agent(new Agent(std::move(config), loop, files, gpus));
  LOCKSTEP_RETURN_IF_ERROR(agent->store_.Init());
  DaemonSetup& daemon = agent->config_.daemon;
  LOCKSTEP_ASSIGN_OR_RETURN(daemon.mark, DirectoryMark(files, daemon.dir));
  LOCKSTEP_RETURN_IF_ERROR(agent->stream_.Load());
  LOCKSTEP_RETURN_IF_ERROR(agent->ranks_.links()->Listen());
  return agent;
}

Agent::Agent(AgentConfig config, EventLoop* loop, FileSystem* files,
             const devices::GpuSampler* gpus)
    : config_(std::move(config)),
      loop_(loop),
      core_(CoreOptions(config_.daemon), loop,
            [this](const Actions& actions) { Execute(actions); }),
      store_(files, config_.daemon.dir),
      removal_(loop, files, &store_),
      work_(&config_.daemon, loop, files, &core_, &removal_),
      containers_(&config_.daemon, loop, config_.container_sweep_every,
                  [this](const std::string& container) {
                    return MayHold(ranks_.table(), container);
                  }),
      ranks_(
          {&config_.daemon, &config_.ranks, loop, files, &core_, &store_,
           &containers_, &work_, config_.cgroups, gpus},
          HooksOfRanks(),
          [this](const v1::WorkerMessage& message) { stream_.Send(message); }),
      preparer_(
          {&config_.daemon, &config_.prepare, loop, files, &core_, &store_,
           &removal_, &containers_, ranks_.cgroups(), ranks_.ports()},
          [this](const GangKey& key) { reports_.Report(key); }),
      prefetcher_(
          &config_.prepare, config_.daemon.dir, loop, &containers_,
          [this] { return preparer_.busy(); },
          [this](const std::vector<Prefetched>& here) {
            if (stream_.welcomed()) stream_.Send(MessageOf(here));
          }),
      reports_(
          {loop, &core_, &store_, &ranks_, &work_, preparer_.times(), &sampler_,
           [this] { stream_.Beat(); }},
          [this](const v1::WorkerMessage& message) { stream_.Send(message); }),
      requests_(&config_.daemon, loop, &work_,
                [this](uint64_t stream, const v1::WorkerMessage& message) {
                  stream_.Answer(stream, message);
                },
                config_.allow_sessions,
                {[this](const RankRef& ref, const SessionRequest& request,
                        const std::vector<int>& fds) {
                   return ranks_.StartSession(ref, request, fds);
                 },
                 [this](const RankRef& ref) -> StatusOr<ProfileTarget> {
                   LOCKSTEP_ASSIGN_OR_RETURN(const pid_t shim,
                                             ranks_.ProcessOf(ref));
                   return ProfileTarget{config_.daemon.node.name, shim,
                                        config_.ranks.stack_tools,
                                        config_.daemon.dir};
                 }},
                {&config_.daemon, loop, config_.gpu_check,
                 [this] { return sampler_.HeldGpus(); },
                 [this](uint64_t stream, const GpuCheckAnswer& answer) {
                   v1::WorkerMessage message;
                   *message.mutable_gpu_check_reply() = ToProto(answer);
                   stream_.Answer(stream, message);
                 }}),
      sampler_({&config_.daemon, &config_.prepare, loop, &core_, gpus, &ranks_,
                &work_}),
      stream_(&config_.daemon, config_.stream, loop, files, ranks_.logs(),
              &sampler_, this) {}

Agent::~Agent() {
  preparer_.CancelAll();
  prefetcher_.CancelAll();
}

RankHooks Agent::HooksOfRanks() {
  RankHooks hooks;
  hooks.mount_of = [this](const GangKey& key, const std::string& path) {
    return preparer_.MountOf(key, path);
  };
  hooks.save = [this](const GangKey& key) { reports_.Save(key); };
  hooks.launching = [this](const GangKey& key) {
    preparer_.times()->NoteLaunch(key, loop_->Now().mono);
  };
  hooks.started = [this](const RankRef& ref) {
    if (const LocalGang* gang = core_.Find(ref.gang)) {
      preparer_.times()->NoteStarted(ref.gang, *gang, ref.rank,
                                     loop_->Now().mono);
    }
  };
  hooks.answer = [this](uint64_t stream, const EvidenceAnswer& answer) {
    v1::WorkerMessage message;
    *message.mutable_evidence_reply() = ToProto(answer);
    stream_.Answer(stream, message);
  };
  hooks.restarting = [this](const GangKey& key) {
    reports_.leftovers()->Reset(key);
  };
  hooks.adopted = [this](const GangKey& key, const GangStatus& status) {
    reports_.leftovers()->Adopt(key, status);
  };
  return hooks;
}

Status Agent::Start(CoordinatorClient* client) {
  LOCKSTEP_ASSIGN_OR_RETURN(const TaskStore::Found found, store_.LoadAll());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> aside, work_.Init());
  sampler_.CheckDisk();
  ranks_.fences()->Load();
  ranks_.Adopt(found, &removal_);
  for (const std::string& directory : aside) removal_.RemoveAside(directory);
  containers_.Sweep();
  LOCKSTEP_RETURN_IF_ERROR(ranks_.links()->Start());
  LOCKSTEP_RETURN_IF_ERROR(requests_.Start());
  Tick();
  stream_.Start(client);
  return OkStatus();
}

void Agent::SetContainerEngine(
    std::shared_ptr<container::ContainerEngine> engine) {
  config_.daemon.node.container_engine = engine->version();
  LOG_INFO("containers run by {} ({}), {}", engine->version(),
           engine->program(),
           engine->can_limit() ? "with limits" : "without limits");
  containers_.SetEngine(std::move(engine));
  if (!stream_.started()) return;  // Start does the rest.
  containers_.Sweep();
  // Registers again: Register carries what this node can run.
  stream_.Reregister();
}

void Agent::Execute(const Actions& actions) {
  std::set<GangKey> changed;
  std::set<GangKey> begun;
  for (const Action& action : actions) {
    const RankRef ref{action.gang, action.rank};
    switch (action.kind) {
      case Action::Kind::kPrepare:
        preparer_.Prepare(action.gang);
        break;
      case Action::Kind::kCheckOutput:
        preparer_.CheckOutput(action.gang);
        break;
      case Action::Kind::kStartRank:
        ranks_.Start(ref, &begun);
        break;
      case Action::Kind::kGo:
      case Action::Kind::kAbort:
      case Action::Kind::kDirective:
        ranks_.links()->Tell(action);
        break;
      case Action::Kind::kRecover:
        ranks_.links()->Expect(ref,
                               store_.PathsOf(action.gang, action.rank).page);
        break;
      case Action::Kind::kCapture:
        Capture(action.gang, action.evidence);
        break;
      case Action::Kind::kKillTree:
        ranks_.Kill(ref, action.grace);
        break;
      case Action::Kind::kRelease:
        preparer_.Release(action.gang);
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
  for (const GangKey& key : changed) reports_.Report(key);
}

void Agent::Capture(const GangKey& key, uint32_t evidence) {
  const LocalGang* const gang = core_.Find(key);
  if (gang == nullptr) return;
  const auto done = [this, key, evidence] {
    core_.Tell([&](AgentCore* core, Actions* out) {
      core->OnCaptured(key, evidence, loop_->Now(), out);
    });
  };
  if (evidence > 0) {
    return ranks_.evidence()->Keep(key, gang->status.job_uid, done);
  }
  std::vector<RankStatus> ended;
  for (const RankStatus& rank : gang->status.ranks) {
    if (rank.exit) ended.push_back(rank);
  }
  ranks_.evidence()->KeepFailure(key, gang->status.job_uid, ended, done);
}

void Agent::Forget(const GangKey& key) {
  // The core does not know the gang any more.
  const std::string uid = ranks_.Forget(key);
  preparer_.Forget(key);
  reports_.Forget(key);
  work_.OnGangForgotten(uid);
  RemoveForgotten();
}

void Agent::RemoveForgotten() {
  std::vector<TaskReading> last;
  const std::vector<GangKey> gone = ranks_.TakeForgotten(
      // Then its folder is in use.
      [this](const GangKey& key) { return preparer_.IsPreparing(key); }, &last);
  sampler_.KeepFinished(std::move(last));
  for (const GangKey& key : gone) {
    removal_.RemoveLater(store_.GangDirectory(key));
  }
}

void Agent::Tick() {
  sampler_.Sample(stream_.welcomed(), stream_.reconnects());
  stream_.ShipLogs();
  ranks_.fences()->Tick();
  ranks_.warm()->Tick();
  RemoveForgotten();
  ranks_.cgroups()->RemoveDropped();
  loop_->At(loop_->Now().mono + kTick, lifetime_.Guard([this] { Tick(); }));
}

void Agent::FillRegistration(Registration* registration) {
  for (const auto& [key, gang] : core_.core().gangs()) {
    registration->gangs.push_back(reports_.StatusOf(key, gang));
  }
  for (const std::string& uid : work_.jobs()) {
    if (registration->work_jobs.size() == kMaxWorkJobs) break;
    registration->work_jobs.push_back(uid);
  }
  registration->reclaims = sampler_.reclaims();
  if (const int port = requests_.probe_port(); port != 0) {
    registration->probe_port = port;
  }
}

void Agent::OnWelcome(bool other_epoch) {
  if (other_epoch) core_.ForgetEpoch();
  work_.ForgetDrops();
  // They ended with the last stream: this coordinator may not know of them.
  requests_.checks()->Cancel();
  ranks_.links()->rendezvous()->SendAll();
}

void Agent::OnMessage(uint64_t stream, const v1::CoordinatorMessage& message) {
  switch (message.message_case()) {
    case v1::CoordinatorMessage::kAssignment: {
      const auto assignment = FromProto(message.assignment());
      if (!assignment.ok()) return LogMalformed(assignment.status());
      if (stream_.Obeys(assignment->epoch)) OnAssignment(*assignment);
      return;
    }
    case v1::CoordinatorMessage::kRendezvousValue: {
      const auto entry = FromProto(message.rendezvous_value());
      if (!entry.ok()) return LogMalformed(entry.status());
      return ranks_.links()->rendezvous()->OnValue(*entry);
    }
    case v1::CoordinatorMessage::kPrefetch: {
      const auto wanted = FromProto(message.prefetch());
      if (!wanted.ok()) return LogMalformed(wanted.status());
      if (stream_.Obeys(wanted->epoch)) prefetcher_.Want(*wanted);
      return;
    }
    case v1::CoordinatorMessage::kFileRequest: {
      const auto query = FromProto(message.file_request());
      if (!query.ok()) return LogMalformed(query.status());
      if (stream_.welcomed()) requests_.OnFile(stream, *query);
      return;
    }
    case v1::CoordinatorMessage::kDropWork:
      // Only a followed coordinator may decide: another one knows other jobs.
      if (!stream_.welcomed()) return;
      ranks_.evidence()->Drop({message.drop_work().job_uids().begin(),
                               message.drop_work().job_uids().end()});
      return work_.Drop({message.drop_work().job_uids().begin(),
                         message.drop_work().job_uids().end()});
    case v1::CoordinatorMessage::kProbeRequest: {
      const auto query = FromProto(message.probe_request());
      if (!query.ok()) return LogMalformed(query.status());
      if (stream_.welcomed()) requests_.OnProbe(stream, *query);
      return;
    }
    case v1::CoordinatorMessage::kNeighbours: {
      const auto list = FromProto(message.neighbours());
      if (!list.ok()) return LogMalformed(list.status());
      if (stream_.welcomed()) ranks_.fences()->SetNeighbours(*list);
      return;
    }
    case v1::CoordinatorMessage::kEvidenceRequest: {
      const auto query = FromProto(message.evidence_request());
      if (!query.ok()) return LogMalformed(query.status());
      if (stream_.welcomed()) ranks_.evidence()->OnQuery(stream, *query);
      return;
    }
    case v1::CoordinatorMessage::kOpenSession: {
      const auto order = FromProto(message.open_session());
      if (!order.ok()) return LogMalformed(order.status());
      if (stream_.welcomed()) requests_.sessions()->OnOrder(*order);
      return;
    }
    case v1::CoordinatorMessage::kGpuCheckRequest: {
      const auto order = FromProto(message.gpu_check_request());
      if (!order.ok()) return LogMalformed(order.status());
      if (stream_.welcomed()) requests_.checks()->OnOrder(stream, *order);
      return;
    }
    // The stream's own.
    case v1::CoordinatorMessage::kWelcome:
    case v1::CoordinatorMessage::kLogAck:
    case v1::CoordinatorMessage::kHeartbeatAck:
    case v1::CoordinatorMessage::MESSAGE_NOT_SET:
      return;
  }
}

void Agent::OnAssignment(const Assignment& assignment) {
  stream_.NoteVersion(assignment.version);
  core_.Tell([&](AgentCore* core, Actions* out) {
    const Status taken = core->OnAssignment(assignment, loop_->Now(), out);
    if (!taken.ok()) LOG_WARN("refused: {}", Message(taken));
  });
}

void Agent::OnReplaced(bool cloned) {
  if (!cloned) return loop_->Stop();
  // The other daemon, or another node, runs these jobs now.
  StopAll();
  LeaveWhenOver(loop_->Now().mono + kEndOwnTime);
}

// Only what this daemon has started or adopted: with the boot, the start time
// and the secret of its shim proven.
void Agent::StopAll() {
  std::vector<Assignment> stops;
  for (const auto& [key, gang] : core_.core().gangs()) {
    if (IsOver(gang.status.phase)) continue;
    Assignment stop;
    stop.job = key.job;
    stop.job_uid = gang.status.job_uid;
    stop.generation = key.generation;
    stop.epoch = core_.core().epoch();
    stop.goal = Goal::kStop;
    stop.stop_message = "another daemon speaks for this node";
    LOG_WARN("{}: ended, because {}", Describe(key), stop.stop_message);
    stops.push_back(std::move(stop));
  }
  for (const Assignment& stop : stops) {
    core_.Tell([&](AgentCore* core, Actions* out) {
      const Status taken = core->OnAssignment(stop, loop_->Now(), out);
      if (!taken.ok()) LOG_ERROR("{}", Message(taken));
    });
  }
}

void Agent::LeaveWhenOver(MonoTime deadline) {
  const auto& gangs = core_.core().gangs();
  const bool over = std::all_of(
      gangs.begin(), gangs.end(),
      [](const auto& gang) { return IsOver(gang.second.status.phase); });
  if (over || loop_->Now().mono >= deadline) return loop_->Stop();
  loop_->At(loop_->Now().mono + kTick,
            lifetime_.Guard([this, deadline] { LeaveWhenOver(deadline); }));
}

}  // namespace lockstep::worker::agent
