// What is behind Client: used by client.cc and streams.cc only.
#ifndef LOCKSTEP_CLIENT_LIB_CLIENT_IMPL_H_
#define LOCKSTEP_CLIENT_LIB_CLIENT_IMPL_H_

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>

#include "client/lib/client.h"
#include "lockstep/v1/cluster.grpc.pb.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "lockstep/v1/package.grpc.pb.h"

namespace lockstep {

struct Client::Impl {
  ClientOptions options;
  std::unique_ptr<v1::JobService::Stub> jobs;
  std::unique_ptr<v1::ClusterService::Stub> cluster;
  std::unique_ptr<v1::PackageService::Stub> packages;

  // The deadline of a unary call.
  void Prepare(grpc::ClientContext* context) const {
    context->set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(
            options.timeout));
  }
  // A unary call with its deadline.
  template <typename Stub, typename Request, typename Response>
  StatusOr<Response> Call(const std::unique_ptr<Stub>& stub,
                          grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                       const Request&,
                                                       Response*),
                          const Request& request) const;
};

// As FromServer; says whom we asked where the text is gRPC's own about its
// sockets.
Status Convert(const grpc::Status& status, const std::string& address);

template <typename Stub, typename Request, typename Response>
StatusOr<Response> Client::Impl::Call(
    const std::unique_ptr<Stub>& stub,
    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                 Response*),
    const Request& request) const {
  grpc::ClientContext context;
  Prepare(&context);
  Response response;
  LOCKSTEP_RETURN_IF_ERROR(Convert(
      (stub.get()->*method)(&context, request, &response), options.address));
  return response;
}

// Cancels `context` at Stop() for as long as it lives. `stop` may be null.
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

// When to try a broken stream again. Told of each good message.
class Persistence {
 public:
  Persistence(Duration patience, std::function<void(const Status&)> on_break,
              StopToken* stop);

  void Good();
  // Waits; false when the stream is to end with `error`.
  bool Retry(const Status& error);

 private:
  const Duration patience_;
  const std::function<void(const Status&)> on_break_;
  StopToken* const stop_;
  MonoTime good_;
  Duration pause_;
  bool told_ = false;
};

// Cancelled: what a stopped call returns.
Status StoppedByCaller();

// As FromGrpc, of a call that we did not cancel: one that the server cancelled
// was cut off as it is stopping, and is UNAVAILABLE like what comes after.
Status FromServer(const grpc::Status& status);

// Whether there was no connection at all: nobody listens, or TLS failed.
bool NeverConnected(const grpc::Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LIB_CLIENT_IMPL_H_
