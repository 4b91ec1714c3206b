#include "common/base/crc32c.h"

#include <isa-l/crc.h>

namespace lockstep {

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size) {
  // isa-l takes an int length and const-less bytes; it does not write.
  auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
  uint32_t state = ~crc;
  while (size > 0) {
    const int part =
        size > (1u << 30) ? static_cast<int>(1u << 30) : static_cast<int>(size);
    state = crc32_iscsi(bytes, part, state);
    bytes += part;
    size -= static_cast<size_t>(part);
  }
  return ~state;
}

}  // namespace lockstep
