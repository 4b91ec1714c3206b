// The implementation of Client, for client.cc and streams.cc only.
#ifndef LOCKSTEP_CLIENT_LIB_CLIENT_IMPL_H_
#define LOCKSTEP_CLIENT_LIB_CLIENT_IMPL_H_

#include <grpcpp/client_context.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "client/lib/client.h"
#include "lockstep/v1/cluster.grpc.pb.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "lockstep/v1/package.grpc.pb.h"

namespace lockstep::cli {

struct Client::Impl {
  ClientOptions options;
  std::unique_ptr<v1::JobService::Stub> jobs;
  std::unique_ptr<v1::ClusterService::Stub> cluster;
  std::unique_ptr<v1::PackageService::Stub> packages;

  // Sets the deadline of a unary call, which may take `least` at least.
  void Prepare(grpc::ClientContext* context, Duration least = {}) const {
    context->set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(
            std::max(options.timeout, least)));
  }
  // Makes a unary call with its deadline.
  template <typename Stub, typename Request, typename Response>
  StatusOr<Response> Call(const std::unique_ptr<Stub>& stub,
                          grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                       const Request&,
                                                       Response*),
                          const Request& request, Duration least = {}) const;
};

// As FromServer, and adds the address to gRPC's own socket errors.
Status Convert(const grpc::Status& status, const std::string& address);

template <typename Stub, typename Request, typename Response>
StatusOr<Response> Client::Impl::Call(
    const std::unique_ptr<Stub>& stub,
    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                 Response*),
    const Request& request, Duration least) const {
  grpc::ClientContext context;
  Prepare(&context, least);
  Response response;
  LOCKSTEP_RETURN_IF_ERROR(Convert(
      (stub.get()->*method)(&context, request, &response), options.address));
  return response;
}

// While it lives, Stop() cancels `context`. `stop` may be null.
class CancelOnStop {
 public:
  CancelOnStop(StopToken* stop, grpc::ClientContext* context) : stop_(stop) {
    if (stop_) stop_->SetCancel([context] { context->TryCancel(); });
  }
  ~CancelOnStop() {
    if (stop_) stop_->SetCancel(nullptr);
  }
  CancelOnStop(const CancelOnStop&) = delete;
  CancelOnStop& operator=(const CancelOnStop&) = delete;

 private:
  StopToken* const stop_;
};

// Decides when to retry a broken stream.
class Persistence {
 public:
  Persistence(Duration patience, std::function<void(const Status&)> on_break,
              StopToken* stop);

  void Good();
  // Waits. Returns false if the stream must end with `error`.
  bool Retry(const Status& error);

 private:
  const Duration patience_;
  const std::function<void(const Status&)> on_break_;
  StopToken* const stop_;
  MonoTime good_;
  Duration pause_;
  bool told_ = false;
};

// Returns the Cancelled of a stopped call.
Status StoppedByCaller();

// As FromGrpc for a call that the client did not cancel. A call that the server
// cancelled was cut off at its shutdown, so it becomes UNAVAILABLE, like later
// calls.
Status FromServer(const grpc::Status& status);

// True if there was no connection: no server listens, or TLS failed.
bool NeverConnected(const grpc::Status& status);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LIB_CLIENT_IMPL_H_
