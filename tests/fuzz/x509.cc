// Certificates and keys: PEM as it is, and DER wrapped in it.
#include "common/pki/x509.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::pki {
namespace {

void Read(const std::string& pem) {
  const x509::ErrorQueueGuard guard;
  (void)x509::ReadKey(pem);
  const auto certs = x509::ReadCertificates(pem);
  if (!certs.ok()) return;
  for (const x509::CertPtr& cert : *certs) {
    (void)x509::UriNames(cert.get());
    (void)x509::NotBefore(cert.get());
    (void)x509::NotAfter(cert.get());
  }
}

std::string Wrap(std::string_view der) {
  std::string base64(4 * ((der.size() + 2) / 3) + 1, '\0');
  const int length =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(base64.data()),
                      reinterpret_cast<const unsigned char*>(der.data()),
                      static_cast<int>(der.size()));
  base64.resize(static_cast<size_t>(length));
  std::string pem = "-----BEGIN CERTIFICATE-----\n";
  for (size_t at = 0; at < base64.size(); at += 64) {
    pem += base64.substr(at, 64) + "\n";
  }
  return pem + "-----END CERTIFICATE-----\n";
}

}  // namespace
}  // namespace lockstep::pki

LOCKSTEP_FUZZ_TARGET(x509)(const uint8_t* data, size_t size) {
  const std::string_view bytes = lockstep::fuzz::View(data, size);
  lockstep::pki::Read(std::string(bytes));
  lockstep::pki::Read(lockstep::pki::Wrap(bytes));
  return 0;
}
