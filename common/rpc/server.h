// A gRPC server as every daemon of lockstep runs it: mutual TLS, one check for
// every call, keepalive, limits, health and reflection.
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
  // Required unless insecure_loopback. Callers must have a certificate of the
  // same CA and cluster.
  std::optional<Credentials> credentials;
  // No TLS, everybody may do everything; only where `address` is loopback.
  bool insecure_loopback = false;
  // Of gRPC's synchronous handlers, which hold one while their call lives. Ours
  // are not: this is for its reflection, whose streams may be kept open.
  int max_threads = 64;
  // Where handlers of the callback API run; may be null: on gRPC's own few
  // threads, which they must not block. Outlives the server.
  CallPools* pools = nullptr;
  // What one caller may ask for; more is ResourceExhausted.
  CallerLimits limits;
  // A connection whose TLS handshake takes longer is closed.
  Duration handshake_timeout = std::chrono::seconds(5);
  // May be null; outlives the server.
  CallObserver* observer = nullptr;
  // May be null: audit records go to the daemon's log. Outlives the server.
  AuditLog* audit = nullptr;
  // Whether there is space for lines of calls that were declined; empty: there
  // is. From any thread.
  std::function<Status()> audit_space;
};

class RpcServer {
 public:
  // Listens and serves `services`, which outlive the server. Errors:
  //   InvalidArgument     the address is malformed; or plain text was asked
  //                       for on an address that others can reach
  //   FailedPrecondition  no credentials; a method says not who may call it
  //   Unavailable         cannot listen there: names the address
  static StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options,
      const std::vector<grpc::Service*>& services);

  // Shutdown with no patience.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // With the port that was bound. Where the address is not of one interface
  // (0.0.0.0), others cannot connect to it as it stands.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  // What grpc.health.v1.Health answers, for all services; at first true. Has
  // no effect after Shutdown.
  void SetServing(bool serving);

  // Writes the audit lines that stand for several calls. Call it every second
  // or so.
  void FlushAudit();

  // Refuses new calls at once, cancels those that are left after `patience`,
  // and returns when no handler runs any more. A handler must end when its
  // call is cancelled. Safe from any thread, and more than once.
  void Shutdown(Duration patience = std::chrono::seconds(2));

  // For tests that need no port: see grpc::Server::InProcessChannel. No check
  // is made on such a channel.
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
