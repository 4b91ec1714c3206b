#include "client/cli/terminal_text.h"

#include <fmt/format.h>

#include <cstddef>

namespace lockstep::cli {
namespace {

constexpr char kPlain[] = "\x1b[0m";

// Returns the length of a colour sequence at the start of `text`, or 0.
size_t ColorSize(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const size_t end = text.find_first_not_of("0123456789;:", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

// Returns the character at the start of `text` if it has two or three bytes of
// UTF-8, otherwise 0.
char32_t ShortCharacter(std::string_view text, size_t* size) {
  const auto at = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto follows = [&](size_t i) { return (at(i) & 0xc0) == 0x80; };
  if ((at(0) & 0xe0) == 0xc0 && follows(1)) {
    *size = 2;
    return (at(0) & 0x1f) << 6 | (at(1) & 0x3f);
  }
  if ((at(0) & 0xf0) == 0xe0 && follows(1) && follows(2)) {
    *size = 3;
    return (at(0) & 0x0f) << 12 | (at(1) & 0x3f) << 6 | (at(2) & 0x3f);
  }
  return 0;
}

// The explicit direction marks and embeddings of
// https://unicode.org/reports/tr9.
bool IsHidden(char32_t c) {
  return (c >= 0x80 && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
         (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) ||
         c == 0x2028 || c == 0x2029;
}

}  // namespace

std::string TerminalText(std::string_view text, bool colors) {
  std::string out;
  bool colored = false;
  while (!text.empty()) {
    if (const size_t size = colors ? ColorSize(text) : 0; size > 0) {
      const std::string_view color = text.substr(0, size);
      out += color;
      text.remove_prefix(size);
      colored = color != kPlain && color != "\x1b[m";
      continue;
    }
    const auto c = static_cast<unsigned char>(text[0]);
    size_t size = 1;
    if (const char32_t wide = ShortCharacter(text, &size); IsHidden(wide)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(wide));
    } else if (c == '\r' && (text.size() == 1 || text[1] == '\n')) {
      // Some programs end lines with it.
    } else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  if (!colored) return out;
  const bool line = out.ends_with('\n');
  if (line) out.pop_back();
  out += kPlain;
  if (line) out += '\n';
  return out;
}

}  // namespace lockstep::cli
