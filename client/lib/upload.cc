// Client's uploads: streams that go the other way.
#include <algorithm>
#include <thread>
#include <utility>

#include "client/lib/client.h"
#include "client/lib/client_impl.h"
#include "common/base/mutex.h"

namespace lockstep::cli {
namespace {

constexpr size_t kPiece = 1 << 20;
constexpr int kMostTries = 10;

// Cancels a call when it makes no progress, because a blocking write has no
// deadline.
class StallGuard {
 public:
  StallGuard(Duration stall, grpc::ClientContext* context)
      : stall_(stall), context_(context), thread_([this] { Run(); }) {}
  ~StallGuard() {
    {
      MutexLock lock(&mu_);
      done_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }
  void Moved() {
    MutexLock lock(&mu_);
    ++moves_;
  }
  bool stalled() const {
    MutexLock lock(&mu_);
    return stalled_;
  }

 private:
  void Run() {
    MutexLock lock(&mu_);
    int64_t seen = -1;
    MonoTime since = MonotonicNow();
    while (!done_) {
      const MonoTime now = MonotonicNow();
      if (moves_ != seen) {
        seen = moves_;
        since = now;
      } else if (now - since >= stall_) {
        stalled_ = true;
        context_->TryCancel();
        return;
      }
      changed_.WaitFor(&mu_, std::max(Duration(1), stall_ - (now - since)));
    }
  }

  const Duration stall_;
  grpc::ClientContext* const context_;
  mutable Mutex mu_;
  CondVar changed_;
  int64_t moves_ ABSL_GUARDED_BY(mu_) = 0;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last, because it uses the others.
};

// The result of one attempt.
struct Try {
  // The error of `read`, otherwise OK.
  Status source;
  grpc::Status answer;
  bool stalled = false;
  v1::UploadPackageResponse response;
};

// Writes until the whole package is sent or the server stops reading, because
// it has the package or rejects it. Finish returns which. Calls `moved` after
// each message.
Status WriteAll(const v1::Package& package, const PackageReader& read,
                const std::function<void(uint64_t)>& moved,
                grpc::ClientWriter<v1::UploadPackageRequest>* writer,
                bool* complete) {
  v1::UploadPackageRequest request;
  *request.mutable_package() = package;
  if (!writer->Write(request)) return OkStatus();
  moved(0);
  const auto size = static_cast<uint64_t>(package.bytes());
  for (uint64_t offset = 0; offset < size;) {
    std::string* const data = request.mutable_data();
    data->resize(std::min<uint64_t>(kPiece, size - offset));
    LOCKSTEP_ASSIGN_OR_RETURN(const size_t got,
                              read(offset, data->data(), data->size()));
    if (got == 0) {
      return DataLoss("{} ended after {} of {} bytes: it was changed meanwhile",
                      package.file_name(), offset, size);
    }
    data->resize(got);
    if (!writer->Write(request)) return OkStatus();
    offset += got;
    moved(offset);
  }
  *complete = true;
  return OkStatus();
}

}  // namespace

StatusOr<bool> Client::UploadPackage(const v1::Package& package,
                                     const PackageReader& read,
                                     const UploadOptions& options,
                                     StopToken* stop) {
  Persistence persistence(options.patience, nullptr, stop);
  bool connected = false;
  for (int tries = 1;; ++tries) {
    if (stop && stop->stopped()) return StoppedByCaller();
    Try result;
    {
      grpc::ClientContext context;
      const CancelOnStop cancel(stop, &context);
      StallGuard guard(options.stall, &context);
      auto writer = impl_->packages->UploadPackage(&context, &result.response);
      bool complete = false;
      const auto moved = [&](uint64_t offset) {
        guard.Moved();
        persistence.Good();
        if (options.on_progress) options.on_progress(offset);
      };
      result.source = WriteAll(package, read, moved, writer.get(), &complete);
      // A partial package must not look complete.
      if (!result.source.ok()) context.TryCancel();
      if (complete) writer->WritesDone();
      result.answer = writer->Finish();
      result.stalled = guard.stalled();
    }
    if (stop && stop->stopped()) return StoppedByCaller();
    LOCKSTEP_RETURN_IF_ERROR(result.source);
    if (result.answer.ok()) return result.response.existed();
    // A server that was never reachable is probably at another address.
    connected = connected || !NeverConnected(result.answer);
    if (!connected) return Convert(result.answer, address());
    const Status status = FromServer(result.answer);
    // A quota or a full disk does not resolve itself.
    if (status.code() == StatusCode::kResourceExhausted ||
        tries == kMostTries || !persistence.Retry(status)) {
      if (stop && stop->stopped()) return StoppedByCaller();
      if (result.stalled) {
        return Unavailable(
            "the upload of {} to {} stalled: no byte moved in {}",
            package.file_name(), address(), FormatDuration(options.stall));
      }
      return Convert(result.answer, address());
    }
  }
}

}  // namespace lockstep::cli
