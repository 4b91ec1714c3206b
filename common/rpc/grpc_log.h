// Redirects the log lines of gRPC and protobuf, which go to stderr.
#ifndef LOCKSTEP_COMMON_RPC_GRPC_LOG_H_
#define LOCKSTEP_COMMON_RPC_GRPC_LOG_H_

namespace lockstep {

enum class GrpcLog {

  // To the daemon's log as warnings. gRPC's errors are often just failed
  // handshakes of unknown clients.
  kToOurs,
  // For the CLI. The call's status has the relevant error.
  kSilent,
};

// For the whole process. Call it before the first use of gRPC.
void RedirectGrpcLog(GrpcLog where);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_GRPC_LOG_H_
