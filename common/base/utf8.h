// UTF-8 (RFC 3629, section 4). PURE.
#ifndef LOCKSTEP_COMMON_BASE_UTF8_H_
#define LOCKSTEP_COMMON_BASE_UTF8_H_

#include <cstddef>
#include <string_view>

namespace lockstep {

// Returns how many bytes the character takes with which `text` begins. Returns
// 0 if that is not UTF-8: a stray or missing byte, a longer form than needed, a
// half of a surrogate pair, or a code above U+10FFFF. REQUIRES: !text.empty().
size_t Utf8Length(std::string_view text);

// Whether the whole of `text` is UTF-8. The empty text is.
bool IsUtf8(std::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_UTF8_H_
