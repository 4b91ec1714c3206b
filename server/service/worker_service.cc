#include "server/service/worker_service.h"

#include <grpcpp/alarm.h>

#include <charconv>
#include <deque>
#include <memory>
#include <utility>

#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/pki/identity.h"
#include "common/rpc/caller.h"
#include "common/rpc/metadata_keys.h"
#include "common/rpc/status_conversion.h"
#include "common/wire/probe_wire.h"
#include "common/wire/worker_wire.h"
#include "server/logs/log_sweeper.h"

namespace lockstep {
namespace {

using Reactor =
    grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>;

// A daemon that does not read this many messages is disconnected. It reconnects
// and gets everything again.
constexpr size_t kMaxQueued = 65536;

// Outgoing messages of one stream. It is shared, because coordinator and log
// store may hold it longer than the stream lives, and it records the stream's
// end.
class Outbox final : public WorkerLink,
                     public std::enable_shared_from_this<Outbox> {
 public:
  struct Outgoing {
    v1::CoordinatorMessage message;
    // An assignment's cluster spec. It is encoded into the message at sending
    // time, so that messages to N nodes do not hold N encodings.
    // so that what waits for N nodes is not N encodings of N tasks.
    std::shared_ptr<const SharedClusterSpec> cluster = nullptr;
  };

  explicit Outbox(Reactor* reactor) : reactor_(reactor) {}

  // Sets the message for SendWelcome. Call it before the coordinator gets this.
  void SetWelcome(v1::CoordinatorMessage welcome) {
    MutexLock lock(&mu_);
    welcome_ = std::move(welcome);
  }
  void SendWelcome() override {
    v1::CoordinatorMessage welcome;
    {
      MutexLock lock(&mu_);
      welcomed_ = true;
      welcome = welcome_;
    }
    Send({std::move(welcome)});
  }
  bool welcomed() const {
    MutexLock lock(&mu_);
    return welcomed_;
  }

  void SendAssignment(
      const Assignment& assignment,
      const std::shared_ptr<const SharedClusterSpec>& cluster) override {
    v1::CoordinatorMessage message;
    *message.mutable_assignment() = ToProto(assignment);
    Send({std::move(message), cluster});
  }
  void SendRendezvous(const JobName& job, Generation generation,
                      const std::string& key,
                      const std::string& value) override {
    v1::CoordinatorMessage message;
    *message.mutable_rendezvous_value() =
        ToRendezvousValue({job, generation, key, value});
    Send({std::move(message)});
  }
  void SendPrefetch(const Prefetch& wanted) override {
    v1::CoordinatorMessage message;
    *message.mutable_prefetch() = ToProto(wanted);
    Send({std::move(message)});
  }
  void SendHeartbeatAck(uint64_t sequence) override {
    v1::CoordinatorMessage message;
    message.mutable_heartbeat_ack()->set_sequence(sequence);
    Send({std::move(message)});
  }
  void SendDropWork(const std::vector<std::string>& uids) override {
    v1::CoordinatorMessage message;
    for (const std::string& uid : uids) {
      message.mutable_drop_work()->add_job_uids(uid);
    }
    Send({std::move(message)});
  }
  void SendProbe(const ProbeQuery& query) override {
    v1::CoordinatorMessage message;
    *message.mutable_probe_request() = ToProto(query);
    Send({std::move(message)});
  }
  void SendFileQuery(const FileQuery& query) {
    v1::CoordinatorMessage message;
    *message.mutable_file_request() = ToProto(query);
    Send({std::move(message)});
  }
  void Close(const Status& status) override {
    MutexLock lock(&mu_);
    Finish(status);
  }

  void Send(Outgoing outgoing) {
    MutexLock lock(&mu_);
    if (finished_) return;
    if (queue_.size() >= kMaxQueued) {
      Finish(ResourceExhausted("the worker daemon reads too slowly"));
      return;
    }
    queue_.push_back(std::move(outgoing));
    if (writing_) return;
    if (queue_.front().cluster == nullptr) {
      WriteNext();
    } else {
      WriteSoon();
    }
  }

  // An ended stream reads nothing.
  void StartRead(v1::WorkerMessage* message) {
    MutexLock lock(&mu_);
    if (!finished_) reactor_->StartRead(message);
  }

  // The pending write has ended.
  void OnWriteDone() {
    MutexLock lock(&mu_);
    writing_ = false;
    if (!queue_.empty()) queue_.pop_front();
    if (!finished_ && !queue_.empty()) WriteNext();
  }

  // Messages that the daemon has not taken.
  int64_t Waiting() const {
    MutexLock lock(&mu_);
    return static_cast<int64_t>(queue_.size());
  }

  // No reactor call follows.
  void Detach() {
    MutexLock lock(&mu_);
    finished_ = true;
    reactor_ = nullptr;
    queue_.clear();
  }

 private:
  // On a gRPC thread, because the caller holds the coordinator's lock, and N
  // specs of N tasks take long to copy and encrypt.
  void WriteSoon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    writing_ = true;
    auto alarm = std::make_shared<grpc::Alarm>();
    // Kept alive until its function has run, which waits for mu_.
    alarm->Set(gpr_now(GPR_CLOCK_MONOTONIC),
               [self = shared_from_this(), alarm](bool) mutable {
                 MutexLock lock(&self->mu_);
                 if (!self->finished_) self->WriteNext();
                 alarm.reset();
               });
  }
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    writing_ = true;
    Outgoing& next = queue_.front();
    if (next.cluster != nullptr) {
      next.message.mutable_assignment()->set_cluster(
          next.cluster->Encoded(EncodeClusterSpec));
    }
    reactor_->StartWrite(&next.message);
  }
  void Finish(const Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_) return;
    finished_ = true;
    reactor_->Finish(ToGrpc(status));
  }

  mutable Mutex mu_;
  // Null after the stream's end.
  Reactor* reactor_ ABSL_GUARDED_BY(mu_);
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool welcomed_ ABSL_GUARDED_BY(mu_) = false;
  v1::CoordinatorMessage welcome_ ABSL_GUARDED_BY(mu_);
  // While writing_, the first one is being written.
  std::deque<Outgoing> queue_ ABSL_GUARDED_BY(mu_);
};

// Returns 0 if the daemon is older or has obeyed no coordinator.
uint64_t ObeyedEpoch(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kObeyedEpochKey);
  if (found == metadata.end()) return 0;
  uint64_t epoch = 0;
  const char* const end = found->second.data() + found->second.size();
  const auto parsed = std::from_chars(found->second.data(), end, epoch);
  return parsed.ec == std::errc() && parsed.ptr == end ? epoch : 0;
}

class Stream final : public Reactor {
 public:
  Stream(WorkerServiceOptions options, WorkPool* pool, NodeSessions* sessions,
         const ClusterQueries* queries, LogStore* logs, StreamMetrics* streams,
         WorkFiles* files, Identity caller, uint64_t obeyed_epoch)
      : options_(std::move(options)),
        pool_(pool),
        sessions_(sessions),
        queries_(queries),
        logs_(logs),
        files_(files),
        caller_(std::move(caller)),
        caller_name_(FormatIdentity(caller_)),
        obeyed_epoch_(obeyed_epoch),
        outbox_(std::make_shared<Outbox>(this)),
        open_(streams, StreamKind::kWorkers,
              [outbox = outbox_] { return outbox->Waiting(); }) {
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      outbox_->Close(OkStatus());
      return;
    }
    {
      MutexLock lock(&mu_);
      taking_ = true;
    }
    pool_->Post(caller_name_, [this] { TakeIncoming(); });
  }
  void OnWriteDone(bool) override { outbox_->OnWriteDone(); }
  void OnCancel() override { outbox_->Close(Cancelled("the stream broke")); }
  void OnDone() override {
    outbox_->Detach();
    {
      MutexLock lock(&mu_);
      done_ = true;
      // A message being processed still belongs to the daemon.
      if (taking_) return;
    }
    Leave();
  }

 private:
  // Runs on the pool.
  void TakeIncoming() {
    const Status status = Take(incoming_);
    if (!status.ok()) {
      LOG_WARN("stream of {}: {}", Describe(caller_), Message(status));
      outbox_->Close(status);
    }
    {
      MutexLock lock(&mu_);
      taking_ = false;
      if (!done_) {
        // Under the lock, because OnDone, which may delete this, waits for it.
        if (status.ok()) outbox_->StartRead(&incoming_);
        return;
      }
    }
    Leave();
  }

  void Leave() {
    if (files_ != nullptr) files_->Disconnect(files_connection_);
    if (session_ != 0) sessions_->OnStreamEnd(session_);
    delete this;
  }

  Status Take(const v1::WorkerMessage& message) {
    const bool registers =
        message.message_case() == v1::WorkerMessage::kRegister;
    if (registers != (session_ == 0)) {
      return InvalidArgument(
          "only the first message of a stream must be register");
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
        return sessions_->OnGangStatus(session_, status);
      }
      case v1::WorkerMessage::kRendezvousPut: {
        LOCKSTEP_ASSIGN_OR_RETURN(const RendezvousEntry entry,
                                  FromProto(message.rendezvous_put()));
        return NoRoom(sessions_->OnRendezvousPut(
            session_, entry.job, entry.generation, entry.key, entry.value));
      }
      case v1::WorkerMessage::kRendezvousGet: {
        LOCKSTEP_ASSIGN_OR_RETURN(const RendezvousEntry entry,
                                  FromProto(message.rendezvous_get()));
        return NoRoom(sessions_->OnRendezvousGet(session_, entry.job,
                                                 entry.generation, entry.key));
      }
      case v1::WorkerMessage::kLogChunk:
        return TakeLog(message.log_chunk());
      case v1::WorkerMessage::kPrefetchStatus: {
        LOCKSTEP_ASSIGN_OR_RETURN(PrefetchReport report,
                                  FromProto(message.prefetch_status()));
        return sessions_->OnPrefetched(session_, std::move(report.items));
      }
      case v1::WorkerMessage::kFileReply: {
        LOCKSTEP_ASSIGN_OR_RETURN(FileAnswer answer,
                                  FromProto(message.file_reply()));
        if (files_ != nullptr) {
          files_->OnAnswer(files_connection_, std::move(answer));
        }
        return OkStatus();
      }
      case v1::WorkerMessage::kProbeReply: {
        LOCKSTEP_ASSIGN_OR_RETURN(const ProbeAnswer answer,
                                  FromProto(message.probe_reply()));
        return sessions_->OnProbed(session_, answer);
      }
      case v1::WorkerMessage::MESSAGE_NOT_SET:
        break;
    }
    return InvalidArgument("an empty message or one of a later version");
  }

  // A full rendezvous store costs the asking job its forming deadline. The
  // stream stays, because the node's other jobs use it.
  static Status NoRoom(const Status& status) {
    if (status.code() != StatusCode::kResourceExhausted) return status;
    LOG_WARN("{}", Message(status));
    return OkStatus();
  }

  Status Register(const v1::Register& message) {
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
    const StorePoint own = sessions_->point();
    *welcome.mutable_welcome() =
        ToProto(WelcomeInfo{own.epoch, options_.heartbeat_interval,
                            options_.lease, options_.cluster, own.history,
                            sessions_->replaced_histories(), own.epoch_id});
    outbox_->SetWelcome(std::move(welcome));
    // A daemon from before histories sends only its epoch.
    const StorePoint obeyed =
        registration.obeyed.value_or(StorePoint{"", obeyed_epoch_, 0});
    if (const Status refused =
            sessions_->CheckObeyed(registration.node.name, obeyed);
        !refused.ok()) {
      // From epoch and history the daemon itself finds why it must leave.
      // Otherwise it gets no Welcome, which it would obey.
      if (IsOutdated(own, sessions_->replaced_histories(), obeyed)) {
        outbox_->SendWelcome();
      }
      return refused;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        session_,
        sessions_->Register(registration.node, registration.gangs, outbox_,
                            registration.work_jobs, registration.probe_port));
    node_ = registration.node.name;
    work_jobs_ = registration.work_jobs;
    SettleIn();
    return OkStatus();
  }

  // Runs once the stream owns the node, which may be a while after
  // registration: a welcomed daemon sends heartbeats.
  void SettleIn() {
    if (settled_in_ || !outbox_->welcomed()) return;
    settled_in_ = true;
    if (files_ != nullptr) {
      files_connection_ =
          files_->Connect(node_, [outbox = outbox_](const FileQuery& query) {
            outbox->SendFileQuery(query);
          });
    }
    DropOldWork(std::exchange(work_jobs_, {}));
  }

  // Removes what was deleted while the node was away. A store that lost data
  // does not know; then directories are removed when their disk is nearly full.
  void DropOldWork(const std::vector<std::string>& uids) {
    if (!sessions_->replaced_histories().empty()) return;
    const WallTime now = queries_->clock().Now().wall;
    std::vector<std::string> gone;
    for (const std::string& uid : uids) {
      if (!KeepsWork(queries_->FindLogOwner(uid), logs_->Has(uid), now)) {
        gone.push_back(uid);
      }
    }
    if (!gone.empty()) outbox_->SendDropWork(gone);
  }

  Status TakeHeartbeat(const v1::Heartbeat& message) {
    LOCKSTEP_ASSIGN_OR_RETURN(NodeHeartbeat beat, FromProto(message));
    std::vector<NodeSessions::RankReport> reports;
    for (GangProgress& gang : beat.gangs) {
      reports.push_back(
          {std::move(gang.job), gang.generation, std::move(gang.ranks)});
    }
    return sessions_->OnHeartbeat(session_, beat.sequence,
                                  std::move(beat.readings), reports);
  }

  Status TakeLog(const v1::LogChunk& message) {
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
    int32_t life = 0;
    const Status known =
        sessions_->CheckLog(session_, piece.job, piece.job_uid,
                            piece.generation, piece.rank, &life);
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
    const Status queued = logs_->Append(
        {piece.job_uid, piece.generation, piece.rank}, piece.offset,
        std::move(piece.data), piece.end, answer, life);
    // The queue is full. Without an acknowledgement it is resent.
    return queued.code() == StatusCode::kResourceExhausted ? OkStatus()
                                                           : queued;
  }

  // A copy, because the last message may be processed after the service's end.
  const WorkerServiceOptions options_;
  WorkPool* const pool_;
  NodeSessions* const sessions_;
  const ClusterQueries* const queries_;
  LogStore* const logs_;
  WorkFiles* const files_;
  const Identity caller_;
  const std::string caller_name_;
  const uint64_t obeyed_epoch_;
  const std::shared_ptr<Outbox> outbox_;
  const StreamMetrics::Open open_;
  Mutex mu_;
  // A message is being processed or waits to be.
  bool taking_ ABSL_GUARDED_BY(mu_) = false;
  // gRPC has finished the stream.
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  // Used only by the thread that processes a message, and by Leave after the
  // last.
  v1::WorkerMessage incoming_;
  SessionId session_ = 0;
  // From the registration.
  NodeName node_;
  std::vector<std::string> work_jobs_;
  bool settled_in_ = false;
  WorkFiles::Connection files_connection_ = 0;
};

}  // namespace

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>*
WorkerService::Connect(grpc::CallbackServerContext* context) {
  // A server with --insecure_loopback authenticates no daemon.
  return new Stream(options_, pools_->streams(CallRole::kWorkers), sessions_,
                    queries_, logs_, streams_, files_, CallerOf(*context),
                    ObeyedEpoch(*context));
}

}  // namespace lockstep
