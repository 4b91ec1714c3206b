// Opens a channel to the coordinator, for workers and clients.
//
// The coordinator is authenticated by the URI in its certificate, not by its
// host name: the same CA must have signed it, and the URI must be
// spiffe://CLUSTER/coordinator/ID. So a stolen worker or user certificate
// cannot pose as the coordinator, and the coordinator may move.
#ifndef LOCKSTEP_COMMON_RPC_CHANNEL_H_
#define LOCKSTEP_COMMON_RPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/pki/credentials.h"

namespace lockstep {

struct ChannelOptions {
  // HOST:PORT of the coordinator.
  std::string target;
  // Required unless insecure_loopback.
  std::optional<pki::Credentials> credentials;
  // No TLS. Allowed only if `target` is loopback.
  bool insecure_loopback = false;
};

// Connects at the first call, and again whenever the connection breaks: after
// 0.1 s, then with growing delays of at most 2 s. A dead peer is detected
// within 15 s. Unary calls and reads that end UNAVAILABLE are tried four times
// with jitter, within the call's deadline (mutating calls are safe because of
// their request_id). The worker's stream is not retried; its owner reconnects.
// Errors: InvalidArgument if the target is malformed or not loopback;
// FailedPrecondition without credentials.
StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const ChannelOptions& options);

// Checks a server's certificate by its URI names. Unauthenticated names the
// identity found instead. Pure.
Status CheckServerNames(const std::vector<std::string_view>& uris,
                        std::string_view cluster);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CHANNEL_H_
