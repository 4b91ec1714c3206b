// The gRPC server of every lockstep daemon: mutual TLS, one check for every
// call, keepalive, limits, health and reflection.
#ifndef LOCKSTEP_COMMON_RPC_SERVER_H_
#define LOCKSTEP_COMMON_RPC_SERVER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/pki/credentials.h"
#include "common/rpc/call_observer.h"
#include "common/rpc/limits.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace lockstep {

class AuditLog;
class CallPools;
struct CallPolicy;

struct RpcServerOptions {
  // HOST:PORT to listen on; port 0 takes a free one.
  std::string address;
  // Required unless insecure_loopback. Callers need a certificate of the same
  // CA and cluster.
  std::optional<pki::Credentials> credentials;
  // No TLS and no authorisation. Allowed only if `address` is loopback.
  bool insecure_loopback = false;
  // Threads of gRPC's synchronous handlers, each held for the duration of a
  // call. Only its reflection service has such handlers, and clients may keep
  // its streams open.
  int max_threads = 64;
  // Runs handlers of the callback API. Null for gRPC's own few threads, which
  // they must not block. Outlives the server.
  CallPools* pools = nullptr;
  // Limits of one caller. A call beyond them gets ResourceExhausted.
  CallerLimits limits;
  // The connection is closed if its TLS handshake takes longer.
  Duration handshake_timeout = std::chrono::seconds(5);
  // May be null; outlives the server.
  CallObserver* observer = nullptr;
  // May be null: audit records go to the daemon's log. Outlives the server.
  AuditLog* audit = nullptr;
  // Checks that there is space for lines of rejected calls. Empty if there
  // always is. Called from any thread.
  std::function<Status()> audit_space;
};

class RpcServer {
 public:
  // Listens and serves `services`, which outlive the server. Errors:
  //   InvalidArgument     the address is malformed, or is not loopback although
  //                       plain text was asked for
  //   FailedPrecondition  no credentials, or a method without a role
  //   Unavailable         cannot listen; names the address
  static StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options,
      const std::vector<grpc::Service*>& services);

  // Shutdown without patience.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // The address with the bound port. A wildcard such as 0.0.0.0 stays, so
  // others cannot connect to it.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  // Sets the answer of grpc.health.v1.Health for all services; true at first.
  // No effect after Shutdown.
  void SetServing(bool serving);

  // Writes the audit lines that stand for several calls. Call it about once per
  // second.
  void FlushAudit();

  // Rejects new calls at once, cancels the remaining ones after `patience`, and
  // returns when no handler runs. A handler must end when its call is
  // cancelled. Safe from any thread, and more than once.
  void Shutdown(Duration patience = std::chrono::seconds(2));

  // For tests without a port: see grpc::Server::InProcessChannel. Calls on such
  // a channel are not checked.
  grpc::Server* grpc_server() { return server_.get(); }

 private:
  RpcServer(std::shared_ptr<CallPolicy> policy,
            std::unique_ptr<grpc::Server> server, std::string address,
            int port);

  const std::shared_ptr<CallPolicy> policy_;
  const std::unique_ptr<grpc::Server> server_;
  const std::string address_;
  const int port_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_SERVER_H_
