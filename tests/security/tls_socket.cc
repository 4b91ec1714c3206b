#include "tests/security/tls_socket.h"

#include "common/pki/x509.h"

namespace lockstep {

SslContext ContextOf(const pki::Credentials& credentials) {
  SslContext context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  const auto key = pki::x509::ReadKey(credentials.key);
  const auto certs = pki::x509::ReadCertificates(credentials.certificate);
  constexpr unsigned char kH2[] = {2, 'h', '2'};
  if (!key.ok() || !certs.ok() ||
      SSL_CTX_use_certificate(context.get(), certs->front().get()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key->get()) != 1 ||
      SSL_CTX_set_alpn_protos(context.get(), kH2, sizeof(kH2)) != 0) {
    context.reset();
  }
  return context;
}

}  // namespace lockstep
