// The stream to the coordinator, and what ranks and coordinator say to each
// other through it.
#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "common/base/random.h"
#include "common/model/reduction_plan.h"
#include "common/wire/field_checker.h"
#include "common/wire/probe_wire.h"
#include "worker/agent/agent.h"
#include "worker/agent/core/printable_text.h"
#include "worker/rank_link/packet.h"

namespace lockstep {
namespace {

// Logs, readings and cleaning up, beside what events cause.
constexpr Duration kTick = std::chrono::milliseconds(200);
// A stream that takes messages and gives none back is a dead one.
constexpr uint64_t kMaxUnacknowledged = 60;
constexpr size_t kMaxPutBytes = 64 << 20;  // Of one gang.
constexpr int kMaxProbes = 32;
// The coordinator's word for a daemon that has no business here.
constexpr char kClonedNode[] = "CLONED_NODE";
// What a daemon that leaves for good gives its ranks to end.
constexpr Duration kEndOwnTime = std::chrono::seconds(10);

GangKey KeyOf(const RankKey& key) { return {key.job, key.generation}; }

// What would make the coordinator refuse the whole status is not passed on.
void TakeReductionPlan(const v1::RankReport& report, RankNews* news) {
  if (report.reduction_plan().empty()) return;
  const auto plan = ParseReductionPlan(report.reduction_plan());
  if (plan.ok()) {
    news->reduction_plan = report.reduction_plan();
  } else {
    news->event = "told a reduction plan that is not kept: " +
                  std::string(Message(plan.status()));
  }
}

}  // namespace

CoordinatorClient::Events Agent::ClientEvents() {
  CoordinatorClient::Events events;
  events.message = [this, alive = alive_](uint64_t stream,
                                          v1::CoordinatorMessage message) {
    auto shared = std::make_shared<v1::CoordinatorMessage>(std::move(message));
    loop_->Post([this, alive, stream, shared] {
      if (*alive) OnMessage(stream, *shared);
    });
  };
  events.closed = [this, alive = alive_](uint64_t stream, Status status) {
    loop_->Post([this, alive, stream, status] {
      if (*alive) OnClosed(stream, status);
    });
  };
  return events;
}

void Agent::Send(const v1::WorkerMessage& message) {
  // Before Register there is nothing to add to: it tells everything.
  if (open_) client_->Send(message);
}

void Agent::Connect() {
  Registration registration;
  registration.node = config_.node;
  for (const auto& [key, gang] : core_.gangs()) {
    registration.gangs.push_back(FullStatus(gang));
  }
  for (const std::string& uid : work_store_.jobs()) {
    if (registration.work_jobs.size() == kMaxWorkJobs) break;
    registration.work_jobs.push_back(uid);
  }
  if (!obeyed_.history.empty()) registration.obeyed = obeyed_;
  if (probe_listener_ != nullptr) {
    registration.probe_port = probe_listener_->port();
  }
  sequence_ = 0;
  acknowledged_ = 0;
  unanswered_.clear();
  // What an ended stream did not deliver is told again: a fatal error decides
  // whether the GPU gets new work.
  for (auto& [sequence, errors] : unanswered_errors_) {
    for (const GpuError& error : errors) {
      if (readings_.gpu_errors.size() >= kMaxGpuErrors) break;
      readings_.gpu_errors.push_back(error);
    }
  }
  unanswered_errors_.clear();
  readings_.round_trip.reset();
  open_ = true;
  welcomed_ = false;
  stream_ = client_->Connect(ToProto(registration), obeyed_.epoch);
  welcome_timer_ =
      loop_->At(loop_->Now().mono + config_.welcome_timeout,
                [this, alive = alive_, stream = stream_] {
                  if (!*alive || stream != stream_ || welcomed_ || !open_)
                    return;
                  LOG_WARN("the coordinator does not answer: connecting again");
                  client_->Disconnect();
                });
}

void Agent::OnClosed(uint64_t stream, const Status& status) {
  if (stream != stream_ || !open_) return;
  // An attempt that never got a Welcome broke no stream.
  if (welcomed_) ++reconnects_;
  open_ = false;
  welcomed_ = false;
  // Why a coordinator is not obeyed stays until one is.
  if (Ready().ok()) SetReady(NotAdmitted());
  loop_->CancelTimer(beat_timer_);
  loop_->CancelTimer(welcome_timer_);
  if (status.code() == StatusCode::kAborted) {
    fatal_ = Aborted("another daemon speaks for node {} now: {}",
                     config_.node.name, Message(status));
    if (ReasonOf(status) != kClonedNode) return loop_->Stop();
    // What it runs is run by the other daemon, or elsewhere.
    StopAll();
    return LeaveWhenOver(loop_->Now().mono + kEndOwnTime);
  }
  // It is older than it can tell by its Welcome, so it sent none.
  if (ReasonOf(status) == "COORDINATOR_OUTDATED" &&
      Ready().code() != StatusCode::kFailedPrecondition) {
    Refuse(status);
  }
  const std::string complaint =
      status.ok() ? "the coordinator closed the stream" : status.ToString();
  if (complaint != last_complaint_) {
    LOG_WARN("not connected with the coordinator: {}", complaint);
    last_complaint_ = complaint;
    const bool unreachable = status.code() == StatusCode::kUnavailable;
    if (unreachable && config_.check_dates) {
      // Not here: it may wait for a host that does not answer.
      probe_work_->Add([check = config_.check_dates, status] {
        const Status dates = check(status);
        if (!dates.ok()) LOG_ERROR("{}", Message(dates));
      });
    }
  }
  backoff_ = backoff_ == Duration{}
                 ? config_.reconnect_first
                 : std::min(backoff_ * 2, config_.reconnect_most);
  // Between half and the whole: many daemons must not come at one time.
  const Duration wait =
      backoff_ / 2 +
      Duration(static_cast<int64_t>(
          RandomUint64() % static_cast<uint64_t>(backoff_.count() / 2 + 1)));
  loop_->At(loop_->Now().mono + wait, [this, alive = alive_] {
    if (*alive && !open_) Connect();
  });
}

void Agent::OnMessage(uint64_t stream, const v1::CoordinatorMessage& message) {
  if (stream != stream_ || !open_) return;
  const auto refuse = [](const Status& status) {
    LOG_ERROR("a message of the coordinator makes no sense: {}",
              Message(status));
  };
  switch (message.message_case()) {
    case v1::CoordinatorMessage::kWelcome: {
      const auto welcome = FromProto(message.welcome());
      if (!welcome.ok()) return refuse(welcome.status());
      return OnWelcome(*welcome);
    }
    case v1::CoordinatorMessage::kAssignment: {
      const auto assignment = FromProto(message.assignment());
      if (!assignment.ok()) return refuse(assignment.status());
      if (!ObeyOrder(assignment->epoch)) return;
      NoteVersion(assignment->version);
      Actions actions;
      const Status taken =
          core_.OnAssignment(*assignment, loop_->Now(), &actions);
      if (!taken.ok()) LOG_WARN("refused: {}", Message(taken));
      return Execute(std::move(actions));
    }
    case v1::CoordinatorMessage::kRendezvousValue: {
      const auto entry = FromProto(message.rendezvous_value());
      if (!entry.ok()) return refuse(entry.status());
      return OnRendezvousValue(*entry);
    }
    case v1::CoordinatorMessage::kLogAck: {
      const auto ack = FromProto(message.log_ack());
      if (!ack.ok()) return refuse(ack.status());
      shipper_.OnAck(*ack, loop_->Now().mono);
      return ShipLogs();
    }
    case v1::CoordinatorMessage::kHeartbeatAck:
      return OnHeartbeatAck(message.heartbeat_ack().sequence());
    case v1::CoordinatorMessage::kPrefetch: {
      const auto wanted = FromProto(message.prefetch());
      if (!wanted.ok()) return refuse(wanted.status());
      if (!ObeyOrder(wanted->epoch)) return;
      return OnPrefetch(*wanted);
    }
    case v1::CoordinatorMessage::kFileRequest: {
      const auto query = FromProto(message.file_request());
      if (!query.ok()) return refuse(query.status());
      if (!welcomed_) return;
      return OnFileRequest(stream, *query);
    }
    case v1::CoordinatorMessage::kDropWork:
      // Only of one that is obeyed: another knows other jobs.
      if (!welcomed_) return;
      return OnDropWork(message.drop_work());
    case v1::CoordinatorMessage::kProbeRequest: {
      const auto query = FromProto(message.probe_request());
      if (!query.ok()) return refuse(query.status());
      if (!welcomed_) return;
      return OnProbeRequest(stream, *query);
    }
    case v1::CoordinatorMessage::MESSAGE_NOT_SET:
      return;
  }
}

// Only what this daemon has started or adopted: with the boot, the start time
// and the secret of its shim proven.
void Agent::StopAll() {
  std::vector<Assignment> stops;
  for (const auto& [key, gang] : core_.gangs()) {
    if (IsOver(gang.status.phase)) continue;
    Assignment stop;
    stop.job = key.job;
    stop.job_uid = gang.status.job_uid;
    stop.generation = key.generation;
    stop.epoch = core_.epoch();
    stop.goal = Goal::kStop;
    stop.stop_message = "another daemon speaks for this node";
    LOG_WARN("{}: ended, as {}", Describe(key), stop.stop_message);
    stops.push_back(std::move(stop));
  }
  for (const Assignment& stop : stops) {
    Actions actions;
    const Status taken = core_.OnAssignment(stop, loop_->Now(), &actions);
    if (!taken.ok()) LOG_ERROR("{}", Message(taken));
    Execute(std::move(actions));
  }
}

void Agent::LeaveWhenOver(MonoTime deadline) {
  const auto& gangs = core_.gangs();
  const bool over = std::all_of(
      gangs.begin(), gangs.end(),
      [](const auto& gang) { return IsOver(gang.second.status.phase); });
  if (over || loop_->Now().mono >= deadline) return loop_->Stop();
  loop_->At(loop_->Now().mono + kTick, [this, deadline, alive = alive_] {
    if (*alive) LeaveWhenOver(deadline);
  });
}

void Agent::Refuse(const Status& status) {
  if (Ready().code() != status.code()) LOG_ERROR("{}", Message(status));
  SetReady(status);
  // There is no haste.
  backoff_ = config_.reconnect_most;
}

bool Agent::Obey(const WelcomeInfo& welcome) {
  const StorePoint said{welcome.history, welcome.epoch, 0, welcome.epoch_id};
  if (IsOutdated(said, welcome.replaced_histories, obeyed_)) {
    const bool other = !said.history.empty() && !obeyed_.history.empty() &&
                       said.history != obeyed_.history;
    const std::string which =
        other ? fmt::format(
                    "of history {}, and this node has obeyed history "
                    "{}, which it does not replace",
                    said.history, obeyed_.history)
              : fmt::format("of epoch {}, and this node has obeyed {}epoch {}",
                            said.epoch,
                            said.epoch == obeyed_.epoch ? "another " : "",
                            obeyed_.epoch);
    Refuse(FailedPrecondition(
        "the coordinator is {}: it runs from an old copy of its store, or is "
        "one that should be gone. Its orders are refused. If it is the right "
        "one, run `lockstep-coordinator accept-loss` on its directory; if this "
        "node has moved to another cluster, stop this daemon, remove {} and "
        "start it again",
        which,
        JoinPath(config_.dir, obeyed_.history.empty() ? "epoch" : "obeyed")));
    return false;
  }
  if (said.history != obeyed_.history) obeyed_.version = 0;
  if (!said.history.empty()) obeyed_.history = said.history;
  if (said.epoch != obeyed_.epoch) {
    obeyed_.epoch = said.epoch;
    // Another history may count from a lower one.
    core_.ForgetEpoch();
  }
  obeyed_.epoch_id = said.epoch_id;
  SaveObeyedPoint();
  return true;
}

bool Agent::ObeyOrder(uint64_t epoch) {
  if (epoch == obeyed_.epoch) return true;
  // Of a coordinator that says it is another one than in its Welcome.
  Refuse(FailedPrecondition(
      "an order of epoch {} came from a coordinator that was obeyed as epoch "
      "{}: it is refused",
      epoch, obeyed_.epoch));
  return false;
}

void Agent::SaveObeyedPoint() {
  if (obeyed_.history == stored_obeyed_.history &&
      obeyed_.epoch == stored_obeyed_.epoch &&
      obeyed_.epoch_id == stored_obeyed_.epoch_id) {
    return;
  }
  if (const Status saved = SaveObeyed(files_, config_.dir, obeyed_);
      saved.ok()) {
    stored_obeyed_ = obeyed_;
  } else {
    // A full disk must not part the node from its coordinator. Until it can be
    // written, this daemon knows, and its successor would not.
    LOG_ERROR("{}", Message(saved));
  }
}

void Agent::NoteVersion(int64_t version) {
  if (version <= obeyed_.version || obeyed_.history.empty()) return;
  obeyed_.version = version;
  if (const Status noted = NoteObeyedVersion(files_, config_.dir, obeyed_);
      !noted.ok()) {
    LOG_ERROR("{}", Message(noted));
  }
}

void Agent::OnProbeRequest(uint64_t stream, const ProbeQuery& query) {
  // A coordinator that asks faster than probes end gets no answer to the rest.
  if (probes_ >= kMaxProbes) return;
  ++probes_;
  probe_work_->Add([this, stream, query, alive = alive_] {
    const ProbeAnswer answer{query.id, Probe(query.targets, query.timeout)};
    loop_->Post([this, stream, answer, alive] {
      if (!*alive) return;
      --probes_;
      if (stream != stream_) return;
      v1::WorkerMessage message;
      *message.mutable_probe_reply() = ToProto(answer);
      Send(message);
    });
  });
}

void Agent::OnWelcome(const WelcomeInfo& welcome) {
  if (!Obey(welcome)) return client_->Disconnect();
  welcomed_ = true;
  // This coordinator says anew what may go.
  unwanted_work_.clear();
  SetReady(OkStatus());
  backoff_ = Duration{};
  last_complaint_.clear();
  loop_->CancelTimer(welcome_timer_);
  heartbeat_interval_ = std::clamp(welcome.heartbeat_interval,
                                   Duration(std::chrono::milliseconds(10)),
                                   Duration(std::chrono::seconds(60)));
  LOG_INFO("connected with coordinator epoch {} of cluster \"{}\"",
           welcome.epoch, welcome.cluster);
  shipper_.OnReconnect();
  // The coordinator keeps the rendezvous in memory only: say all again.
  for (const auto& [key, gang] : gangs_) {
    for (const auto& [name, value] : gang.puts) {
      v1::WorkerMessage message;
      *message.mutable_rendezvous_put() =
          ToRendezvousPut({key.job, key.generation, name, value});
      Send(message);
    }
    for (const auto& [name, ranks] : gang.gets) {
      v1::WorkerMessage message;
      *message.mutable_rendezvous_get() =
          ToRendezvousGet({key.job, key.generation, name, ""});
      Send(message);
    }
  }
  Beat();
  ShipLogs();
}

void Agent::Beat() {
  if (!welcomed_) return;
  if (sequence_ > acknowledged_ + kMaxUnacknowledged) {
    LOG_WARN("the coordinator does not answer heartbeats: connecting again");
    client_->Disconnect();
    return;
  }
  NodeHeartbeat beat;
  beat.sequence = ++sequence_;
  beat.readings = readings_;
  beat.readings.send_time = loop_->Now().wall;
  unanswered_[beat.sequence] = loop_->Now().mono;
  if (!readings_.gpu_errors.empty()) {
    unanswered_errors_[beat.sequence] = std::exchange(readings_.gpu_errors, {});
  }
  readings_.round_trip.reset();
  for (const auto& [key, gang] : core_.gangs()) {
    GangProgress progress{key.job, key.generation, {}};
    for (const RankStatus& rank : gang.status.ranks) {
      const RankRef ref{key, rank.rank};
      const auto it = ranks_.find(ref);
      if (rank.exit || it == ranks_.end()) continue;
      ReadPage(ref, &it->second, /*last=*/false);
      RankStatus status;
      status.rank = rank.rank;
      status.progress = it->second.progress;
      status.usage = it->second.usage;
      progress.ranks.push_back(std::move(status));
    }
    if (!progress.ranks.empty()) beat.gangs.push_back(std::move(progress));
  }
  v1::WorkerMessage message;
  *message.mutable_heartbeat() = ToProto(beat);
  Send(message);
  loop_->CancelTimer(beat_timer_);
  beat_timer_ = loop_->At(loop_->Now().mono + heartbeat_interval_,
                          [this, alive = alive_] {
                            if (*alive) Beat();
                          });
}

void Agent::OnHeartbeatAck(uint64_t sequence) {
  acknowledged_ = std::max(acknowledged_, sequence);
  const auto sent = unanswered_.find(sequence);
  if (sent != unanswered_.end()) {
    readings_.round_trip = loop_->Now().mono - sent->second;
  }
  // Answers come in order: of those before it none comes any more.
  unanswered_.erase(unanswered_.begin(), unanswered_.upper_bound(sequence));
  unanswered_errors_.erase(unanswered_errors_.begin(),
                           unanswered_errors_.upper_bound(sequence));
}

void Agent::ShipLogs() {
  if (!welcomed_) return;
  for (const LogPiece& piece : shipper_.Take(loop_->Now().mono)) {
    v1::WorkerMessage message;
    *message.mutable_log_chunk() = ToProto(piece);
    Send(message);
  }
}

void Agent::Tick() {
  if (loop_->Now().mono >= next_sample_) {
    next_sample_ = loop_->Now().mono + std::chrono::seconds(1);
    Sample();
  }
  ShipLogs();
  RemoveForgotten();
  std::erase_if(dropped_cgroups_, [this](const std::string& id) {
    return config_.cgroups->Remove(id).ok();
  });
  loop_->At(loop_->Now().mono + kTick, [this, alive = alive_] {
    if (*alive) Tick();
  });
}

// ---- From ranks ------------------------------------------------------------

void Agent::OnPut(const RankKey& key, const std::string& name,
                  const std::string& value) {
  if (core_.Find(KeyOf(key)) == nullptr) return;
  GangInfo& gang = gangs_[KeyOf(key)];
  if (name.empty() || name.size() > kMaxWireKey ||
      PrintableText(name, kMaxWireKey) != name ||
      value.size() > kMaxWireValue ||
      gang.put_bytes + name.size() + value.size() > kMaxPutBytes) {
    LOG_WARN("{}: a rendezvous entry is refused: {} bytes under a key of {}",
             Describe(key), value.size(), name.size());
    return;
  }
  // Written once; a repeat is sent again, in case it was lost.
  const auto [it, is_new] = gang.puts.emplace(name, value);
  if (is_new) gang.put_bytes += name.size() + value.size();
  v1::WorkerMessage message;
  *message.mutable_rendezvous_put() =
      ToRendezvousPut({key.job, key.generation, name, it->second});
  Send(message);
}

void Agent::OnGet(const RankKey& key, const std::string& name) {
  if (core_.Find(KeyOf(key)) == nullptr || name.empty() ||
      name.size() > kMaxWireKey || PrintableText(name, kMaxWireKey) != name) {
    return;
  }
  GangInfo& gang = gangs_[KeyOf(key)];
  if (const auto it = gang.values.find(name); it != gang.values.end()) {
    link_->SendValue(key, name, it->second);
    return;
  }
  gang.gets[name].insert(key.rank);
  v1::WorkerMessage message;
  *message.mutable_rendezvous_get() =
      ToRendezvousGet({key.job, key.generation, name, ""});
  Send(message);
}

void Agent::OnRendezvousValue(const RendezvousEntry& entry) {
  const GangKey key{entry.job, entry.generation};
  const auto it = gangs_.find(key);
  if (it == gangs_.end()) return;
  it->second.values[entry.key] = entry.value;
  const auto waiting = it->second.gets.extract(entry.key);
  if (waiting.empty()) return;
  for (const int32_t rank : waiting.mapped()) {
    link_->SendValue({key.job, key.generation, rank}, entry.key, entry.value);
  }
}

void Agent::OnJoined(const RankKey& key) {
  Actions actions;
  core_.OnRankJoined(KeyOf(key), key.rank, &actions);
  Execute(std::move(actions));
}

namespace {

// A rank speaks of what it alone sees; the other reasons are not its to give.
Reason EventReasonOf(const v1::RankReport& report) {
  switch (report.event_reason()) {
    case v1::REASON_CHECKPOINT_DAMAGED:
      return Reason::kCheckpointDamaged;
    case v1::REASON_OUTPUT_FULL:
      return Reason::kOutputFull;
    default:
      return Reason::kNone;
  }
}

}  // namespace

void Agent::OnReport(const RankKey& key, const v1::RankReport& report) {
  constexpr size_t kMaxSentence = 1024;
  RankNews news;
  if (!report.checkpoint_path().empty()) {
    Checkpoint checkpoint;
    checkpoint.step =
        std::clamp<int64_t>(report.checkpoint_step(), 0, kMaxExact);
    checkpoint.path = PrintableText(report.checkpoint_path(), 4095);
    checkpoint.bytes = std::max<int64_t>(0, report.checkpoint_bytes());
    news.checkpoint = std::move(checkpoint);
  }
  news.artifact_name = PrintableText(report.artifact_name(), 64);
  news.artifact_path = PrintableText(report.artifact_path(), 4095);
  news.event = PrintableText(report.event(), kMaxSentence);
  news.event_reason = EventReasonOf(report);
  news.failure = PrintableText(report.failure(), kMaxSentence);
  const auto reason =
      FromProto(static_cast<v1::Reason>(report.failure_reason()));
  if (reason.ok()) news.failure_reason = *reason;
  news.victim = report.victim();
  news.lost_peers = {report.lost_peers().begin(), report.lost_peers().end()};
  news.lost_peer_error = PrintableText(report.failure(), kMaxLostPeerError);
  if (report.has_resumed_step()) {
    news.resumed_step =
        std::clamp<int64_t>(report.resumed_step(), -1, kMaxExact);
  }
  news.directive_done = std::min(report.directive_done(), 4095u);
  TakeReductionPlan(report, &news);
  Actions actions;
  core_.OnRankNews(KeyOf(key), key.rank, news, loop_->Now(), &actions);
  Execute(std::move(actions));
}

}  // namespace lockstep
