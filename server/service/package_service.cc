#include "server/service/package_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/logging.h"
#include "common/rpc/caller.h"
#include "common/rpc/status_conversion.h"
#include "common/wire/value_wire.h"
#include "server/service/request.h"
#include "server/stream/stream_reactor.h"

namespace lockstep::server {
namespace {

// Maximum size of one message in either direction.
constexpr size_t kMaxPiece = 1 << 20;

class Uploading final : public StreamSource<v1::UploadPackageRequest> {
 public:
  Uploading(PackageStore* store, AdmissionLimiter* limiter,
            const pki::Identity& caller, v1::UploadPackageResponse* response,
            StreamPeer* peer)
      : store_(store),
        user_{OwnerName(caller), caller.IsAdmin()},
        response_(response),
        peer_(peer),
        ticket_(limiter, caller, peer) {}

  StreamStep Next(v1::UploadPackageRequest* /*message*/) override {
    const auto admitted = ticket_.Poll();
    if (!admitted) return StreamStep::Sleep(ticket_.deadline());
    return admitted->ok() ? StreamStep::Read() : StreamStep::End(*admitted);
  }
  StreamStep OnRead(v1::UploadPackageRequest* message, bool ended) override {
    // The client left before it sent all declared bytes.
    if (peer_->IsCancelled()) {
      return StreamStep::End(Cancelled("the upload was interrupted"));
    }
    if (upload_ == nullptr) return Begin(*message, ended);
    if (ended) return StreamStep::End(upload_->Finish());
    ticket_.Progress();
    if (Status s = Append(*message); !s.ok()) {
      return StreamStep::End(std::move(s));
    }
    return StreamStep::Read();
  }

 private:
  StreamStep Begin(const v1::UploadPackageRequest& first, bool ended) {
    if (ended || !first.has_package()) {
      return StreamStep::End(InvalidArgument(
          "package: is missing: the first message must describe "
          "the package"));
    }
    const auto package = FromProto(first.package(), "package");
    if (!package.ok()) return StreamStep::End(package.status());
    auto upload = store_->Begin(user_, *package);
    if (!upload.ok()) return StreamStep::End(upload.status());
    if (*upload == nullptr) {
      response_->set_existed(true);
      return StreamStep::End(OkStatus());
    }
    upload_ = *std::move(upload);
    return StreamStep::Read();
  }
  Status Append(const v1::UploadPackageRequest& message) {
    if (!message.has_data()) {
      return InvalidArgument(
          "data: is missing: the package's bytes must follow it");
    }
    if (message.data().size() > kMaxPiece) {
      return InvalidArgument(
          "data: has {} bytes; at most {} are allowed in a message",
          message.data().size(), kMaxPiece);
    }
    return upload_->Append(message.data());
  }

  PackageStore* const store_;
  const PackageUser user_;
  v1::UploadPackageResponse* const response_;
  StreamPeer* const peer_;
  AdmissionLimiter::Ticket ticket_;
  // Null before the first message.
  std::unique_ptr<PackageStore::Upload> upload_;
};

class Fetching final : public StreamSource<v1::FetchPackageResponse> {
 public:
  Fetching(PackageStore* store, AdmissionLimiter* limiter,
           const pki::Identity& caller, const v1::FetchPackageRequest& request,
           StreamPeer* peer)
      : store_(store), request_(request), ticket_(limiter, caller, peer) {}

  StreamStep Next(v1::FetchPackageResponse* message) override {
    const auto admitted = ticket_.Poll();
    if (!admitted) return StreamStep::Sleep(ticket_.deadline());
    if (!admitted->ok()) return StreamStep::End(*admitted);
    if (!content_) {
      if (Status s = Open(); !s.ok()) return StreamStep::End(std::move(s));
    } else {
      ticket_.Progress();
    }
    if (offset_ >= content_->bytes) return StreamStep::End(OkStatus());
    if (Status s = Read(message->mutable_data()); !s.ok()) {
      return StreamStep::End(std::move(s));
    }
    return StreamStep::Send();
  }

 private:
  Status Open() {
    LOCKSTEP_ASSIGN_OR_RETURN(content_, store_->Read(request_.digest()));
    if (request_.offset() < 0 ||
        static_cast<uint64_t>(request_.offset()) > content_->bytes) {
      return OutOfRange("offset: must be 0 to {}, not {}", content_->bytes,
                        request_.offset());
    }
    offset_ = static_cast<uint64_t>(request_.offset());
    return OkStatus();
  }
  Status Read(std::string* data) {
    data->resize(std::min<uint64_t>(kMaxPiece, content_->bytes - offset_));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const size_t got,
        content_->file->ReadAt(offset_, data->data(), data->size()));
    if (got < data->size()) {
      return DataLoss("the stored package ends after {} of {} bytes",
                      offset_ + got, content_->bytes);
    }
    offset_ += got;
    return OkStatus();
  }

  PackageStore* const store_;
  const v1::FetchPackageRequest request_;
  AdmissionLimiter::Ticket ticket_;
  // Set once it is admitted.
  std::optional<PackageStore::Content> content_;
  uint64_t offset_ = 0;
};

}  // namespace

grpc::ServerReadReactor<v1::UploadPackageRequest>*
PackageService::UploadPackage(grpc::CallbackServerContext* context,
                              v1::UploadPackageResponse* response) {
  return StartCall<UploadReactor<v1::UploadPackageRequest>>(
      context, pools_, [&](StreamPeer* peer) {
        return std::make_unique<Uploading>(store_, &uploads_,
                                           CallerOf(*context), response, peer);
      });
}

grpc::ServerWriteReactor<v1::FetchPackageResponse>*
PackageService::FetchPackage(grpc::CallbackServerContext* context,
                             const v1::FetchPackageRequest* request) {
  if (!IsPackageDigest(request->digest())) {
    return new RefusedStream<v1::FetchPackageResponse>(
        InvalidArgument("digest: must be \"sha256:\" and 64 lower-case hex "
                        "digits"));
  }
  return StartCall<StreamReactor<v1::FetchPackageResponse>>(
      context, pools_, [&](StreamPeer* peer) {
        return std::make_unique<Fetching>(store_, &fetches_, CallerOf(*context),
                                          *request, peer);
      });
}

void PackageService::CancelIdle(MonoTime now) {
  uploads_.CancelIdle(now - options_.idle);
  fetches_.CancelIdle(now - options_.idle);
}

}  // namespace lockstep::server
