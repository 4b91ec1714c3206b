// The identity of a call's caller, for service implementations.
#ifndef LOCKSTEP_COMMON_RPC_CALLER_H_
#define LOCKSTEP_COMMON_RPC_CALLER_H_

#include "common/base/status.h"
#include "common/pki/identity.h"

namespace grpc {
class AuthContext;
class ServerContextBase;
}  // namespace grpc

namespace lockstep {

// Returns the caller that the server has admitted. Identity::kInsecure on a
// server with --insecure-loopback and on an in-process channel.
pki::Identity CallerOf(const grpc::ServerContextBase& context);

// Returns the name in the peer's certificate. Unauthenticated if it has no
// lockstep identity or several.
StatusOr<pki::Identity> IdentityOf(const grpc::AuthContext& context);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CALLER_H_
