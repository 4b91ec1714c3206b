// The server's side of TLS, as a web configuration describes it.
#ifndef LOCKSTEP_COMMON_HTTP_TLS_H_
#define LOCKSTEP_COMMON_HTTP_TLS_H_

#include <openssl/ssl.h>

#include <memory>

#include "common/base/status.h"
#include "common/http/web_config.h"

namespace lockstep {

struct SslContextDeleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslContext = std::unique_ptr<SSL_CTX, SslContextDeleter>;

// Whether the client has shown a certificate of the client CA. Where the
// configuration does not verify, nobody has.
bool HasVerifiedPeer(const SSL* connection);

// FailedPrecondition: certificate, key or client CA cannot be used.
StatusOr<SslContext> MakeSslContext(const WebTls& tls);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_TLS_H_
