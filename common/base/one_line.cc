#include "common/base/one_line.h"

#include <fmt/format.h>

namespace lockstep {

std::string OneLine(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\t') {
      line += ' ';
    } else if (c == '\n') {
      line += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      line += fmt::format("\\x{:02x}", c);
    } else if (c == 0xc2 && i + 1 < text.size() &&
               static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
               static_cast<unsigned char>(text[i + 1]) < 0xa0) {
      // U+0080 to U+009F: control characters, too.
      line += fmt::format("\\u00{:02x}", static_cast<unsigned char>(text[++i]));
    } else {
      line += text[i];
    }
  }
  return line;
}

}  // namespace lockstep
