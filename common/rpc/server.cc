#include "common/rpc/server.h"

#include <google/protobuf/descriptor.h>
#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <utility>

#include "common/base/host_port.h"
#include "common/rpc/call_check.h"
#include "common/rpc/limits.h"

namespace lockstep {
namespace {

// Further calls, unary ones too, wait in the client. This exceeds the idle
// streams of one program.
constexpr int kMaxStreamsPerConnection = 1024;
constexpr size_t kMaxBufferedBytes = size_t{512} << 20;

std::shared_ptr<grpc::ServerCredentials> ServerTls(
    const pki::Credentials& credentials) {
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          credentials.ca, std::vector<grpc::experimental::IdentityKeyCertPair>{
                              {credentials.key, credentials.certificate}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  // Names are checked per call, so that a rejection has a reason. Without its
  // own verifier gRPC would compare host names.
  options.set_certificate_verifier(
      std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsServerCredentials(options);
}

StatusOr<std::shared_ptr<grpc::ServerCredentials>> CredentialsFor(
    const RpcServerOptions& options, const HostPort& address) {
  if (options.insecure_loopback) {
    if (!IsLoopback(address.host)) {
      return InvalidArgument(
          "--insecure-loopback is not allowed with the address {}, which other "
          "machines can reach: listen on 127.0.0.1, or give a certificate",
          options.address);
    }
    // Plain text for clients on this machine. gRPC also checks the addresses of
    // each connection.
    return grpc::experimental::LocalServerCredentials(LOCAL_TCP);
  }
  if (!options.credentials.has_value()) {
    return FailedPrecondition(
        "listening on {} requires a certificate: `lockstep cert issue` makes "
        "one",
        options.address);
  }
  return ServerTls(*options.credentials);
}

void SetLimits(const RpcServerOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  const auto set = [&](const char* name, int value) {
    builder->AddChannelArgument(name, value);
  };
  set(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      kMinPingIntervalMs);
  set(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  set(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  // An idle stream costs mostly gRPC's state. Unused filters are left out: no
  // message is compressed.
  set(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  set(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // Closes connections of unknown clients that send nothing.
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
      static_cast<int>(options.handshake_timeout /
                       std::chrono::milliseconds(1)));
  // Otherwise a second daemon on the same port would get half of the
  // connections instead of an error.
  set(GRPC_ARG_ALLOW_REUSEPORT, 0);
  grpc::ResourceQuota quota("lockstep");
  quota.Resize(kMaxBufferedBytes);
  quota.SetMaxThreads(options.max_threads);
  builder->SetResourceQuota(quota);
}

}  // namespace

StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options,
    const std::vector<grpc::Service*>& services) {
  LOCKSTEP_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(options.address));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::shared_ptr<grpc::ServerCredentials> credentials,
      CredentialsFor(options, address));
  LOCKSTEP_ASSIGN_OR_RETURN(pki::AuthorisationTable table,
                            pki::AuthorisationTable::Create());
  // By new, because it holds a mutex and cannot be copied.
  const std::shared_ptr<CallPolicy> policy(new CallPolicy{
      std::move(table),
      options.credentials ? options.credentials->identity.cluster : "",
      CallerQuota(options.limits), options.observer,
      AuditRecorder({options.audit, options.audit_space}), options.pools});
  credentials->SetAuthMetadataProcessor(std::make_shared<CallCheck>(policy));

  // Both are settings of the whole process, not of one server.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetLimits(options, &builder);
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  interceptors.push_back(MakeCallInterceptors(policy));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  int port = 0;
  builder.AddListeningPort(options.address, credentials, &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return Unavailable(
        "cannot listen on {}: is the address of this machine, and the port "
        "free?",
        options.address);
  }
  address.port = static_cast<uint16_t>(port);
  std::unique_ptr<RpcServer> result(
      new RpcServer(policy, std::move(server), FormatHostPort(address), port));
  result->SetServing(true);
  return result;
}

RpcServer::RpcServer(std::shared_ptr<CallPolicy> policy,
                     std::unique_ptr<grpc::Server> server, std::string address,
                     int port)
    : policy_(std::move(policy)),
      server_(std::move(server)),
      address_(std::move(address)),
      port_(port) {}

RpcServer::~RpcServer() { Shutdown(Duration::zero()); }

void RpcServer::FlushAudit() { policy_->audit.Flush(SystemClock().Now()); }

void RpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health =
      server_->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus(serving);
  for (const auto* service : pki::LockstepServices()) {
    health->SetServingStatus(service->full_name(), serving);
  }
}

void RpcServer::Shutdown(Duration patience) {
  server_->Shutdown(std::chrono::system_clock::now() + patience);
  server_->Wait();
  policy_->audit.Flush(SystemClock().Now(), /*all=*/true);
}

}  // namespace lockstep
