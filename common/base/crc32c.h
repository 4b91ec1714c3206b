// CRC32C (Castagnoli, RFC 3720 appendix B.4) and the masked form that
// TFRecord files store.
#ifndef LOCKSTEP_COMMON_BASE_CRC32C_H_
#define LOCKSTEP_COMMON_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

// The CRC of `data` appended to bytes whose CRC is `crc` (0 for none).
uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size);

inline uint32_t Crc32c(std::string_view data) {
  return ExtendCrc32c(0, data.data(), data.size());
}

// As TensorFlow's lib/hash/crc32c.h: a CRC stored beside its data is masked,
// because a CRC over bytes that hold their own CRC is weak.
inline uint32_t MaskCrc32c(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_CRC32C_H_
