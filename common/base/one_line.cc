#include "common/base/one_line.h"

#include <fmt/format.h>

#include <cstddef>

namespace lockstep {
namespace {

// How many bytes the character takes with which `text` begins; 0: it is no
// UTF-8 (RFC 3629, section 4).
size_t CharacterLength(std::string_view text) {
  const auto at = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const auto continues = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      if ((at(i) & 0xc0) != 0x80) return false;
    }
    return true;
  };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1, 2) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    // No longer than it must be, and no half of a pair.
    const bool plain =
        (first != 0xe0 || at(1) >= 0xa0) && (first != 0xed || at(1) < 0xa0);
    return plain && continues(1, 3) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool plain =
        (first != 0xf0 || at(1) >= 0x90) && (first != 0xf4 || at(1) < 0x90);
    return plain && continues(1, 4) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string OneLine(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const size_t length = CharacterLength(text);
    if (c == '\t') {
      line += ' ';
    } else if (c == '\n') {
      line += "\\n";
    } else if (c < 0x20 || c == 0x7f || length == 0) {
      line += fmt::format("\\x{:02x}", c);
    } else if (c == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0) {
      // U+0080 to U+009F: control characters, too.
      line += fmt::format("\\u00{:02x}", static_cast<unsigned char>(text[1]));
    } else {
      line += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return line;
}

}  // namespace lockstep
