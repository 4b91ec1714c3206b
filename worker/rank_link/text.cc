#include "worker/rank_link/text.h"

#include <cstdint>

namespace lockstep {
namespace {

// The length of the well-formed character at the front of `text` (Unicode
// 15.0, table 3-7), or 0.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const auto is_tail = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t first = byte(0);
  const uint8_t second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  if (!is_tail(1)) return 0;
  if (first < 0xe0) return 2;
  if (!is_tail(2)) return 0;
  if (first < 0xf0) {
    // No overlong forms, no surrogates.
    const bool bad =
        (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f);
    return bad ? 0 : 3;
  }
  const bool bad = !is_tail(3) || (first == 0xf0 && second < 0x90) ||
                   (first == 0xf4 && second > 0x8f);
  return bad ? 0 : 4;
}

}  // namespace

std::string CleanText(std::string_view text, size_t limit) {
  std::string clean;
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const size_t taken = length == 0 ? 1 : length;
    if (clean.size() + taken > limit) break;
    if (length == 0) {
      clean += '?';
    } else {
      clean.append(text.substr(0, length));
    }
    text.remove_prefix(taken);
  }
  return clean;
}

}  // namespace lockstep
