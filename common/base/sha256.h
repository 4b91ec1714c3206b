// SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104). Users link
// OpenSSL::Crypto.
#ifndef LOCKSTEP_COMMON_BASE_SHA256_H_
#define LOCKSTEP_COMMON_BASE_SHA256_H_

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

// 32 bytes.
inline std::string Sha256(std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

// The same for bytes that arrive in pieces. Not synchronised.
class Sha256Stream {
 public:
  Sha256Stream() : context_(EVP_MD_CTX_new()) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  void Add(std::string_view bytes) {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
  }
  // Returns the 32-byte digest of everything added so far. More may be added
  // after it.
  std::string Digest() const {
    const std::unique_ptr<EVP_MD_CTX, Free> copy(EVP_MD_CTX_new());
    EVP_MD_CTX_copy_ex(copy.get(), context_.get());
    std::string digest(SHA256_DIGEST_LENGTH, '\0');
    EVP_DigestFinal_ex(
        copy.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr);
    return digest;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

using Sha256Mac = std::array<uint8_t, SHA256_DIGEST_LENGTH>;

inline Sha256Mac HmacSha256(std::string_view key, std::string_view bytes) {
  Sha256Mac mac{};
  unsigned int size = SHA256_DIGEST_LENGTH;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
       mac.data(), &size);
  return mac;
}

// Compares in constant time.
inline bool EqualMacs(const Sha256Mac& a, const Sha256Mac& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_SHA256_H_
