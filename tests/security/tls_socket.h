// A TLS connection of one's own, for bytes that no gRPC client sends.
#ifndef LOCKSTEP_TESTS_SECURITY_TLS_SOCKET_H_
#define LOCKSTEP_TESTS_SECURITY_TLS_SOCKET_H_

#include <openssl/ssl.h>

#include <memory>

#include "common/pki/credentials.h"

namespace lockstep {

using SslContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using SslPtr = std::unique_ptr<SSL, decltype(&SSL_free)>;

// What a gRPC client offers, without a look at the server's certificate. Null:
// OpenSSL takes no such credentials.
SslContext ContextOf(const pki::Credentials& credentials);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SECURITY_TLS_SOCKET_H_
