#include "server/store/row_digest.h"

#include "common/base/sha256.h"

namespace lockstep::server {

uint64_t RowDigest(std::string_view key, std::string_view record) {
  Sha256Stream sha;
  sha.Add(std::to_string(key.size()) + ":");
  sha.Add(key);
  sha.Add(record);
  const std::string digest = sha.Digest();
  uint64_t first = 0;
  for (int i = 0; i < 8; ++i) {
    first |= uint64_t{static_cast<unsigned char>(digest[i])} << (8 * i);
  }
  return first;
}

std::string RowKey(std::string_view first, std::string_view second) {
  std::string key(first);
  key += '\0';
  key += second;
  return key;
}

}  // namespace lockstep::server
