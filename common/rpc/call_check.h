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

#include "common/pki/authorisation.h"
#include "common/rpc/call_observer.h"

namespace lockstep {

class CallCheck final : public grpc::AuthMetadataProcessor {
 public:
  // `cluster`: callers must be of it. `observer` may be null; it outlives the
  // server.
  CallCheck(AuthorisationTable table, std::string cluster,
            CallObserver* observer);

  // Takes a map look-up: no thread of its own is worth it.
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* context,
                       OutputMetadata* consumed_metadata,
                       OutputMetadata* response_metadata) override;

 private:
  Status Check(const InputMetadata& metadata, const grpc::AuthContext& context,
               std::string_view method) const;

  const AuthorisationTable table_;
  const std::string cluster_;
  CallObserver* const observer_;
};

// Reports the calls that CallCheck admitted.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeObservingInterceptors(CallObserver* observer);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CALL_CHECK_H_
