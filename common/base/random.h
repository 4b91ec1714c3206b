// Unpredictable bytes and ids, from the kernel.
#ifndef LOCKSTEP_COMMON_BASE_RANDOM_H_
#define LOCKSTEP_COMMON_BASE_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

// `size` bytes of getrandom(2): keys and nonces.
std::string RandomBytes(size_t size);
uint64_t RandomUint64();
// 2 * `size` lower-case hexadecimal digits.
std::string RandomHex(size_t size);
// Returns a version 4 UUID (RFC 9562), for request ids.
std::string RandomUuid();

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_RANDOM_H_
