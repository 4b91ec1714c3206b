#include "common/rpc/caller.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep {
namespace {

bool IsTls(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> types =
      context.FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  for (const grpc::string_ref& type : types) {
    if (type == GRPC_SSL_TRANSPORT_SECURITY_TYPE ||
        type == GRPC_TLS_TRANSPORT_SECURITY_TYPE) {
      return true;
    }
  }
  return false;
}

}  // namespace

StatusOr<pki::Identity> IdentityOf(const grpc::AuthContext& context) {
  // RpcServer::Start offers plain text on loopback only.
  if (!IsTls(context)) return pki::InsecureIdentity();
  const std::vector<grpc::string_ref> uris =
      context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME);
  if (uris.size() != 1) {
    return Unauthenticated(
        "the caller's certificate has {} URI names instead of exactly one "
        "identity: issue one with `lockstep cert issue`",
        uris.size());
  }
  StatusOr<pki::Identity> identity =
      pki::ParseIdentity(std::string_view(uris[0].data(), uris[0].size()));
  if (!identity.ok()) return Unauthenticated("{}", Message(identity.status()));
  return identity;
}

pki::Identity CallerOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  const StatusOr<pki::Identity> identity = IdentityOf(*auth);
  if (identity.ok()) return *identity;
  // Cannot happen, because the same check admitted the call. The default
  // identity has no rights.
  return pki::Identity();
}

}  // namespace lockstep
