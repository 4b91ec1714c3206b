// The log lines of gRPC and protobuf, which go to stderr in forms of their own.
#ifndef LOCKSTEP_COMMON_RPC_GRPC_LOG_H_
#define LOCKSTEP_COMMON_RPC_GRPC_LOG_H_

namespace lockstep {

enum class GrpcLog {
  // As warnings among ours. What gRPC calls an error is often no more than a
  // stranger's failed handshake.
  kToOurs,
  // For the CLI: what matters is in the status of the call.
  kSilent,
};

// For the whole process. Call before the first use of gRPC.
void RedirectGrpcLog(GrpcLog where);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_GRPC_LOG_H_
