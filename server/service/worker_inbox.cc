#include "server/service/worker_inbox.h"

#include <utility>

#include "common/base/logging.h"
#include "common/wire/evidence_wire.h"
#include "common/wire/gpu_check_wire.h"
#include "common/wire/probe_wire.h"
#include "common/wire/protocol_version.h"
#include "common/wire/session_wire.h"
#include "common/wire/worker_wire.h"
#include "server/logs/log_sweeper.h"

namespace lockstep::server {
namespace {

// A full rendezvous store costs the asking job its forming deadline. The stream
// stays, because the node's other jobs use it.
Status NoRoom(const Status& status) {
  if (status.code() != StatusCode::kResourceExhausted) return status;
  LOG_WARN("{}", Message(status));
  return OkStatus();
}

}  // namespace

WorkerInbox::WorkerInbox(WorkerServiceOptions options,
                         WorkerInboxServices services, pki::Identity caller,
                         uint64_t obeyed_epoch,
                         std::shared_ptr<WorkerOutbox> outbox)
    : options_(std::move(options)),
      services_(services),
      caller_(std::move(caller)),
      obeyed_epoch_(obeyed_epoch),
      outbox_(std::move(outbox)) {}

void WorkerInbox::OnStreamEnd() {
  if (services_.files != nullptr)
    services_.files->Disconnect(files_connection_);
  if (services_.evidence != nullptr) {
    services_.evidence->Disconnect(evidence_connection_);
  }
  if (services_.session_desk != nullptr) {
    services_.session_desk->Disconnect(desk_connection_);
  }
  if (session_ != 0) services_.sessions->OnStreamEnd(session_);
}

Status WorkerInbox::Take(const v1::WorkerMessage& message) {
  const bool registers = message.message_case() == v1::WorkerMessage::kRegister;
  if (registers != (session_ == 0)) {
    return InvalidArgument(
        "the first message of a stream must be register, and no other");
  }
  if (!registers) SettleIn();
  switch (message.message_case()) {
    case v1::WorkerMessage::kRegister:
      return Register(message.register_());
    case v1::WorkerMessage::kHeartbeat:
      return TakeHeartbeat(message.heartbeat());
    case v1::WorkerMessage::kGangStatus: {
      LOCKSTEP_ASSIGN_OR_RETURN(const GangStatus status,
                                FromProto(message.gang_status()));
      return services_.sessions->OnGangStatus(session_, status);
    }
    case v1::WorkerMessage::kRendezvousPut: {
      LOCKSTEP_ASSIGN_OR_RETURN(const RendezvousEntry entry,
                                FromProto(message.rendezvous_put()));
      return NoRoom(services_.sessions->OnRendezvousPut(
          session_, entry.job, entry.generation, entry.key, entry.value));
    }
    case v1::WorkerMessage::kRendezvousGet: {
      LOCKSTEP_ASSIGN_OR_RETURN(const RendezvousEntry entry,
                                FromProto(message.rendezvous_get()));
      return NoRoom(services_.sessions->OnRendezvousGet(
          session_, entry.job, entry.generation, entry.key));
    }
    case v1::WorkerMessage::kLogChunk:
      return TakeLog(message.log_chunk());
    case v1::WorkerMessage::kPrefetchStatus: {
      LOCKSTEP_ASSIGN_OR_RETURN(PrefetchReport report,
                                FromProto(message.prefetch_status()));
      return services_.sessions->OnPrefetched(session_,
                                              std::move(report.items));
    }
    case v1::WorkerMessage::kFileReply: {
      LOCKSTEP_ASSIGN_OR_RETURN(FileAnswer answer,
                                FromProto(message.file_reply()));
      if (services_.files != nullptr) {
        services_.files->OnAnswer(files_connection_, std::move(answer));
      }
      return OkStatus();
    }
    case v1::WorkerMessage::kProbeReply: {
      LOCKSTEP_ASSIGN_OR_RETURN(const ProbeAnswer answer,
                                FromProto(message.probe_reply()));
      return services_.sessions->OnProbed(session_, answer);
    }
    case v1::WorkerMessage::kEvidenceReply: {
      LOCKSTEP_ASSIGN_OR_RETURN(EvidenceAnswer answer,
                                FromProto(message.evidence_reply()));
      if (services_.evidence != nullptr) {
        services_.evidence->OnAnswer(evidence_connection_, std::move(answer));
      }
      return OkStatus();
    }
    case v1::WorkerMessage::kGpuCheckReply: {
      LOCKSTEP_ASSIGN_OR_RETURN(const GpuCheckAnswer answer,
                                FromProto(message.gpu_check_reply()));
      return services_.sessions->OnGpuChecked(session_, answer);
    }
    case v1::WorkerMessage::MESSAGE_NOT_SET:
      break;
  }
  return InvalidArgument("a message without content, or of a later version");
}

Status WorkerInbox::Register(const v1::Register& message) {
  // First: fields of another version may not be readable here.
  LOCKSTEP_RETURN_IF_ERROR(CheckProtocol(message));
  LOCKSTEP_ASSIGN_OR_RETURN(const Registration registration,
                            FromProto(message));
  if (!caller_.SpeaksForNode(registration.node.name)) {
    return WithReason(
        PermissionDenied("{} may not register node {}: its certificate "
                         "must be that node's",
                         Describe(caller_), registration.node.name),
        "OTHER_NODE");
  }
  v1::CoordinatorMessage welcome;
  const StorePoint own = services_.sessions->point();
  *welcome.mutable_welcome() = ToProto(WelcomeInfo{
      own.epoch, options_.heartbeat_interval, options_.lease, options_.cluster,
      own.history, services_.sessions->replaced_histories(), own.epoch_id});
  outbox_->SetWelcome(std::move(welcome));
  // A daemon from before histories sends only its epoch.
  const StorePoint obeyed =
      registration.obeyed.value_or(StorePoint{"", obeyed_epoch_, 0});
  if (const Status refused =
          services_.sessions->CheckObeyed(registration.node.name, obeyed);
      !refused.ok()) {
    // From epoch and history the daemon itself finds why it must leave.
    // Otherwise it gets no Welcome, which it would obey.
    if (IsOutdated(own, services_.sessions->replaced_histories(), obeyed)) {
      outbox_->SendWelcome();
    }
    return refused;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(session_,
                            services_.sessions->Register(
                                registration.node, registration.gangs, outbox_,
                                registration.work_jobs, registration.probe_port,
                                registration.reclaims));
  node_ = registration.node.name;
  work_jobs_ = registration.work_jobs;
  SettleIn();
  return OkStatus();
}

void WorkerInbox::SettleIn() {
  if (settled_in_ || !outbox_->welcomed()) return;
  settled_in_ = true;
  if (services_.files != nullptr) {
    files_connection_ = services_.files->Connect(
        node_, [outbox = outbox_](const FileQuery& query) {
          outbox->SendFileQuery(query);
        });
  }
  if (services_.evidence != nullptr) {
    evidence_connection_ = services_.evidence->Connect(
        node_, [outbox = outbox_](const EvidenceQuery& query) {
          v1::CoordinatorMessage message;
          *message.mutable_evidence_request() = ToProto(query);
          outbox->Send({std::move(message)});
        });
  }
  if (services_.session_desk != nullptr) {
    desk_connection_ = services_.session_desk->Connect(
        node_, [outbox = outbox_](const SessionOrder& order) {
          v1::CoordinatorMessage message;
          *message.mutable_open_session() = ToProto(order);
          outbox->Send({std::move(message)});
        });
  }
  DropOldWork(std::exchange(work_jobs_, {}));
}

void WorkerInbox::DropOldWork(const std::vector<std::string>& uids) {
  // A store that lost data does not know what was deleted. Then directories are
  // removed when their disk is nearly full.
  if (!services_.sessions->replaced_histories().empty()) return;
  const WallTime now = services_.queries->clock().Now().wall;
  std::vector<std::string> gone;
  for (const std::string& uid : uids) {
    if (!KeepsWork(services_.queries->FindLogOwner(uid),
                   services_.logs->Has(uid), now)) {
      gone.push_back(uid);
    }
  }
  if (!gone.empty()) outbox_->SendDropWork(gone);
}

Status WorkerInbox::TakeHeartbeat(const v1::Heartbeat& message) {
  LOCKSTEP_ASSIGN_OR_RETURN(NodeHeartbeat beat, FromProto(message));
  std::vector<NodeSessions::RankReport> reports;
  for (GangProgress& gang : beat.gangs) {
    reports.push_back(
        {std::move(gang.job), gang.generation, std::move(gang.ranks)});
  }
  return services_.sessions->OnHeartbeat(session_, beat.sequence,
                                         std::move(beat.readings), reports);
}

Status WorkerInbox::TakeLog(const v1::LogChunk& message) {
  LOCKSTEP_ASSIGN_OR_RETURN(LogPiece piece, FromProto(message));
  const auto answer = [outbox = outbox_, job = piece.job,
                       generation = piece.generation,
                       rank = piece.rank](const LogStore::Ack& ack) {
    v1::CoordinatorMessage reply;
    *reply.mutable_log_ack() =
        ToProto(LogAckInfo{job, generation, rank, ack.offset, ack.end});
    outbox->Send({std::move(reply)});
  };
  // A node reports a rank's restart before it sends that process's output, so
  // an end belongs to the last reported start.
  NodeSessions::LogPlace place;
  const Status known = services_.sessions->CheckLog(
      session_, piece.job, piece.job_uid, piece.generation, piece.rank, &place);
  // The store does not know this gang. The node keeps the bytes and resends
  // them.
  if (known.code() == StatusCode::kFailedPrecondition) return OkStatus();
  if (known.code() == StatusCode::kNotFound) {
    // The job was deleted. Acknowledged, so that the node can delete the log.
    answer({piece.offset + piece.data.size(), piece.end});
    return OkStatus();
  }
  LOCKSTEP_RETURN_IF_ERROR(known);
  // Without an acknowledgement it is resent.
  if (options_.space && !options_.space().ok()) return OkStatus();
  const Status queued = services_.logs->Append(
      {piece.job_uid, piece.generation, piece.rank, place.moves}, piece.offset,
      std::move(piece.data), piece.end, answer, place.life);
  // The queue is full. Without an acknowledgement it is resent.
  return queued.code() == StatusCode::kResourceExhausted ? OkStatus() : queued;
}

}  // namespace lockstep::server
