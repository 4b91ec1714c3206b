#include "server/service/package_service.h"

#include <algorithm>

#include "common/base/logging.h"
#include "common/rpc/caller.h"
#include "common/rpc/status_conversion.h"
#include "common/wire/value_wire.h"
#include "server/service/request.h"

namespace lockstep {
namespace {

// Of one message, both ways.
constexpr size_t kMaxPiece = 1 << 20;

Status Receive(grpc::ServerReader<v1::UploadPackageRequest>* in,
               PackageStore::Upload* upload, Turns::Turn* turn) {
  v1::UploadPackageRequest message;
  while (in->Read(&message)) {
    turn->Progress();
    if (!message.has_data()) {
      return InvalidArgument(
          "data: is missing: after the package come its bytes");
    }
    if (message.data().size() > kMaxPiece) {
      return InvalidArgument("data: has {} bytes; at most {} go into a message",
                             message.data().size(), kMaxPiece);
    }
    LOCKSTEP_RETURN_IF_ERROR(upload->Append(message.data()));
  }
  return upload->Finish();
}

Status Send(PackageStore::Content content, uint64_t offset,
            grpc::ServerContext* context,
            grpc::ServerWriter<v1::FetchPackageResponse>* out,
            Turns::Turn* turn) {
  while (offset < content.bytes) {
    v1::FetchPackageResponse response;
    std::string* const data = response.mutable_data();
    data->resize(std::min<uint64_t>(kMaxPiece, content.bytes - offset));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const size_t got,
        content.file->ReadAt(offset, data->data(), data->size()));
    if (got < data->size()) {
      return DataLoss("the stored package ends after {} of {} bytes",
                      offset + got, content.bytes);
    }
    if (context->IsCancelled() || !out->Write(response)) {
      return Cancelled("the call was cancelled");
    }
    turn->Progress();
    offset += got;
  }
  return OkStatus();
}

}  // namespace

grpc::Status PackageService::UploadPackage(
    grpc::ServerContext* context,
    grpc::ServerReader<v1::UploadPackageRequest>* in,
    v1::UploadPackageResponse* response) {
  Turns::Turn turn(&uploads_, context);
  if (!turn.status().ok()) return ToGrpc(turn.status());
  v1::UploadPackageRequest first;
  if (!in->Read(&first) || !first.has_package()) {
    return ToGrpc(
        InvalidArgument("package: is missing: the first message says what the "
                        "bytes that follow are"));
  }
  const auto package = FromProto(first.package(), "package");
  if (!package.ok()) return ToGrpc(package.status());
  const Identity caller = CallerOf(*context);
  auto upload = store_->Begin({OwnerName(caller), caller.IsAdmin()}, *package);
  if (!upload.ok()) return ToGrpc(upload.status());
  if (*upload == nullptr) {
    response->set_existed(true);
    return grpc::Status::OK;
  }
  const Status status = Receive(in, upload->get(), &turn);
  // A client that went away has not sent what it announced.
  if (!status.ok() && context->IsCancelled()) {
    return ToGrpc(Cancelled("the upload was broken off"));
  }
  return ToGrpc(status);
}

grpc::Status PackageService::FetchPackage(
    grpc::ServerContext* context, const v1::FetchPackageRequest* request,
    grpc::ServerWriter<v1::FetchPackageResponse>* out) {
  if (!IsPackageDigest(request->digest())) {
    return ToGrpc(
        InvalidArgument("digest: must be \"sha256:\" and 64 lower-case hex "
                        "digits"));
  }
  Turns::Turn turn(&fetches_, context);
  if (!turn.status().ok()) return ToGrpc(turn.status());
  auto content = store_->Read(request->digest());
  if (!content.ok()) return ToGrpc(content.status());
  if (request->offset() < 0 ||
      static_cast<uint64_t>(request->offset()) > content->bytes) {
    return ToGrpc(OutOfRange("offset: must be 0 to {}, not {}", content->bytes,
                             request->offset()));
  }
  return ToGrpc(Send(*std::move(content),
                     static_cast<uint64_t>(request->offset()), context, out,
                     &turn));
}

void PackageService::CancelIdle(MonoTime now) {
  uploads_.CancelIdle(now - options_.idle);
  fetches_.CancelIdle(now - options_.idle);
}

}  // namespace lockstep
