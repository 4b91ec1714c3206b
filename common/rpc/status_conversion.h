// absl::Status <-> grpc::Status.
//
// Codes have the same numbers. The reason (ReasonOf() of common/base/status.h)
// travels in grpc-status-details-bin as a google.rpc.Status with one
// google.rpc.ErrorInfo{reason, domain: "lockstep"}, which any gRPC client can
// read (AIP-193).
#ifndef LOCKSTEP_COMMON_RPC_STATUS_CONVERSION_H_
#define LOCKSTEP_COMMON_RPC_STATUS_CONVERSION_H_

#include <grpcpp/support/status.h>

#include "common/base/status.h"

namespace lockstep {

// The text is cut at 2 KiB, and bytes that are not UTF-8 become '?'. The peer
// would reject a larger trailer, and the text would be lost.
grpc::Status ToGrpc(const Status& status);

// Ignores unreadable details and those of another domain. A code that gRPC does
// not define becomes Unknown.
Status FromGrpc(const grpc::Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_STATUS_CONVERSION_H_
