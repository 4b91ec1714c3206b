// The common parts of commands: caller, request id and stored answer.
#ifndef LOCKSTEP_SERVER_SERVICE_REQUEST_H_
#define LOCKSTEP_SERVER_SERVICE_REQUEST_H_

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <string>

#include "common/base/sha256.h"
#include "common/rpc/caller.h"
#include "common/rpc/status_conversion.h"
#include "server/coordinator/idempotency_cache.h"

namespace lockstep::server {

// Equal content gives equal bytes, maps included.
std::string DeterministicBytes(const google::protobuf::Message& message);

// "user/ann": the user without the role, which may change.
std::string OwnerName(const pki::Identity& caller);

// InvalidArgument if the id is missing or too long.
template <typename Request>
StatusOr<RequestKey> KeyOf(const grpc::ServerContextBase& context,
                           const Request& request, const char* method) {
  if (request.request_id().empty() || request.request_id().size() > 64) {
    return InvalidArgument(
        "request_id: must be an id of 1 to 64 bytes drawn by the client (a "
        "UUID), the same in every retry");
  }
  Request content = request;
  content.clear_request_id();
  return RequestKey{OwnerName(CallerOf(context)), request.request_id(), method,
                    Sha256(DeterministicBytes(content))};
}

// InvalidArgument if it is not a valid job name.
Status CheckJobName(const std::string& name);

// The stored answer is the sent message.
template <typename Message>
grpc::Status Reply(const StatusOr<std::string>& bytes, Message* response) {
  if (!bytes.ok()) return ToGrpc(bytes.status());
  if (!response->ParseFromString(*bytes)) {
    return ToGrpc(DataLoss("the stored answer to this request is damaged"));
  }
  return grpc::Status::OK;
}

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_REQUEST_H_
