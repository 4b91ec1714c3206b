// OpenSSL wrappers that ca.cc and credentials.cc share. No other file includes
// this one or OpenSSL's headers.
#ifndef LOCKSTEP_COMMON_PKI_X509_H_
#define LOCKSTEP_COMMON_PKI_X509_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep::pki::x509 {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* p) const {
    Free(p);
  }
};
using BioPtr = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using CertPtr = std::unique_ptr<X509, Freer<X509_free>>;

// Clears this thread's OpenSSL error queue at the end of a scope, because a
// leftover error would fail a later TLS read of the thread.
class ErrorQueueGuard {
 public:
  ErrorQueueGuard() = default;
  ErrorQueueGuard(const ErrorQueueGuard&) = delete;
  ErrorQueueGuard& operator=(const ErrorQueueGuard&) = delete;
  ~ErrorQueueGuard();
};

// Returns Internal with OpenSSL's message and clears its error queue.
Status OpenSslError(std::string_view what);

// Returns every certificate of `pem`, in order. InvalidArgument if there is
// none or one is unreadable.
StatusOr<std::vector<CertPtr>> ReadCertificates(const std::string& pem);
// Accepts unencrypted PEM only, because a daemon cannot ask for a password.
StatusOr<KeyPtr> ReadKey(const std::string& pem);
StatusOr<std::string> WriteCertificate(X509* cert);
StatusOr<std::string> WriteKey(EVP_PKEY* key);

// Returns the URIs among the alternative names.
std::vector<std::string> UriNames(X509* cert);

// FailedPrecondition if `cert` has expired or is not valid yet. The error calls
// it `what`, and `renew` says how to replace it.
Status CheckDates(const X509* cert, std::string_view what,
                  std::string_view renew, WallTime now);

StatusOr<WallTime> NotBefore(const X509* cert);
StatusOr<WallTime> NotAfter(const X509* cert);

}  // namespace lockstep::pki::x509

#endif  // LOCKSTEP_COMMON_PKI_X509_H_
