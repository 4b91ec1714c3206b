// UTF-8 (RFC 3629, section 4). PURE.
#ifndef LOCKSTEP_COMMON_BASE_UTF8_H_
#define LOCKSTEP_COMMON_BASE_UTF8_H_

#include <cstddef>
#include <string_view>

namespace lockstep {

// Returns the number of bytes of the first character of `text`, or 0 if it is
// not UTF-8: a stray or missing byte, an overlong form, half of a surrogate
// pair, or a code above U+10FFFF. REQUIRES: !text.empty().
size_t Utf8Length(std::string_view text);

// True if all of `text` is UTF-8. The empty text is.
bool IsUtf8(std::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_UTF8_H_
