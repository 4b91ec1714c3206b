// A channel to the coordinator, as workers and clients open it.
//
// The coordinator is known by the name in its certificate and not by its host
// name: it must be signed by the same CA and say
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
  std::optional<Credentials> credentials;
  // No TLS; only where `target` is loopback.
  bool insecure_loopback = false;
};

// Connects at the first call, and again whenever the connection breaks: after
// 0.1 s, then slower, at most 2 s apart. A dead peer is noticed within 15 s.
// Unary calls and reads that end UNAVAILABLE are tried four times, with
// jitter, within the call's deadline (mutating calls are safe by their
// request_id); the worker's stream is not, its owner reconnects.
// Errors: InvalidArgument the target is malformed or not loopback;
// FailedPrecondition no credentials.
StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const ChannelOptions& options);

// The check of a server's certificate, by the URI names in it. Unauthenticated
// says who it is instead. Pure.
Status CheckServerNames(const std::vector<std::string_view>& uris,
                        std::string_view cluster);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CHANNEL_H_
