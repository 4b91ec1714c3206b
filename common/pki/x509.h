// OpenSSL, wrapped: what ca.cc and credentials.cc share. Nothing else includes
// this file or OpenSSL's headers.
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

namespace lockstep::x509 {

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

// Empties this thread's OpenSSL error queue at the end of a scope: what is left
// in it would make a later TLS read of the same thread fail.
class ErrorQueueGuard {
 public:
  ErrorQueueGuard() = default;
  ErrorQueueGuard(const ErrorQueueGuard&) = delete;
  ErrorQueueGuard& operator=(const ErrorQueueGuard&) = delete;
  ~ErrorQueueGuard();
};

// Internal, with what OpenSSL says; empties its error queue.
Status OpenSslError(std::string_view what);

// Every certificate of `pem`, in order; InvalidArgument where there is none or
// one cannot be read.
StatusOr<std::vector<CertPtr>> ReadCertificates(const std::string& pem);
// Unencrypted PEM only: a daemon has nobody to ask for a password.
StatusOr<KeyPtr> ReadKey(const std::string& pem);
StatusOr<std::string> WriteCertificate(X509* cert);
StatusOr<std::string> WriteKey(EVP_PKEY* key);

// The URIs among the alternative names.
std::vector<std::string> UriNames(X509* cert);

// FailedPrecondition: `cert`, which the sentence calls `what`, has expired, and
// `renew` says how one gets another, or is not valid yet.
Status CheckDates(const X509* cert, std::string_view what,
                  std::string_view renew, WallTime now);

StatusOr<WallTime> NotBefore(const X509* cert);
StatusOr<WallTime> NotAfter(const X509* cert);

}  // namespace lockstep::x509

#endif  // LOCKSTEP_COMMON_PKI_X509_H_
