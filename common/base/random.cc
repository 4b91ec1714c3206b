#include "common/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "common/base/hex.h"

namespace lockstep {

std::string RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::getrandom(bytes.data() + done, size - done, 0);
    if (n < 0) {
      if (errno == EINTR) continue;
      std::abort();  // Every supported kernel has getrandom.
    }
    done += static_cast<size_t>(n);
  }
  return bytes;
}

uint64_t RandomUint64() {
  const std::string bytes = RandomBytes(sizeof(uint64_t));
  uint64_t value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

std::string RandomHex(size_t size) { return ToHex(RandomBytes(size)); }

std::string RandomUuid() {
  std::string hex = RandomHex(16);
  hex[12] = '4';
  hex[16] = "89ab"[RandomBytes(1)[0] & 3];
  return hex.substr(0, 8) + "-" + hex.substr(8, 4) + "-" + hex.substr(12, 4) +
         "-" + hex.substr(16, 4) + "-" + hex.substr(20);
}

}  // namespace lockstep
