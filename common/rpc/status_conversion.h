// absl::Status <-> grpc::Status.
//
// Codes are the same numbers. The reason (ReasonOf() of common/base/status.h)
// travels in grpc-status-details-bin as a google.rpc.Status with one
// google.rpc.ErrorInfo{reason, domain: "lockstep"}, so that any gRPC client
// reads it (AIP-193).
#ifndef LOCKSTEP_COMMON_RPC_STATUS_CONVERSION_H_
#define LOCKSTEP_COMMON_RPC_STATUS_CONVERSION_H_

#include <grpcpp/support/status.h>

#include "common/base/status.h"

namespace lockstep {

// The text is cut at 2 KiB and bytes that are not UTF-8 become '?': a larger
// trailer would be refused by the peer, and the sentence lost with it.
grpc::Status ToGrpc(const Status& status);

// Details that cannot be read, or of another domain, are left out. A code that
// gRPC does not define becomes Unknown.
Status FromGrpc(const grpc::Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_STATUS_CONVERSION_H_
