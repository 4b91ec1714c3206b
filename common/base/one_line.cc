#include "common/base/one_line.h"

#include <fmt/format.h>

#include <cstddef>

#include "common/base/utf8.h"

namespace lockstep {

std::string OneLine(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const size_t length = Utf8Length(text);
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
