#include "worker/agent/sessions/session_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "lockstep/v1/worker.grpc.pb.h"

namespace lockstep::worker::agent {
namespace {

class GrpcSessionCall final
    : public SessionCall,
      public grpc::ClientBidiReactor<v1::SessionOutput, v1::SessionInput> {
 public:
  GrpcSessionCall(v1::WorkerService::Stub* stub, uint64_t id,
                  std::function<void()> wake)
      : wake_(std::move(wake)) {
    stub->async()->ServeSession(&context_, this);
    // For what this class starts outside of reactions.
    AddHold();
    outgoing_.set_accept(id);
    StartWrite(&outgoing_);
    StartRead(&incoming_);
    StartCall();
  }

  ~GrpcSessionCall() override {
    context_.TryCancel();
    RemoveHold();
    MutexLock lock(&mu_);
    while (!done_) changed_.Wait(&mu_);
  }

  bool CanWrite() const override {
    MutexLock lock(&mu_);
    return !writing_ && !over_ && !finished_;
  }
  void Write(v1::SessionOutput message) override {
    MutexLock lock(&mu_);
    if (writing_ || over_ || finished_) return;
    outgoing_ = std::move(message);
    writing_ = true;
    StartWrite(&outgoing_);
  }
  std::optional<v1::SessionInput> Take() override {
    MutexLock lock(&mu_);
    if (!has_input_) return std::nullopt;
    has_input_ = false;
    return std::move(incoming_);
  }
  void Next() override {
    MutexLock lock(&mu_);
    if (over_) return;
    incoming_.Clear();
    StartRead(&incoming_);
  }
  void Cancel() override { context_.TryCancel(); }
  void FinishWrites() override {
    MutexLock lock(&mu_);
    if (finished_ || over_) return;
    finished_ = true;
    if (!writing_) StartWritesDone();
  }
  bool ended() const override {
    MutexLock lock(&mu_);
    return over_;
  }

 private:
  // ---- gRPC's calls ----
  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(&mu_);
      writing_ = false;
      if (!ok) over_ = true;
      if (finished_ && !over_) StartWritesDone();
    }
    wake_();
  }
  void OnReadDone(bool ok) override {
    {
      MutexLock lock(&mu_);
      has_input_ = ok;
      // The coordinator ends its side with the session only.
      if (!ok) over_ = true;
    }
    wake_();
  }
  void OnDone(const grpc::Status& /*status*/) override {
    // Under the lock: the destructor may go on as soon as it is free.
    MutexLock lock(&mu_);
    over_ = true;
    done_ = true;
    changed_.NotifyAll();
  }

  const std::function<void()> wake_;
  grpc::ClientContext context_;
  mutable Mutex mu_;
  CondVar changed_;
  v1::SessionOutput outgoing_;
  // Filled by gRPC between Next and OnReadDone.
  v1::SessionInput incoming_;
  bool writing_ ABSL_GUARDED_BY(mu_) = true;
  bool has_input_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
};

class GrpcSessionClient final : public SessionClient {
 public:
  explicit GrpcSessionClient(std::shared_ptr<grpc::Channel> channel)
      : channel_(std::move(channel)),
        stub_(v1::WorkerService::NewStub(channel_)) {}

  std::unique_ptr<SessionCall> Open(uint64_t id,
                                    std::function<void()> wake) override {
    return std::make_unique<GrpcSessionCall>(stub_.get(), id, std::move(wake));
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
};

}  // namespace

std::unique_ptr<SessionClient> MakeGrpcSessionClient(
    std::shared_ptr<grpc::Channel> channel) {
  return std::make_unique<GrpcSessionClient>(std::move(channel));
}

}  // namespace lockstep::worker::agent
