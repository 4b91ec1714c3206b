#include "server/service/worker_outbox.h"

#include <grpcpp/alarm.h>

#include <utility>

#include "common/rpc/status_conversion.h"
#include "common/wire/gpu_check_wire.h"
#include "common/wire/probe_wire.h"
#include "common/wire/worker_wire.h"

namespace lockstep::server {
namespace {

// A daemon that does not read this many messages is disconnected. It reconnects
// and gets everything again.
constexpr size_t kMaxQueued = 65536;

}  // namespace

void WorkerOutbox::SetWelcome(v1::CoordinatorMessage welcome) {
  MutexLock lock(&mu_);
  welcome_ = std::move(welcome);
}

void WorkerOutbox::SendWelcome() {
  v1::CoordinatorMessage welcome;
  {
    MutexLock lock(&mu_);
    welcomed_ = true;
    welcome = welcome_;
  }
  Send({std::move(welcome)});
}

bool WorkerOutbox::welcomed() const {
  MutexLock lock(&mu_);
  return welcomed_;
}

void WorkerOutbox::SendAssignment(
    const Assignment& assignment,
    const std::shared_ptr<const SharedClusterSpec>& cluster) {
  v1::CoordinatorMessage message;
  *message.mutable_assignment() = ToProto(assignment);
  Send({std::move(message), cluster});
}

void WorkerOutbox::SendRendezvous(const JobName& job, Generation generation,
                                  const std::string& key,
                                  const std::string& value) {
  v1::CoordinatorMessage message;
  *message.mutable_rendezvous_value() =
      ToRendezvousValue({job, generation, key, value});
  Send({std::move(message)});
}

void WorkerOutbox::SendPrefetch(const Prefetch& wanted) {
  v1::CoordinatorMessage message;
  *message.mutable_prefetch() = ToProto(wanted);
  Send({std::move(message)});
}

void WorkerOutbox::SendHeartbeatAck(uint64_t sequence) {
  v1::CoordinatorMessage message;
  message.mutable_heartbeat_ack()->set_sequence(sequence);
  Send({std::move(message)});
}

void WorkerOutbox::SendDropWork(const std::vector<std::string>& uids) {
  v1::CoordinatorMessage message;
  for (const std::string& uid : uids) {
    message.mutable_drop_work()->add_job_uids(uid);
  }
  Send({std::move(message)});
}

void WorkerOutbox::SendProbe(const ProbeQuery& query) {
  v1::CoordinatorMessage message;
  *message.mutable_probe_request() = ToProto(query);
  Send({std::move(message)});
}

void WorkerOutbox::SendGpuCheck(const GpuCheckOrder& order) {
  v1::CoordinatorMessage message;
  *message.mutable_gpu_check_request() = ToProto(order);
  Send({std::move(message)});
}

void WorkerOutbox::SendNeighbours(const NeighbourList& list) {
  v1::CoordinatorMessage message;
  *message.mutable_neighbours() = ToProto(list);
  Send({std::move(message)});
}

void WorkerOutbox::SendFileQuery(const FileQuery& query) {
  v1::CoordinatorMessage message;
  *message.mutable_file_request() = ToProto(query);
  Send({std::move(message)});
}

void WorkerOutbox::Close(const Status& status) {
  MutexLock lock(&mu_);
  Finish(status);
}

void WorkerOutbox::Send(Outgoing outgoing) {
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

void WorkerOutbox::StartRead(v1::WorkerMessage* message) {
  MutexLock lock(&mu_);
  if (!finished_) reactor_->StartRead(message);
}

void WorkerOutbox::OnWriteDone() {
  MutexLock lock(&mu_);
  writing_ = false;
  if (!queue_.empty()) queue_.pop_front();
  if (!finished_ && !queue_.empty()) WriteNext();
}

int64_t WorkerOutbox::Waiting() const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(queue_.size());
}

void WorkerOutbox::Detach() {
  MutexLock lock(&mu_);
  finished_ = true;
  reactor_ = nullptr;
  queue_.clear();
}

// On a gRPC thread, because the caller holds the coordinator's lock, and N
// specs of N tasks take long to copy and encrypt.
void WorkerOutbox::WriteSoon() {
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

void WorkerOutbox::WriteNext() {
  writing_ = true;
  Outgoing& next = queue_.front();
  if (next.cluster != nullptr) {
    next.message.mutable_assignment()->set_cluster(
        next.cluster->Encoded(EncodeClusterSpec));
  }
  reactor_->StartWrite(&next.message);
}

void WorkerOutbox::Finish(const Status& status) {
  if (finished_) return;
  finished_ = true;
  reactor_->Finish(ToGrpc(status));
}

}  // namespace lockstep::server
