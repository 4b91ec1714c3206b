#include "tests/simulation/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace lockstep::simulation {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using worker::agent::Action;
using worker::agent::Actions;
using worker::agent::AgentCore;
using worker::agent::IsOver;
using worker::agent::LocalGang;

constexpr char kMeetingKey[] = "address";
// A waiter gets a value that is there within this time, on a stream whose
// heartbeats are answered.
constexpr Duration kLongestWait = 8s;
constexpr uint64_t kMaxUnanswered = 60;

}  // namespace

Node::Node(const Parts& parts)
    : parts_(parts),
      host_({parts.bug, parts.index, parts.time, parts.story, parts.checker,
             parts.training}) {
  host_.SetEar(this);
}

void Node::Later(Duration delay, std::function<void()> what) {
  parts_.time->After(delay, [this, life = life_, what = std::move(what)] {
    if (life != life_ || !listens()) return;
    if (StandsFor()) return Later(*StandsFor(), what);
    what();
  });
}

std::optional<Duration> Node::StandsFor() const {
  if (parts_.time->now() >= awake_) return std::nullopt;
  return awake_ - parts_.time->now();
}

// ---- The daemon's life ------------------------------------------------------

void Node::StartDaemon() {
  if (daemon_ != nullptr || !host_.powered()) return;
  ++life_;
  dying_ = false;
  worker::agent::AgentOptions options;
  options.node = name();
  daemon_ = std::make_unique<Daemon>(std::move(options));
  daemon_->listens_since = parts_.time->now();
  ++host_.disk()->incarnation;
  LOCKSTEP_TELL(parts_.story, "  the daemon of node {} starts, number {}",
                name(), host_.disk()->incarnation);
  Adopt();
  Connect();
  LookAround();
}

void Node::Adopt() {
  Host::Disk* const disk = host_.disk();
  for (const auto& [key, kept] : disk->gangs) {
    daemon_->core.Adopt(kept.assignment, kept.status);
  }
  const std::map<GangKey, KeptGang> found = disk->gangs;
  for (const auto& [key, kept] : found) {
    if (IsOver(kept.status.phase)) continue;
    for (const RankStatus& status : kept.status.ranks) {
      if (!status.exit) AdoptRank(kept, status);
    }
  }
  // A process without a record would be looked for by no daemon.
  std::vector<int64_t> strays;
  for (const auto& [pid, process] : host_.processes()) {
    if (!disk->gangs.contains(process.ref.gang)) strays.push_back(pid);
  }
  for (const int64_t pid : strays) {
    host_.End(pid, KilledBySignal(SIGKILL, "its shim is gone"));
  }
  host_.Reconnect();
  // By then it has heard how the others have ended, unless it stood still.
  Later(50ms, [this, due = parts_.time->now() + 50ms] {
    if (parts_.time->now() == due) return CheckAdopted();
    Later(50ms, [this] { CheckAdopted(); });
  });
}

void Node::CheckAdopted() {
  for (const auto& [key, gang] : daemon_->core.gangs()) {
    if (gang.status.phase != GangPhase::kLaunched) continue;
    for (const RankStatus& rank : gang.status.ranks) {
      const RankRef ref{key, rank.rank};
      if (rank.exit || rank.state < RankState::kStarted ||
          host_.Find(ref) != nullptr || host_.disk()->exits.contains(ref)) {
        continue;
      }
      parts_.checker->Break(
          Invariant::kS7,
          fmt::format("node {} takes rank {} of job {} g{} for alive, and it "
                      "is not",
                      name(), rank.rank, key.job, key.generation));
    }
  }
}

void Node::AdoptRank(const KeptGang& kept, const RankStatus& status) {
  const Host::Disk& disk = *host_.disk();
  const RankRef ref{{kept.assignment.job, kept.assignment.generation},
                    status.rank};
  const auto record = disk.records.find(ref);
  const auto ended = disk.exits.find(ref);
  if (ended != disk.exits.end()) return OnProcessEnded(ref, ended->second);
  if (record == disk.records.end()) {
    return OnProcessEnded(ref,
                          {KilledBySignal(SIGKILL,
                                          "the worker daemon ended before it "
                                          "started this rank")});
  }
  if (record->second != host_.boot()) {
    if (parts_.bug == Bug::kAdoptsStranger) {
      return Tell([ref](AgentCore* core, Actions* out) {
        core->OnRankStarted(ref.gang, ref.rank, 1, out);
      });
    }
    return OnProcessEnded(ref, {KilledBySignal(SIGKILL, "its host restarted")});
  }
  if (parts_.bug == Bug::kStartsAdoptedAgain) {
    host_.Start(ref, kept.assignment, std::nullopt);
  }
}

void Node::CrashDaemon(Duration down) {
  if (daemon_ == nullptr) return;
  LOCKSTEP_TELL(parts_.story, "  the daemon of node {} is gone", name());
  parts_.network->Close(daemon_->stream);
  daemon_.reset();
  ++life_;
  dying_ = false;
  awake_ = {};
  crash_in_.reset();
  parts_.time->After(healed_ ? Duration(200ms) : down,
                     [this] { StartDaemon(); });
}

void Node::PauseDaemon(Duration time) {
  awake_ = std::max(awake_, parts_.time->now() + time);
}

void Node::LosePower(Duration down) {
  if (!host_.powered()) return;
  // It says no good-bye.
  if (daemon_ != nullptr) parts_.network->Vanish(daemon_->stream);
  CrashDaemon(down);
  host_.LosePower();
  parts_.time->After(down, [this] {
    host_.Boot();
    StartDaemon();
  });
}

void Node::Heal() {
  healed_ = true;
  crash_in_.reset();
  refuses_ = false;
  host_.Boot();
  StartDaemon();
}

// ---- The stream -------------------------------------------------------------

void Node::Connect() {
  Daemon* const daemon = daemon_.get();
  Registering registering;
  NodeInfo& info = registering.info;
  info.name = name();
  info.incarnation = {host_.disk()->incarnation,
                      host_.disk()->incarnation * 1000};
  info.boot_id = fmt::format("boot-{}-{}", name(), host_.boot());
  info.hostname = name();
  info.version = "test";
  info.address = fmt::format("10.0.0.{}", parts_.index + 1);
  info.capacity = {3, int64_t{8} << 30, 2, "T4"};
  info.gpus = {{0, "", "T4", 0}, {1, "", "T4", 0}};
  for (const auto& [key, gang] : daemon->core.gangs()) {
    registering.gangs.push_back(StatusOf(gang));
  }
  registering.obeyed = host_.disk()->obeyed;
  daemon->open = true;
  daemon->welcomed = false;
  daemon->sequence = daemon->answered = 0;
  daemon->beats.clear();
  daemon->stream =
      parts_.network->Connect(parts_.index, std::move(registering));
  Later(10s, [this, stream = daemon->stream] {
    if (daemon_->stream != stream || daemon_->welcomed) return;
    parts_.network->Close(stream);
    OnStreamClosed(stream, Unavailable("no answer"));
  });
}

void Node::OnStreamClosed(uint64_t stream, const Status& status) {
  if (!listens()) return;
  if (StandsFor()) {
    return Later(*StandsFor(), [=, this] { OnStreamClosed(stream, status); });
  }
  if (stream != daemon_->stream || !daemon_->open) return;
  daemon_->open = daemon_->welcomed = false;
  if (status.code() == StatusCode::kAborted) {
    // Another daemon speaks for the node. Here none does, so the process is
    // started again.
    return Later(1ms, [this] { CrashDaemon(500ms); });
  }
  const Duration wait =
      parts_.time->Delay(100ms, healed_ ? 300ms : 1s, {30, stream});
  Later(wait, [this, stream] {
    if (daemon_->stream == stream && !daemon_->open) Connect();
  });
}

void Node::OnWelcome(uint64_t stream, const StorePoint& coordinator) {
  if (!listens()) return;
  if (StandsFor()) {
    return Later(*StandsFor(), [=, this] { OnWelcome(stream, coordinator); });
  }
  if (stream != daemon_->stream || !daemon_->open) return;
  StorePoint* const obeyed = &host_.disk()->obeyed;
  if (IsOutdated(coordinator, std::vector<std::string>(), *obeyed)) {
    parts_.network->Close(stream);
    return OnStreamClosed(stream, Unavailable("outdated"));
  }
  if (coordinator.epoch != obeyed->epoch) daemon_->core.ForgetEpoch();
  const int64_t version = obeyed->version;
  *obeyed = coordinator;
  obeyed->version = version;
  daemon_->welcomed = true;
  daemon_->well_since = parts_.time->now();
  Contact(true, parts_.time->now());
  if (parts_.bug != Bug::kDropsWaiter) {
    for (const GangKey& key : daemon_->gets) SendGet(key);
  }
  for (const GangKey& key : daemon_->puts) SendPut(key);
  Beat();
}

void Node::OnOrder(uint64_t stream, const Assignment& order) {
  if (!listens()) return;
  if (StandsFor()) {
    return Later(*StandsFor(), [=, this] { OnOrder(stream, order); });
  }
  StorePoint* const obeyed = &host_.disk()->obeyed;
  const bool followed = stream == daemon_->stream && daemon_->open &&
                        daemon_->welcomed && order.epoch == obeyed->epoch;
  if (!followed && parts_.bug != Bug::kForgetsEpochCheck) return;
  parts_.checker->OnObeyed(name(), order, followed);
  obeyed->version = std::max(obeyed->version, order.version);
  const GangKey key{order.job, order.generation};
  const LocalGang* const gang = daemon_->core.Find(key);
  if (parts_.bug == Bug::kStartsTwice && gang != nullptr &&
      order.goal == Goal::kLaunch &&
      gang->status.phase == GangPhase::kLaunched) {
    for (const RankStatus& rank : gang->status.ranks) {
      host_.Start({key, rank.rank}, order, std::nullopt);
    }
  }
  LOCKSTEP_TELL(parts_.story, "  node {} is told to {} job {} g{}", name(),
                lockstep::Name(order.goal), order.job, order.generation);
  Tell([&](AgentCore* core, Actions* out) {
    (void)core->OnAssignment(order, {parts_.time->now(), host_.wall()}, out);
  });
}

void Node::Beat() {
  Daemon* const daemon = daemon_.get();
  if (!daemon->welcomed) return;
  if (daemon->sequence > daemon->answered + kMaxUnanswered) {
    const uint64_t stream = daemon->stream;
    parts_.network->Close(stream);
    return OnStreamClosed(stream, Unavailable("beats are not answered"));
  }
  const MonoTime now = parts_.time->now();
  NodeReadings readings;
  readings.cpu_utilization = 0.5;
  readings.memory_available_bytes = 1 << 30;
  readings.send_time = host_.wall();
  std::vector<server::NodeSessions::RankReport> reports;
  for (const auto& [key, gang] : daemon->core.gangs()) {
    if (gang.status.phase != GangPhase::kLaunched) continue;
    reports.push_back({key.job, key.generation, StatusOf(gang).ranks});
  }
  const uint64_t sequence = ++daemon->sequence;
  daemon->beats[sequence] = now;
  if (now - daemon->beats.begin()->second > 2s * parts_.plan.slow) {
    daemon->well_since = now;
  }
  parts_.network->Send(
      daemon->stream,
      [this, sequence, readings, reports = std::move(reports)](
          server::Coordinator* coordinator, server::SessionId session) {
        parts_.checker->OnHeard(name());
        return coordinator->sessions()->OnHeartbeat(session, sequence, readings,
                                                    reports);
      });
  CheckWaiters();
  Later(800ms * parts_.plan.slow, [this, stream = daemon->stream] {
    if (daemon_->stream == stream) Beat();
  });
}

// With a stream and without.
void Node::LookAround() {
  AskNeighbours();
  Later(1s, [this] { LookAround(); });
}

void Node::OnBeatAnswered(uint64_t stream, uint64_t sequence) {
  if (!listens()) return;
  if (StandsFor()) {
    return Later(*StandsFor(), [=, this] { OnBeatAnswered(stream, sequence); });
  }
  if (stream != daemon_->stream) return;
  daemon_->answered = std::max(daemon_->answered, sequence);
  const auto sent = daemon_->beats.find(sequence);
  if (sent == daemon_->beats.end()) return;
  Contact(true, sent->second);
  daemon_->beats.erase(daemon_->beats.begin(), std::next(sent));
}

// A value that the coordinator has is sent to whoever asks for it. What a
// daemon asked for on one stream it asks for again on the next.
void Node::CheckWaiters() {
  const MonoTime now = parts_.time->now();
  for (const auto& [pid, process] : host_.processes()) {
    if (!process.waits) continue;
    const std::optional<MonoTime> put = parts_.checker->PutSince(
        process.uid, process.ref.gang.generation, parts_.control->life());
    if (!put) continue;
    const MonoTime since = std::max({*put, *process.waits, daemon_->well_since,
                                     parts_.control->awake(), awake_});
    if (now - since < kLongestWait * parts_.plan.slow) continue;
    parts_.checker->Break(
        Invariant::kS9,
        fmt::format("rank {} of job {} g{} waits on node {} for a value that "
                    "is there",
                    process.ref.rank, process.ref.gang.job,
                    process.ref.gang.generation, name()));
  }
}

// ---- Ranks ------------------------------------------------------------------

void Node::OnNews(const RankHost::News& news) {
  if (StandsFor()) return Later(*StandsFor(), [=, this] { OnNews(news); });
  Tell([&](AgentCore* core, Actions* out) {
    news(core, {parts_.time->now(), host_.wall()}, out);
  });
}

void Node::OnProcessEnded(const RankRef& ref, const EndedRank& ended) {
  Later(1ms, [this, ref, ended] {
    Tell([&](AgentCore* core, Actions* out) {
      core->OnRankExited(ref.gang, ref.rank, ended.exit, ended.progress,
                         Usage(), out);
    });
  });
}

void Node::OnProcessWaits(int64_t pid) {
  if (StandsFor()) {
    return Later(*StandsFor(), [=, this] { OnProcessWaits(pid); });
  }
  const auto process = host_.processes().find(pid);
  if (process == host_.processes().end()) return;
  const GangKey key = process->second.ref.gang;
  daemon_->gets.insert(key);
  if (daemon_->welcomed) SendGet(key);
}

void Node::OnProcessPuts(const RankRef& ref) {
  if (StandsFor()) {
    return Later(*StandsFor(), [=, this] { OnProcessPuts(ref); });
  }
  daemon_->puts.insert(ref.gang);
  if (daemon_->welcomed) SendPut(ref.gang);
}

void Node::SendGet(const GangKey& key) {
  parts_.network->Send(daemon_->stream, [key](server::Coordinator* coordinator,
                                              server::SessionId session) {
    return coordinator->sessions()->OnRendezvousGet(
        session, key.job, key.generation, kMeetingKey);
  });
}

void Node::SendPut(const GangKey& key) {
  const LocalGang* const gang = daemon_->core.Find(key);
  if (gang == nullptr) return;
  const std::string uid = gang->status.job_uid;
  parts_.network->Send(
      daemon_->stream, [this, key, uid](server::Coordinator* coordinator,
                                        server::SessionId session) {
        const Status put = coordinator->sessions()->OnRendezvousPut(
            session, key.job, key.generation, kMeetingKey, "10.0.0.1:7");
        if (put.ok()) {
          parts_.checker->OnPut(uid, key.generation, parts_.control->life());
        }
        return put;
      });
}

void Node::OnValue(uint64_t stream, const JobName& job, Generation generation,
                   const std::string& key, const std::string& value) {
  if (!listens()) return;
  if (StandsFor()) {
    return Later(*StandsFor(),
                 [=, this] { OnValue(stream, job, generation, key, value); });
  }
  if (stream != daemon_->stream) return;
  daemon_->gets.erase({job, generation});
  host_.OnValue({job, generation});
}

}  // namespace lockstep::simulation
