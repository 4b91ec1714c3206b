// The one check that every call passes before its handler runs. Used by
// server.cc only.
//
// It is an AuthMetadataProcessor because that is the one place in gRPC 1.51
// that refuses a call before any handler, for synchronous, callback and
// asynchronous services alike: a server interceptor can change the answer but
// cannot keep the handler from running. It sees the connection's certificate
// and the headers, among them ":path" and "grpc-timeout".
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

// What the check before a call and the interceptors around it share.
struct CallPolicy {
  AuthorisationTable table;
  // Callers must be of it.
  std::string cluster;
  CallerQuota quota;
  // May be null; outlives the server.
  CallObserver* observer;
  AuditRecorder audit;
  // May be null: handlers run on gRPC's own threads; outlives the server.
  CallPools* pools;
};

class CallCheck final : public grpc::AuthMetadataProcessor {
 public:
  explicit CallCheck(std::shared_ptr<CallPolicy> policy)
      : policy_(std::move(policy)) {}

  // Takes map look-ups: no thread of its own is worth it.
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* context,
                       OutputMetadata* consumed_metadata,
                       OutputMetadata* response_metadata) override;

 private:
  // `*say`: whether a refusal is worth a line of the log.
  Status Check(const InputMetadata& metadata, const StatusOr<Identity>& caller,
               std::string_view method, bool* say) const;

  const std::shared_ptr<CallPolicy> policy_;
};

// For the calls that CallCheck admitted: counts those that are open, reports
// them to the observer, writes the audit lines, and has the handlers of the
// callback API begin on a thread of their caller's pool.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeCallInterceptors(std::shared_ptr<CallPolicy> policy);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CALL_CHECK_H_
