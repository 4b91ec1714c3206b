#include "worker/agent/stream/package_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/rpc/status_conversion.h"
#include "lockstep/v1/package.grpc.pb.h"

namespace lockstep::worker::agent {
namespace {

using package::Cancellation;
using package::PackageSource;

// One call. Its events come on gRPC's threads; Run takes them on the caller's.
class Call final : public grpc::ClientReadReactor<v1::FetchPackageResponse> {
 public:
  Status Run(v1::PackageService::Stub* stub, const std::string& digest,
             int64_t offset, Duration idle, const PackageSource::Take& take,
             Cancellation* cancel) {
    request_.set_digest(digest);
    request_.set_offset(offset);
    stub->async()->FetchPackage(&context_, &request_, this);
    // Reads are begun outside of reactions: without it the call might be over
    // between two.
    AddHold();
    StartRead(&response_);
    StartCall();
    Status own;
    {
      const Cancellation::Listener listener(cancel,
                                            [this] { context_.TryCancel(); });
      own = Read(idle, take);
    }
    if (!own.ok()) context_.TryCancel();
    RemoveHold();
    MutexLock lock(&mu_);
    // gRPC ends a cancelled call at once.
    while (!done_) changed_.Wait(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(cancel->Check());
    LOCKSTEP_RETURN_IF_ERROR(own);
    return Judge(status_);
  }

  void OnReadDone(bool ok) override {
    MutexLock lock(&mu_);
    read_ = true;
    more_ = ok;
    changed_.NotifyAll();
  }
  void OnDone(const grpc::Status& status) override {
    MutexLock lock(&mu_);
    status_ = FromGrpc(status);
    done_ = true;
    // Under the lock: Run may return, and this be gone, right after it.
    changed_.NotifyAll();
  }

 private:
  // Reads until the bytes end; the call's status tells whether it succeeded.
  Status Read(Duration idle, const PackageSource::Take& take) {
    for (;;) {
      {
        const MonoTime deadline = MonotonicNow() + idle;
        MutexLock lock(&mu_);
        while (!read_) {
          if (!changed_.WaitUntil(&mu_, deadline) && !read_) {
            return DeadlineExceeded("received no bytes for {}",
                                    FormatDuration(idle));
          }
        }
        if (!more_) return OkStatus();
        read_ = false;
      }
      const Status taken = take(response_.data());
      // A read is under way whenever the call is ended.
      response_.Clear();
      StartRead(&response_);
      LOCKSTEP_RETURN_IF_ERROR(taken);
    }
  }

  // Returns Unavailable for errors of the connection or of a restarting
  // coordinator, after which the fetch can resume.
  static Status Judge(const Status& status) {
    switch (status.code()) {
      case StatusCode::kCancelled:
      case StatusCode::kUnknown:
      case StatusCode::kInternal:
      case StatusCode::kAborted:
      case StatusCode::kDeadlineExceeded:
      case StatusCode::kResourceExhausted:
        return Unavailable("{}", Message(status));
      default:
        return status;
    }
  }

  grpc::ClientContext context_;
  v1::FetchPackageRequest request_;
  v1::FetchPackageResponse response_;
  Mutex mu_;
  CondVar changed_;
  bool read_ ABSL_GUARDED_BY(mu_) = false;
  bool more_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  Status status_ ABSL_GUARDED_BY(mu_);
};

class GrpcPackageSource final : public PackageSource {
 public:
  explicit GrpcPackageSource(std::shared_ptr<grpc::Channel> channel)
      : channel_(std::move(channel)),
        stub_(v1::PackageService::NewStub(channel_)) {}

  Status Fetch(const std::string& digest, int64_t offset, Duration idle,
               const Take& take, Cancellation* cancel) override {
    return Call().Run(stub_.get(), digest, offset, idle, take, cancel);
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::PackageService::Stub> stub_;
};

}  // namespace

std::unique_ptr<PackageSource> MakeGrpcPackageSource(
    std::shared_ptr<grpc::Channel> channel) {
  return std::make_unique<GrpcPackageSource>(std::move(channel));
}

}  // namespace lockstep::worker::agent
