// What is behind Client: used by client.cc and streams.cc only.
#ifndef LOCKSTEP_CLIENT_LIB_CLIENT_IMPL_H_
#define LOCKSTEP_CLIENT_LIB_CLIENT_IMPL_H_

#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "client/lib/client.h"
#include "lockstep/v1/cluster.grpc.pb.h"
#include "lockstep/v1/job.grpc.pb.h"

namespace lockstep {

struct Client::Impl {
  ClientOptions options;
  std::unique_ptr<v1::JobService::Stub> jobs;
  std::unique_ptr<v1::ClusterService::Stub> cluster;

  // The deadline of a unary call.
  void Prepare(grpc::ClientContext* context) const {
    context->set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(
            options.timeout));
  }
};

// As FromGrpc, of a call that we did not cancel: one that the server cancelled
// was cut off as it is stopping, and is UNAVAILABLE like what comes after.
Status FromServer(const grpc::Status& status);

// As FromServer; says whom we asked where the text is gRPC's own about its
// sockets.
Status Convert(const grpc::Status& status, const std::string& address);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LIB_CLIENT_IMPL_H_
