// Unary calls of gRPC's callback API with handlers that return their answer.
// They run on a thread of the caller's pool (common/rpc/call_pools.h), which is
// free while the answer is sent.
#ifndef LOCKSTEP_SERVER_SERVICE_UNARY_H_
#define LOCKSTEP_SERVER_SERVICE_UNARY_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

namespace lockstep::server {

// Sends `status`, and the response if it is OK.
inline grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                        const grpc::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_UNARY_H_
