// Who is calling: for service implementations.
#ifndef LOCKSTEP_COMMON_RPC_CALLER_H_
#define LOCKSTEP_COMMON_RPC_CALLER_H_

#include "common/base/status.h"
#include "common/pki/identity.h"

namespace grpc {
class AuthContext;
class ServerContextBase;
}  // namespace grpc

namespace lockstep {

// The caller that the server has already admitted. Identity::kInsecure on a
// server with --insecure-loopback and on an in-process channel.
Identity CallerOf(const grpc::ServerContextBase& context);

// The name in the peer's certificate. Unauthenticated where it has none of
// ours, or several.
StatusOr<Identity> IdentityOf(const grpc::AuthContext& context);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CALLER_H_
