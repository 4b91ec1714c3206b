#include "common/rpc/end_call.h"

#include <grpc/grpc.h>
#include <grpcpp/server_context.h>

#include "common/rpc/status_conversion.h"

namespace lockstep {

void EndCall(grpc::ServerContextBase* context, const Status& status) {
  // The library's documentation says that the client gets nothing. The HTTP/2
  // transport does send the status, as for TryCancel.
  const grpc::Status end = ToGrpc(status);
  (void)grpc_call_cancel_with_status(
      context->c_call(), static_cast<grpc_status_code>(end.error_code()),
      end.error_message().c_str(), nullptr);
}

}  // namespace lockstep
