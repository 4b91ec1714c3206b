#include "server/service/worker_service.h"

#include <charconv>
#include <memory>
#include <string>
#include <utility>

#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/pki/identity.h"
#include "common/rpc/caller.h"
#include "common/rpc/metadata_keys.h"
#include "server/service/session_splice.h"
#include "server/service/worker_inbox.h"
#include "server/service/worker_outbox.h"

namespace lockstep::server {
namespace {

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

class Stream final : public WorkerOutbox::Reactor {
 public:
  Stream(WorkerServiceOptions options, WorkPool* pool,
         WorkerInboxServices services, StreamMetrics* streams,
         pki::Identity caller, uint64_t obeyed_epoch)
      : pool_(pool),
        caller_name_(FormatIdentity(caller)),
        outbox_(std::make_shared<WorkerOutbox>(this)),
        inbox_(std::move(options), services, std::move(caller), obeyed_epoch,
               outbox_),
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
    const Status status = inbox_.Take(incoming_);
    if (!status.ok()) {
      LOG_WARN("stream of {}: {}", Describe(inbox_.caller()), Message(status));
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
    inbox_.OnStreamEnd();
    delete this;
  }

  WorkPool* const pool_;
  const std::string caller_name_;
  const std::shared_ptr<WorkerOutbox> outbox_;
  // Used only by the thread that processes a message, and by Leave after the
  // last.
  WorkerInbox inbox_;
  v1::WorkerMessage incoming_;
  const StreamMetrics::Open open_;
  Mutex mu_;
  // A message is being processed or waits to be.
  bool taking_ ABSL_GUARDED_BY(mu_) = false;
  // gRPC has finished the stream.
  bool done_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>*
WorkerService::Connect(grpc::CallbackServerContext* context) {
  // A server with --insecure-loopback authenticates no daemon.
  return new Stream(options_, pools_->streams(CallRole::kWorkers),
                    {sessions_, queries_, logs_, files_, options_.evidence,
                     options_.sessions},
                    streams_, CallerOf(*context), ObeyedEpoch(*context));
}

grpc::ServerBidiReactor<v1::SessionOutput, v1::SessionInput>*
WorkerService::ServeSession(grpc::CallbackServerContext* context) {
  return SessionSplice::ServeNode(context, options_.sessions);
}

}  // namespace lockstep::server
