// The check that every call passes before its handler runs. Only server.cc uses
// it.
//
// It is an AuthMetadataProcessor, the only place in gRPC 1.51 that can reject a
// call before any handler, for synchronous, callback and asynchronous services.
// A server interceptor can change the answer but cannot prevent the handler
// from running. The check sees the connection's certificate and the headers,
// among them ":path" and "grpc-timeout".
#ifndef LOCKSTEP_COMMON_RPC_CALL_CHECK_H_
#define LOCKSTEP_COMMON_RPC_CALL_CHECK_H_

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/pki/authorisation.h"
#include "common/rpc/audit_recorder.h"
#include "common/rpc/call_observer.h"
#include "common/rpc/call_pools.h"
#include "common/rpc/caller_quota.h"

namespace lockstep {

// The state that the check before a call and its interceptors share.
struct CallPolicy {
  pki::AuthorisationTable table;
  // Callers must belong to it.
  std::string cluster;
  CallerQuota quota;
  // May be null; outlives the server.
  CallObserver* observer;
  AuditRecorder audit;
  // Null if handlers run on gRPC's own threads. Outlives the server.
  CallPools* pools;
};

class CallCheck final : public grpc::AuthMetadataProcessor {
 public:
  explicit CallCheck(std::shared_ptr<CallPolicy> policy)
      : policy_(std::move(policy)) {}

  // The check is a few map look-ups, so it needs no own thread.
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* context,
                       OutputMetadata* consumed_metadata,
                       OutputMetadata* response_metadata) override;

 private:
  // `*should_log`: the log should have a line about a rejection.
  Status Check(const InputMetadata& metadata,
               const StatusOr<pki::Identity>& caller, std::string_view method,
               bool* should_log) const;

  const std::shared_ptr<CallPolicy> policy_;
};

// For calls that CallCheck admitted: counts the open ones, reports them to the
// observer, writes audit lines, and starts handlers of the callback API on a
// thread of the caller's pool.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeCallInterceptors(std::shared_ptr<CallPolicy> policy);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CALL_CHECK_H_
