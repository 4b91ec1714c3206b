// Fetches packages from the coordinator.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_PACKAGE_CLIENT_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_PACKAGE_CLIENT_H_

#include <memory>

#include "worker/package/package_source.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace lockstep::worker::agent {

// Uses gRPC. `channel` is that of the daemon's stream.
std::unique_ptr<package::PackageSource> MakeGrpcPackageSource(
    std::shared_ptr<grpc::Channel> channel);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_PACKAGE_CLIENT_H_
