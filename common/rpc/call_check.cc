#include "common/rpc/call_check.h"

#include <grpcpp/server_context.h>

#include <utility>

#include "common/base/logging.h"
#include "common/rpc/caller.h"
#include "common/rpc/status_conversion.h"

namespace lockstep {
namespace {

std::string_view View(const grpc::string_ref& text) {
  return {text.data(), text.size()};
}

// Lives as long as one call.
class ObservingInterceptor final : public grpc::experimental::Interceptor {
 public:
  ObservingInterceptor(CallObserver* observer, const char* method)
      : observer_(observer), method_(method), start_(clock_.Now().mono) {
    observer_->OnStarted(method_);
  }
  ~ObservingInterceptor() override {
    observer_->OnHandled(method_, code_, clock_.Now().mono - start_);
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS)) {
      code_ = FromGrpc(batch->GetSendStatus()).code();
    }
    batch->Proceed();
  }

 private:
  const SystemClock clock_;
  CallObserver* const observer_;
  const std::string method_;
  const MonoTime start_;
  // Until a status is sent: the client went away before that.
  StatusCode code_ = StatusCode::kCancelled;
};

class Factory final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(CallObserver* observer) : observer_(observer) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new ObservingInterceptor(observer_, info->method());
  }

 private:
  CallObserver* const observer_;
};

}  // namespace

CallCheck::CallCheck(AuthorisationTable table, std::string cluster,
                     CallObserver* observer)
    : table_(std::move(table)),
      cluster_(std::move(cluster)),
      observer_(observer) {}

Status CallCheck::Check(const InputMetadata& metadata,
                        const grpc::AuthContext& context,
                        std::string_view method) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const Identity caller, IdentityOf(context));
  LOCKSTEP_RETURN_IF_ERROR(table_.Authorise(caller, cluster_, method));
  // Without a deadline a call whose answer is lost waits for ever.
  if (table_.Find(method)->unary &&
      metadata.find("grpc-timeout") == metadata.end()) {
    return InvalidArgument("{} needs a deadline: set one on the call", method);
  }
  return OkStatus();
}

grpc::Status CallCheck::Process(const InputMetadata& metadata,
                                grpc::AuthContext* context,
                                OutputMetadata* /*consumed_metadata*/,
                                OutputMetadata* /*response_metadata*/) {
  const auto path = metadata.find(":path");
  const std::string_view method =
      path == metadata.end() ? std::string_view() : View(path->second);
  const Status status = Check(metadata, *context, method);
  if (status.ok()) return grpc::Status::OK;
  LOG_WARN("refused a call: {}", Message(status));
  if (observer_ != nullptr) {
    const std::string_view label =
        table_.Find(method) == nullptr ? "unknown" : method;
    observer_->OnStarted(label);
    observer_->OnHandled(label, status.code(), Duration::zero());
  }
  return ToGrpc(status);
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeObservingInterceptors(CallObserver* observer) {
  return std::make_unique<Factory>(observer);
}

}  // namespace lockstep
