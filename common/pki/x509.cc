#include "common/pki/x509.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <ctime>

namespace lockstep::pki::x509 {
namespace {

BioPtr ReadOnlyBio(const std::string& data) {
  return BioPtr(BIO_new_mem_buf(data.data(), static_cast<int>(data.size())));
}

std::string Contents(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

StatusOr<WallTime> ToWallTime(const ASN1_TIME* time) {
  std::tm tm = {};
  if (ASN1_TIME_to_tm(time, &tm) != 1) {
    return OpenSslError("reading a certificate's dates");
  }
  // A date past the year 2262 does not fit into nanoseconds.
  constexpr int64_t kMaxSeconds = INT64_MAX / 1'000'000'000 - 1;
  const int64_t seconds = std::min<int64_t>(
      std::max<int64_t>(timegm(&tm), -kMaxSeconds), kMaxSeconds);
  return FromUnixNanos(seconds * 1'000'000'000);
}

// Without it OpenSSL would prompt on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

}  // namespace

ErrorQueueGuard::~ErrorQueueGuard() { ERR_clear_error(); }

Status OpenSslError(std::string_view what) {
  char text[256] = "unknown error";
  const unsigned long error = ERR_peek_last_error();
  if (error != 0) ERR_error_string_n(error, text, sizeof(text));
  ERR_clear_error();
  return Internal("{}: {}", what, text);
}

StatusOr<std::vector<CertPtr>> ReadCertificates(const std::string& pem) {
  const BioPtr bio = ReadOnlyBio(pem);
  std::vector<CertPtr> certs;
  while (X509* cert =
             PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)) {
    certs.emplace_back(cert);
  }
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  if (certs.empty()) return InvalidArgument("not a PEM certificate");
  if (ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    return InvalidArgument("certificate {} in it is damaged", certs.size() + 1);
  }
  return certs;
}

StatusOr<KeyPtr> ReadKey(const std::string& pem) {
  const BioPtr bio = ReadOnlyBio(pem);
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return InvalidArgument("not an unencrypted PEM private key");
  }
  return key;
}

StatusOr<std::string> WriteCertificate(X509* cert) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_X509(bio.get(), cert) != 1) {
    return OpenSslError("writing a certificate");
  }
  return Contents(bio.get());
}

StatusOr<std::string> WriteKey(EVP_PKEY* key) {
  // Secure memory is wiped when it is freed.
  const BioPtr bio(BIO_new(BIO_s_secmem()));
  if (bio == nullptr ||
      PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0,
                                    nullptr, nullptr) != 1) {
    return OpenSslError("writing a key");
  }
  return Contents(bio.get());
}

std::vector<std::string> UriNames(X509* cert) {
  std::vector<std::string> uris;
  const std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(cert, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get());
       ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return uris;
}

Status CheckDates(const X509* cert, std::string_view what,
                  std::string_view renew, WallTime now) {
  LOCKSTEP_ASSIGN_OR_RETURN(const WallTime begin, NotBefore(cert));
  LOCKSTEP_ASSIGN_OR_RETURN(const WallTime end, NotAfter(cert));
  if (now >= end) {
    return FailedPrecondition(
        "{} expired on {}, and this machine's clock says {}: {}, or set the "
        "clock if it is wrong",
        what, FormatWallTime(end), FormatWallTime(now), renew);
  }
  if (now < begin) {
    return FailedPrecondition(
        "{} is valid from {} on, and this machine's clock says {}: set the "
        "clock, or that of the issuing machine if that one is wrong",
        what, FormatWallTime(begin), FormatWallTime(now));
  }
  return OkStatus();
}

StatusOr<WallTime> NotBefore(const X509* cert) {
  return ToWallTime(X509_get0_notBefore(cert));
}

StatusOr<WallTime> NotAfter(const X509* cert) {
  return ToWallTime(X509_get0_notAfter(cert));
}

}  // namespace lockstep::pki::x509
