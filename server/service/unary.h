// Unary calls of gRPC's callback API, whose handlers return their answer: they
// run on a thread of their caller's pool (common/rpc/call_pools.h), and no
// thread is held while the answer is sent.
#ifndef LOCKSTEP_SERVER_SERVICE_UNARY_H_
#define LOCKSTEP_SERVER_SERVICE_UNARY_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

namespace lockstep {

// Sends `status`, and the response where it is OK.
inline grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                        const grpc::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_UNARY_H_
