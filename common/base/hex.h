// Bytes as text.
#ifndef LOCKSTEP_COMMON_BASE_HEX_H_
#define LOCKSTEP_COMMON_BASE_HEX_H_

#include <string>
#include <string_view>

namespace lockstep {

// Two lower-case hexadecimal digits for each byte.
std::string ToHex(std::string_view bytes);
// Whether `text` is `digits` such digits.
bool IsHex(std::string_view text, size_t digits);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_HEX_H_
