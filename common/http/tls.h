// The server's side of TLS, set up by a web configuration.
#ifndef LOCKSTEP_COMMON_HTTP_TLS_H_
#define LOCKSTEP_COMMON_HTTP_TLS_H_

#include <openssl/ssl.h>

#include <memory>

#include "common/base/status.h"
#include "common/http/web_config.h"

namespace lockstep::http {

struct SslContextDeleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslContext = std::unique_ptr<SSL_CTX, SslContextDeleter>;

// True if the client showed a certificate of the client CA. Always false if the
// configuration does not verify clients.
bool HasVerifiedPeer(const SSL* connection);

// FailedPrecondition if certificate, key or client CA is unusable.
StatusOr<SslContext> MakeSslContext(const WebTls& tls);

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_TLS_H_
