#include "worker/agent/fake_coordinator.h"

namespace lockstep::worker::agent {

Status FakeCoordinator::Start() {
  RpcServerOptions options;
  options.address = address_;
  options.insecure_loopback = true;
  LOCKSTEP_ASSIGN_OR_RETURN(server_, RpcServer::Start(options, {this}));
  address_ = server_->address();
  return OkStatus();
}

void FakeCoordinator::Stop() {
  if (server_ != nullptr) server_->Shutdown(Duration{});
  server_.reset();
}

void FakeCoordinator::Send(const Assignment& assignment) {
  MutexLock lock(&mu_);
  if (stream_ == nullptr) return;
  v1::CoordinatorMessage message;
  *message.mutable_assignment() = ToProto(assignment);
  stream_->Write(message);
}

void FakeCoordinator::Send(const Prefetch& wanted) {
  MutexLock lock(&mu_);
  if (stream_ == nullptr) return;
  v1::CoordinatorMessage message;
  *message.mutable_prefetch() = ToProto(wanted);
  stream_->Write(message);
}

void FakeCoordinator::Send(const FileQuery& query) {
  MutexLock lock(&mu_);
  if (stream_ == nullptr) return;
  v1::CoordinatorMessage message;
  *message.mutable_file_request() = ToProto(query);
  stream_->Write(message);
}

void FakeCoordinator::Send(const ProbeQuery& query) {
  MutexLock lock(&mu_);
  if (stream_ == nullptr) return;
  v1::CoordinatorMessage message;
  *message.mutable_probe_request() = ToProto(query);
  stream_->Write(message);
}

void FakeCoordinator::Send(const EvidenceQuery& query) {
  MutexLock lock(&mu_);
  if (stream_ == nullptr) return;
  v1::CoordinatorMessage message;
  *message.mutable_evidence_request() = ToProto(query);
  stream_->Write(message);
}

void FakeCoordinator::Send(const NeighbourList& list) {
  MutexLock lock(&mu_);
  if (stream_ == nullptr) return;
  v1::CoordinatorMessage message;
  *message.mutable_neighbours() = ToProto(list);
  stream_->Write(message);
}

void FakeCoordinator::Send(const GpuCheckOrder& order) {
  MutexLock lock(&mu_);
  if (stream_ == nullptr) return;
  v1::CoordinatorMessage message;
  *message.mutable_gpu_check_request() = ToProto(order);
  stream_->Write(message);
}

void FakeCoordinator::SendDropWork(const std::vector<std::string>& uids) {
  MutexLock lock(&mu_);
  if (stream_ == nullptr) return;
  v1::CoordinatorMessage message;
  for (const std::string& uid : uids) {
    message.mutable_drop_work()->add_job_uids(uid);
  }
  stream_->Write(message);
}

void FakeCoordinator::Drop() {
  MutexLock lock(&mu_);
  if (context_ != nullptr) context_->TryCancel();
}

void FakeCoordinator::Refuse(grpc::Status status) {
  MutexLock lock(&mu_);
  refusal_ = std::move(status);
}

bool FakeCoordinator::Eventually(const std::function<bool()>& condition) {
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
  MutexLock lock(&mu_);
  while (!condition()) {
    if (!changed_.WaitUntil(&mu_, deadline)) return condition();
  }
  return true;
}

bool FakeCoordinator::ReceivedAll() {
  return Eventually([this] { return streams_ == 0; });
}

grpc::Status FakeCoordinator::Connect(grpc::ServerContext* context,
                                      Stream* stream) {
  {
    MutexLock lock(&mu_);
    ++streams_;
  }
  grpc::Status status = Serve(context, stream);
  MutexLock lock(&mu_);
  --streams_;
  if (stream_ == stream) {
    stream_ = nullptr;
    context_ = nullptr;
  }
  changed_.NotifyAll();
  return status;
}

grpc::Status FakeCoordinator::Serve(grpc::ServerContext* context,
                                    Stream* stream) {
  v1::WorkerMessage message;
  if (!stream->Read(&message) || !message.has_register_()) {
    return grpc::Status(grpc::INVALID_ARGUMENT, "the first is no Register");
  }
  {
    MutexLock lock(&mu_);
    // The threads that serve two streams may run in the other order. One that
    // the daemon has left must not take the place of its next one: what Send
    // writes would be lost.
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
    auto parsed = FromProto(message.register_());
    if (!parsed.ok()) {
      errors.push_back(Message(parsed.status()));
    } else {
      registration = *std::move(parsed);
    }
    ++registers;
    changed_.NotifyAll();
    if (!refusal_.ok()) return refusal_;
    v1::CoordinatorMessage welcome;
    *welcome.mutable_welcome() = ToProto(WelcomeInfo{
        epoch_, std::chrono::milliseconds(50), std::chrono::seconds(3), "test",
        history_, replaced_, epoch_id_});
    stream->Write(welcome);
    stream_ = stream;
    context_ = context;
  }
  while (stream->Read(&message)) {
    MutexLock lock(&mu_);
    Take(message, stream);
    changed_.NotifyAll();
  }
  return grpc::Status::OK;
}

void FakeCoordinator::Take(const v1::WorkerMessage& message, Stream* stream) {
  const auto keep = [&](const auto& parsed, const auto& take) {
    if (parsed.ok()) {
      take(*parsed);
    } else {
      errors.push_back(Message(parsed.status()));
    }
  };
  v1::CoordinatorMessage answer;
  switch (message.message_case()) {
    case v1::WorkerMessage::kHeartbeat:
      keep(FromProto(message.heartbeat()), [&](const NodeHeartbeat& beat) {
        beats.push_back(beat);
        answer.mutable_heartbeat_ack()->set_sequence(beat.sequence);
        stream->Write(answer);
      });
      break;
    case v1::WorkerMessage::kGangStatus:
      keep(FromProto(message.gang_status()), [&](const GangStatus& status) {
        statuses[{status.job, status.generation}] = status;
      });
      break;
    case v1::WorkerMessage::kPrefetchStatus:
      keep(FromProto(message.prefetch_status()),
           [&](const PrefetchReport& report) { prefetched = report; });
      break;
    case v1::WorkerMessage::kFileReply:
      keep(FromProto(message.file_reply()),
           [&](const FileAnswer& reply) { file_answers[reply.id] = reply; });
      break;
    case v1::WorkerMessage::kProbeReply:
      keep(FromProto(message.probe_reply()),
           [&](const ProbeAnswer& reply) { probe_answers[reply.id] = reply; });
      break;
    case v1::WorkerMessage::kEvidenceReply:
      keep(FromProto(message.evidence_reply()),
           [&](const EvidenceAnswer& reply) {
             evidence[reply.id].push_back(reply);
           });
      break;
    case v1::WorkerMessage::kGpuCheckReply:
      keep(FromProto(message.gpu_check_reply()),
           [&](const GpuCheckAnswer& reply) { gpu_checks[reply.id] = reply; });
      break;
    case v1::WorkerMessage::kLogChunk:
      keep(FromProto(message.log_chunk()),
           [&](const LogPiece& piece) { TakeLog(piece, stream); });
      break;
    case v1::WorkerMessage::kRendezvousPut:
      keep(FromProto(message.rendezvous_put()),
           [&](const RendezvousEntry& entry) {
             values_[{{entry.job, entry.generation}, entry.key}] = entry.value;
           });
      break;
    case v1::WorkerMessage::kRendezvousGet:
      keep(FromProto(message.rendezvous_get()),
           [&](const RendezvousEntry& entry) { waiting_.push_back(entry); });
      break;
    default:
      errors.push_back("a message that has no place here");
  }
  std::erase_if(waiting_, [&](const RendezvousEntry& entry) {
    const auto it = values_.find({{entry.job, entry.generation}, entry.key});
    if (it == values_.end()) return false;
    *answer.mutable_rendezvous_value() =
        ToRendezvousValue({entry.job, entry.generation, entry.key, it->second});
    stream->Write(answer);
    return true;
  });
}

void FakeCoordinator::TakeLog(const LogPiece& piece, Stream* stream) {
  Log& log = logs[{{piece.job, piece.generation}, piece.rank}];
  if (piece.offset <= log.bytes.size()) {
    const size_t known = log.bytes.size() - piece.offset;
    if (piece.data.size() > known) {
      log.bytes += piece.data.substr(known);
      log.end = false;  // Its rank was started again.
    }
    log.end = log.end || piece.end;
  }
  v1::CoordinatorMessage answer;
  *answer.mutable_log_ack() = ToProto(LogAckInfo{
      piece.job, piece.generation, piece.rank, log.bytes.size(), log.end});
  stream->Write(answer);
}

}  // namespace lockstep::worker::agent
