#include "common/rpc/call_check.h"

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>

#include <optional>

#include "common/rpc/audit.h"
#include "common/rpc/caller.h"
#include "common/rpc/status_conversion.h"

namespace lockstep {
namespace {

using pki::Identity;
using pki::MethodRule;
using pki::UserRole;

std::string_view View(const grpc::string_ref& text) {
  return {text.data(), text.size()};
}

bool Changes(const MethodRule& rule) {
  return rule.admits == MethodRule::Admits::kUsers &&
         rule.role != UserRole::kViewer;
}

CallKind KindOf(const MethodRule* rule) {
  return rule == nullptr || rule->unary ? CallKind::kUnary : CallKind::kStream;
}

// Lives for one call.
class CallInterceptor final : public grpc::experimental::Interceptor {
 public:
  CallInterceptor(std::shared_ptr<CallPolicy> policy,
                  grpc::experimental::ServerRpcInfo* info)
      : policy_(std::move(policy)),
        context_(info->server_context()),
        method_(info->method()),
        rule_(policy_->table.Find(method_)),
        start_(clock_.Now().mono) {
    if (policy_->observer != nullptr) policy_->observer->OnStarted(method_);
  }
  ~CallInterceptor() override {
    const Status answer = answer_.value_or(Cancelled("the client went away"));
    if (policy_->observer != nullptr) {
      policy_->observer->OnHandled(method_, answer.code(),
                                   clock_.Now().mono - start_);
    }
    if (!caller_) return;
    policy_->quota.End(*caller_, KindOf(rule_));
    if (rule_ != nullptr && (Changes(*rule_) || IsRefusal(answer))) {
      policy_->audit.Record(
          {Describe(*caller_), from_, method_, target_, answer}, clock_.Now());
    }
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    // The context does not know the call before its first batch.
    const bool begins = !caller_;
    if (begins) {
      caller_ = CallerOf(*context_);
      from_ = context_->peer();
      policy_->quota.Begin(*caller_, KindOf(rule_));
    }
    // Of a stream only the first message names its target.
    if (rule_ != nullptr && Changes(*rule_) && !has_target_ &&
        batch->QueryInterceptionHookPoint(Point::POST_RECV_MESSAGE)) {
      has_target_ = true;
      // All requests are generated messages.
      if (const void* message = batch->GetRecvMessage(); message != nullptr) {
        target_ = AuditTarget(
            *static_cast<const google::protobuf::Message*>(message));
      }
    }
    if (batch->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS)) {
      answer_ = FromGrpc(batch->GetSendStatus());
    }
    if (begins && policy_->pools != nullptr && IsCallback()) {
      // The handler runs on the thread that calls Proceed.
      Pool()->Post(FormatIdentity(*caller_), [batch] { batch->Proceed(); });
    } else {
      batch->Proceed();
    }
  }

 private:
  // A synchronous handler must run on its own thread.
  bool IsCallback() const {
    return dynamic_cast<const grpc::CallbackServerContext*>(context_) !=
           nullptr;
  }
  WorkPool* Pool() const {
    const CallRole role = CallRoleOf(*caller_);
    return KindOf(rule_) == CallKind::kUnary ? policy_->pools->unary(role)
                                             : policy_->pools->streams(role);
  }

  const SystemClock clock_;
  const std::shared_ptr<CallPolicy> policy_;
  // Outlives this object.
  const grpc::ServerContextBase* const context_;
  const std::string method_;
  const MethodRule* const rule_;
  const MonoTime start_;
  std::optional<Identity> caller_;
  std::string from_;
  std::string target_;
  bool has_target_ = false;
  // Empty until an answer is sent. Stays empty if the client left first.
  std::optional<Status> answer_;
};

class Factory final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(std::shared_ptr<CallPolicy> policy)
      : policy_(std::move(policy)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new CallInterceptor(policy_, info);
  }

 private:
  const std::shared_ptr<CallPolicy> policy_;
};

}  // namespace

Status CallCheck::Check(const InputMetadata& metadata,
                        const StatusOr<Identity>& caller,
                        std::string_view method, bool* should_log) const {
  if (!caller.ok()) return caller.status();
  const MethodRule* const rule = policy_->table.Find(method);
  LOCKSTEP_RETURN_IF_ERROR(
      policy_->quota.Admit(*caller, KindOf(rule), MonotonicNow(), should_log));
  *should_log = true;
  LOCKSTEP_RETURN_IF_ERROR(
      policy_->table.Authorise(*caller, policy_->cluster, method));
  // Without a deadline a call whose answer is lost would wait for ever.
  if (rule->unary && metadata.find("grpc-timeout") == metadata.end()) {
    return InvalidArgument("{} needs a deadline: set one on the call", method);
  }
  if (policy_->pools == nullptr || !rule->unary) return OkStatus();
  return policy_->pools->CheckRoom(*caller);
}

grpc::Status CallCheck::Process(const InputMetadata& metadata,
                                grpc::AuthContext* context,
                                OutputMetadata* /*consumed_metadata*/,
                                OutputMetadata* /*response_metadata*/) {
  const auto path = metadata.find(":path");
  const std::string_view method =
      path == metadata.end() ? std::string_view() : View(path->second);
  const StatusOr<Identity> caller = IdentityOf(*context);
  bool should_log = true;
  const Status status = Check(metadata, caller, method, &should_log);
  if (status.ok()) return grpc::Status::OK;
  if (should_log) {
    // A client may ask for any path.
    policy_->audit.Record(
        {caller.ok() ? Describe(*caller) : "", "", std::string(method), "",
         status},
        SystemClock().Now(),
        policy_->table.Find(method) == nullptr ? "unknown" : "");
  }
  CallObserver* const observer = policy_->observer;
  if (observer != nullptr) {
    const std::string_view label =
        policy_->table.Find(method) == nullptr ? "unknown" : method;
    observer->OnStarted(label);
    observer->OnHandled(label, status.code(), Duration::zero());
  }
  return ToGrpc(status);
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeCallInterceptors(std::shared_ptr<CallPolicy> policy) {
  return std::make_unique<Factory>(std::move(policy));
}

}  // namespace lockstep
