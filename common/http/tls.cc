#include "common/http/tls.h"

#include <openssl/err.h>

namespace lockstep::http {
namespace {

int VerifyMode(ClientAuth auth) {
  switch (auth) {
    case ClientAuth::kNone:
      return SSL_VERIFY_NONE;
    case ClientAuth::kRequest:
    case ClientAuth::kVerifyIfGiven:
      return SSL_VERIFY_PEER;
    case ClientAuth::kRequireAny:
    case ClientAuth::kRequireAndVerify:
      return SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  }
  return SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
}

}  // namespace

bool HasVerifiedPeer(const SSL* connection) {
  return SSL_get0_peer_certificate(connection) != nullptr &&
         SSL_get_verify_result(connection) == X509_V_OK;
}

StatusOr<SslContext> MakeSslContext(const WebTls& tls) {
  SslContext context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return Internal("no TLS context");
  SSL_CTX_set_min_proto_version(
      context.get(), tls.only_tls13 ? TLS1_3_VERSION : TLS1_2_VERSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  // Clients keep their connections, so sessions are rarely resumed.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  const bool usable =
      SSL_CTX_use_certificate_chain_file(context.get(),
                                         tls.certificate.c_str()) == 1 &&
      SSL_CTX_use_PrivateKey_file(context.get(), tls.key.c_str(),
                                  SSL_FILETYPE_PEM) == 1 &&
      SSL_CTX_check_private_key(context.get()) == 1;
  ERR_clear_error();
  if (!usable) {
    return FailedPrecondition(
        "the certificate {} and key {} are unusable: are both readable PEM, "
        "and do they belong together?",
        tls.certificate, tls.key);
  }
  const bool verifies = Verifies(tls.client_auth);
  SSL_verify_cb any = [](int, X509_STORE_CTX*) { return 1; };
  SSL_CTX_set_verify(context.get(), VerifyMode(tls.client_auth),
                     verifies ? nullptr : any);
  if (verifies) {
    STACK_OF(X509_NAME)* const names =
        SSL_load_client_CA_file(tls.client_ca.c_str());
    const bool loaded =
        names != nullptr &&
        SSL_CTX_load_verify_file(context.get(), tls.client_ca.c_str()) == 1;
    SSL_CTX_set_client_CA_list(context.get(), names);
    ERR_clear_error();
    if (!loaded) {
      return FailedPrecondition(
          "the client CA {} is unusable: is it readable PEM?", tls.client_ca);
    }
  }
  return context;
}

}  // namespace lockstep::http
