#include "common/rpc/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
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

// protobuf logs every message with a byte that is not UTF-8. The call's answer
// suffices.
void ProtobufToOurs(google::protobuf::LogLevel, const char*, int,
                    const std::string& message) {
  LOG_DEBUG("protobuf: {}", message);
}

}  // namespace

void RedirectGrpcLog(GrpcLog where) {
  gpr_set_log_function(where == GrpcLog::kToOurs ? ToOurs : Nowhere);
  google::protobuf::SetLogHandler(where == GrpcLog::kToOurs ? ProtobufToOurs
                                                            : nullptr);
}

}  // namespace lockstep
