// SHA-256 (FIPS 180-4). Users link OpenSSL::Crypto.
#ifndef LOCKSTEP_COMMON_BASE_SHA256_H_
#define LOCKSTEP_COMMON_BASE_SHA256_H_

#include <openssl/sha.h>

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

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_SHA256_H_
