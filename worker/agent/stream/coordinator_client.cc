#include "worker/agent/stream/coordinator_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/rpc/metadata_keys.h"
#include "common/rpc/status_conversion.h"
#include "lockstep/v1/worker.grpc.pb.h"

namespace lockstep::worker::agent {
namespace {

// One call. It keeps itself alive until gRPC is done with it.
class Stream final : public grpc::ClientBidiReactor<v1::WorkerMessage,
                                                    v1::CoordinatorMessage> {
 public:
  Stream(uint64_t id, const CoordinatorClient::Events* events,
         std::function<void(uint64_t id)> done)
      : id_(id), events_(events), done_(std::move(done)) {}

  void Start(v1::WorkerService::Stub* stub, const v1::Register& first,
             uint64_t obeyed_epoch) {
    if (obeyed_epoch != 0) {
      context_.AddMetadata(kObeyedEpochKey, std::to_string(obeyed_epoch));
    }
    v1::WorkerMessage message;
    *message.mutable_register_() = first;
    stub->async()->Connect(&context_, this);
    Send(message);
    StartRead(&incoming_);
    StartCall();
  }

  void Send(const v1::WorkerMessage& message) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (over_) return;
    outgoing_.push_back(message);
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // With no read left under way nothing may be started any more.
      MutexLock lock(&mu_);
      over_ = true;
      return;
    }
    events_->message(id_, std::move(incoming_));
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    outgoing_.pop_front();
    if (!ok) over_ = true;
    if (over_) {
      outgoing_.clear();
      return;
    }
    if (!outgoing_.empty()) StartWrite(&outgoing_.front());
  }

  void OnDone(const grpc::Status& status) override {
    events_->closed(id_, FromGrpc(status));
    done_(id_);  // Deletes this.
  }

 private:
  const uint64_t id_;
  const CoordinatorClient::Events* const events_;
  const std::function<void(uint64_t id)> done_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;
  Mutex mu_;
  // The first is being written.
  std::deque<v1::WorkerMessage> outgoing_ ABSL_GUARDED_BY(mu_);
  bool over_ ABSL_GUARDED_BY(mu_) = false;
};

class GrpcCoordinatorClient final : public CoordinatorClient {
 public:
  GrpcCoordinatorClient(std::shared_ptr<grpc::Channel> channel, Events events)
      : events_(std::move(events)),
        channel_(std::move(channel)),
        stub_(v1::WorkerService::NewStub(channel_)) {}

  ~GrpcCoordinatorClient() override {
    Disconnect();
    MutexLock lock(&mu_);
    // gRPC ends a cancelled call at once.
    while (!streams_.empty()) gone_.Wait(&mu_);
  }

  uint64_t Connect(const v1::Register& first, uint64_t obeyed_epoch) override {
    Disconnect();
    MutexLock lock(&mu_);
    const uint64_t id = next_id_++;
    auto stream = std::make_unique<Stream>(
        id, &events_, [this](uint64_t ended) { OnEnded(ended); });
    current_ = stream.get();
    streams_[id] = std::move(stream);
    current_->Start(stub_.get(), first, obeyed_epoch);
    return id;
  }

  void Send(const v1::WorkerMessage& message) override {
    MutexLock lock(&mu_);
    if (current_ != nullptr) current_->Send(message);
  }

  void Disconnect() override {
    MutexLock lock(&mu_);
    if (current_ != nullptr) current_->Cancel();
    current_ = nullptr;
  }

 private:
  void OnEnded(uint64_t id) ABSL_LOCKS_EXCLUDED(mu_) {
    std::unique_ptr<Stream> ended;
    {
      MutexLock lock(&mu_);
      ended = std::move(streams_[id]);
      if (current_ == ended.get()) current_ = nullptr;
    }
    // Before the destructor, which waits for the entry, may go on.
    ended.reset();
    MutexLock lock(&mu_);
    streams_.erase(id);
    gone_.NotifyAll();
  }

  const Events events_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  Mutex mu_;
  CondVar gone_;
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  Stream* current_ ABSL_GUARDED_BY(mu_) = nullptr;
  // Keyed by number: a new stream may reuse the address of an old one.
  std::map<uint64_t, std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<CoordinatorClient> MakeGrpcCoordinatorClient(
    std::shared_ptr<grpc::Channel> channel, CoordinatorClient::Events events) {
  return std::make_unique<GrpcCoordinatorClient>(std::move(channel),
                                                 std::move(events));
}

}  // namespace lockstep::worker::agent
