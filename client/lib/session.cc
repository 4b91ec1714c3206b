#include "client/lib/session.h"

#include <grpcpp/client_context.h>

#include <utility>

#include "client/lib/client_impl.h"
#include "common/base/mutex.h"

namespace lockstep::cli {
namespace {

class GrpcSession final : public Session {
 public:
  GrpcSession(v1::JobService::Stub* stub, std::string address)
      : address_(std::move(address)), stream_(stub->OpenSession(&context_)) {}
  ~GrpcSession() override {
    if (finished_) return;
    context_.TryCancel();
    (void)stream_->Finish();
  }

  bool Write(const v1::SessionInput& input) override {
    MutexLock lock(&mu_);
    return stream_->Write(input);
  }
  bool Read(v1::SessionOutput* output) override {
    return stream_->Read(output);
  }
  Status Finish() override {
    finished_ = true;
    return Convert(stream_->Finish(), address_);
  }
  void Cancel() override { context_.TryCancel(); }

 private:
  const std::string address_;
  grpc::ClientContext context_;
  // Serialises writes.
  Mutex mu_;
  const std::unique_ptr<
      grpc::ClientReaderWriter<v1::SessionInput, v1::SessionOutput>>
      stream_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<Session> OpenSession(Client* client,
                                     const v1::SessionRequest& request) {
  auto session = std::make_unique<GrpcSession>(client->impl_->jobs.get(),
                                               client->address());
  v1::SessionInput first;
  *first.mutable_open() = request;
  (void)session->Write(first);
  return session;
}

}  // namespace lockstep::cli
