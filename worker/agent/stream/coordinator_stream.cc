#include "worker/agent/stream/coordinator_stream.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/logging.h"
#include "common/wire/protocol_version.h"

namespace lockstep::worker::agent {
namespace {

// The coordinator's word for a daemon that has no business here.
constexpr char kClonedNode[] = "CLONED_NODE";

Status NotAdmitted() {
  return Unavailable("the coordinator has not admitted this worker");
}

v1::WorkerMessage MessageOf(const NodeHeartbeat& beat) {
  v1::WorkerMessage message;
  *message.mutable_heartbeat() = ToProto(beat);
  return message;
}

}  // namespace

void LogMalformed(const Status& status) {
  LOG_ERROR("the coordinator sent an invalid message: {}", Message(status));
}

CoordinatorStream::Readiness::Readiness() : status_(NotAdmitted()) {}

Status CoordinatorStream::Readiness::Get() const {
  MutexLock lock(&mu_);
  return status_;
}

void CoordinatorStream::Readiness::Set(Status status) {
  MutexLock lock(&mu_);
  status_ = std::move(status);
}

CoordinatorStream::CoordinatorStream(const DaemonSetup* setup,
                                     const StreamOptions& options,
                                     EventLoop* loop, FileSystem* files,
                                     LogShipper* logs, HeartbeatSource* source,
                                     StreamHandler* handler)
    : setup_(setup),
      welcome_timeout_(options.welcome_timeout),
      loop_(loop),
      logs_(logs),
      handler_(handler),
      obeyed_(files, setup->dir),
      heartbeats_(
          loop, source,
          [this](const NodeHeartbeat& beat) { Send(MessageOf(beat)); },
          [this] { client_->Disconnect(); },
          [this](int64_t sent) { handler_->OnContact(sent); }),
      reconnects_(options.reconnect_first, options.reconnect_most,
                  options.check_dates) {}

CoordinatorClient::Events CoordinatorStream::ClientEvents() {
  CoordinatorClient::Events events;
  events.message = [loop = loop_,
                    handle = lifetime_.Guard(
                        [this](uint64_t stream,
                               const v1::CoordinatorMessage& message) {
                          OnMessage(stream, message);
                        })](uint64_t stream, v1::CoordinatorMessage message) {
    auto shared = std::make_shared<v1::CoordinatorMessage>(std::move(message));
    loop->Post([handle, stream, shared] { handle(stream, *shared); });
  };
  events.closed =
      [loop = loop_,
       handle = lifetime_.Guard([this](uint64_t stream, const Status& status) {
         OnClosed(stream, status);
       })](uint64_t stream, Status status) {
        loop->Post([handle, stream, status] { handle(stream, status); });
      };
  return events;
}

void CoordinatorStream::Start(CoordinatorClient* client) {
  client_ = client;
  Connect();
}

void CoordinatorStream::Reregister() {
  if (state_ != State::kClosed) client_->Disconnect();
}

void CoordinatorStream::Send(const v1::WorkerMessage& message) {
  if (state_ != State::kClosed) client_->Send(message);
}

void CoordinatorStream::Answer(uint64_t stream,
                               const v1::WorkerMessage& message) {
  if (stream == stream_) Send(message);
}

void CoordinatorStream::ShipLogs() {
  if (!welcomed()) return;
  for (const LogPiece& piece : logs_->Take(loop_->Now().mono)) {
    v1::WorkerMessage message;
    *message.mutable_log_chunk() = ToProto(piece);
    Send(message);
  }
}

void CoordinatorStream::Connect() {
  Registration registration;
  registration.node = setup_->node;
  handler_->FillRegistration(&registration);
  const StorePoint& obeyed = obeyed_.point();
  if (!obeyed.history.empty()) registration.obeyed = obeyed;
  heartbeats_.Reset();
  state_ = State::kOpen;
  stream_ = client_->Connect(ToProto(registration), obeyed.epoch);
  welcome_timer_ =
      loop_->At(loop_->Now().mono + welcome_timeout_,
                lifetime_.Guard([this, stream = stream_] {
                  if (stream != stream_ || state_ != State::kOpen) return;
                  LOG_WARN("the coordinator does not answer: reconnecting");
                  client_->Disconnect();
                }));
}

void CoordinatorStream::OnClosed(uint64_t stream, const Status& status) {
  if (stream != stream_ || state_ == State::kClosed) return;
  // An attempt that never got a Welcome broke no stream.
  if (welcomed()) reconnects_.CountBroken();
  state_ = State::kClosed;
  // Why a coordinator is not obeyed stays until one is.
  if (Ready().ok()) ready_.Set(NotAdmitted());
  heartbeats_.Stop();
  loop_->CancelTimer(welcome_timer_);
  if (status.code() == StatusCode::kAborted) {
    fatal_ = Aborted("another daemon has registered as node {}: {}",
                     setup_->node.name, Message(status));
    return handler_->OnReplaced(ReasonOf(status) == kClonedNode);
  }
  // The coordinator found that it is outdated and sent no Welcome.
  if (ReasonOf(status) == "COORDINATOR_OUTDATED" &&
      Ready().code() != StatusCode::kFailedPrecondition) {
    Refuse(status);
  }
  // It stays so until one of the two is upgraded. What follows logs it.
  if (ReasonOf(status) == kProtocolVersion) {
    ready_.Set(status);
    reconnects_.SlowDown();
  }
  loop_->At(loop_->Now().mono + reconnects_.OnClosed(status),
            lifetime_.Guard([this] {
              if (state_ == State::kClosed) Connect();
            }));
}

void CoordinatorStream::OnMessage(uint64_t stream,
                                  const v1::CoordinatorMessage& message) {
  if (stream != stream_ || state_ == State::kClosed) return;
  switch (message.message_case()) {
    case v1::CoordinatorMessage::kWelcome: {
      const auto welcome = FromProto(message.welcome());
      if (!welcome.ok()) return LogMalformed(welcome.status());
      return OnWelcome(*welcome);
    }
    case v1::CoordinatorMessage::kLogAck: {
      const auto ack = FromProto(message.log_ack());
      if (!ack.ok()) return LogMalformed(ack.status());
      logs_->OnAck(*ack, loop_->Now().mono);
      return ShipLogs();
    }
    case v1::CoordinatorMessage::kHeartbeatAck:
      return heartbeats_.OnAck(message.heartbeat_ack().sequence());
    default:
      return handler_->OnMessage(stream, message);
  }
}

void CoordinatorStream::Refuse(const Status& status) {
  if (Ready().code() != status.code()) LOG_ERROR("{}", Message(status));
  ready_.Set(status);
  reconnects_.SlowDown();
}

bool CoordinatorStream::Obeys(uint64_t epoch) {
  const Status obeyed = obeyed_.CheckOrder(epoch);
  if (!obeyed.ok()) Refuse(obeyed);
  return obeyed.ok();
}

void CoordinatorStream::OnWelcome(const WelcomeInfo& welcome) {
  const auto other_epoch = obeyed_.Obey(welcome);
  if (!other_epoch.ok()) {
    Refuse(other_epoch.status());
    return client_->Disconnect();
  }
  state_ = State::kWelcomed;
  ready_.Set(OkStatus());
  reconnects_.OnConnected();
  loop_->CancelTimer(welcome_timer_);
  LOG_INFO("connected with coordinator epoch {} of cluster \"{}\"",
           welcome.epoch, welcome.cluster);
  logs_->OnReconnect();
  handler_->OnWelcome(*other_epoch);
  heartbeats_.Start(std::clamp(welcome.heartbeat_interval,
                               Duration(std::chrono::milliseconds(10)),
                               Duration(std::chrono::seconds(60))));
  ShipLogs();
}

}  // namespace lockstep::worker::agent
