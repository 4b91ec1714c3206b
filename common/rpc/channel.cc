#include "common/rpc/channel.h"

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <functional>
#include <utility>

#include "common/base/host_port.h"
#include "common/pki/ca.h"
#include "common/rpc/limits.h"
#include "common/rpc/status_conversion.h"

namespace lockstep {
namespace {

constexpr int kFirstReconnectMs = 100;
constexpr int kSlowestReconnectMs = 2'000;
constexpr int kConnectTimeoutMs = 5'000;

// gRFC A6. gRPC varies each wait by 20 % either way. A service without a policy
// is not retried: a replayed Register would look like a second stream, and a
// replayed OpenSession would run its command twice.
constexpr char kServiceConfig[] = R"json({
  "methodConfig": [
    {
      "name": [
        {"service": "lockstep.v1.WorkerService"},
        {"service": "lockstep.v1.JobService", "method": "OpenSession"}
      ]
    },
    {
      "name": [{}],
      "retryPolicy": {
        "maxAttempts": 4,
        "initialBackoff": "0.2s",
        "maxBackoff": "2s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"]
      }
    }
  ]
})json";

class CoordinatorVerifier final
    : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit CoordinatorVerifier(std::string cluster)
      : cluster_(std::move(cluster)) {}
  ~CoordinatorVerifier() override = default;

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/,
              grpc::Status* sync_status) override {
    std::vector<std::string_view> uris;
    for (const grpc::string_ref& uri : request->uri_names()) {
      uris.emplace_back(uri.data(), uri.size());
    }
    *sync_status = ToGrpc(CheckServerNames(uris, cluster_));
    return true;  // The check is synchronous; there is nothing to cancel.
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {
  }

 private:
  const std::string cluster_;
};

std::shared_ptr<grpc::ChannelCredentials> ClientTls(
    const pki::Credentials& credentials) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          credentials.ca, std::vector<grpc::experimental::IdentityKeyCertPair>{
                              {credentials.key, credentials.certificate}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<
          CoordinatorVerifier>(credentials.identity.cluster));
  return grpc::experimental::TlsCredentials(options);
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kSlowestReconnectMs);
  // Despite its name, the time limit of one connection attempt.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  // Proxies from the environment are for web pages, not for the cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Saves a DNS query for a service config, which does not exist.
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetServiceConfigJSON(kServiceConfig);
  return arguments;
}

}  // namespace

Status CheckServerNames(const std::vector<std::string_view>& uris,
                        std::string_view cluster) {
  if (uris.size() != 1) {
    return Unauthenticated(
        "the server's certificate has {} URI names instead of exactly one "
        "identity",
        uris.size());
  }
  const StatusOr<pki::Identity> identity = pki::ParseIdentity(uris[0]);
  if (!identity.ok()) {
    return Unauthenticated("the server's certificate: {}",
                           Message(identity.status()));
  }
  if (identity->kind != pki::Identity::Kind::kCoordinator ||
      identity->cluster != cluster) {
    return Unauthenticated(
        "the server is {} of cluster {} and not the coordinator of {}",
        Describe(*identity), identity->cluster, cluster);
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const ChannelOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const HostPort target,
                            ParseHostPort(options.target));
  if (options.insecure_loopback) {
    if (!IsLoopback(target.host)) {
      return InvalidArgument(
          "plain text is for 127.0.0.1 only, {} is another machine: give a "
          "certificate",
          options.target);
    }
    return grpc::CreateCustomChannel(
        options.target, grpc::experimental::LocalCredentials(LOCAL_TCP),
        Arguments());
  }
  if (!options.credentials.has_value()) {
    return FailedPrecondition(
        "connecting to {} requires a certificate: `lockstep cert issue` makes "
        "one",
        options.target);
  }
  grpc::ChannelArguments arguments = Arguments();
  // The certificate has this name on every host. Otherwise gRPC would check the
  // host of `target` and log an error for each mismatch.
  arguments.SetSslTargetNameOverride(pki::kCoordinatorDnsName);
  return grpc::CreateCustomChannel(options.target,
                                   ClientTls(*options.credentials), arguments);
}

}  // namespace lockstep
