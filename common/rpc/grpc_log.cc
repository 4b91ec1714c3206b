#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include "common/base/logging.h"

namespace lockstep {
namespace {

void ToOurs(gpr_log_func_args* args) {
  switch (args->severity) {
    case GPR_LOG_SEVERITY_ERROR:
      LOG_WARN("grpc: {}", args->message);
      break;
    case GPR_LOG_SEVERITY_INFO:
      LOG_INFO("grpc: {}", args->message);
      break;
    default:
      LOG_DEBUG("grpc: {}", args->message);
      break;
  }
}

void Nowhere(gpr_log_func_args*) {}

}  // namespace

void RedirectGrpcLog(GrpcLog where) {
  gpr_set_log_function(where == GrpcLog::kToOurs ? ToOurs : Nowhere);
}

}  // namespace lockstep
