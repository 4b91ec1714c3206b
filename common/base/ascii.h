// Text of which only the ASCII characters matter. No locale changes it.
#ifndef LOCKSTEP_COMMON_BASE_ASCII_H_
#define LOCKSTEP_COMMON_BASE_ASCII_H_

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline char AsciiLower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
inline char AsciiUpper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}
inline std::string AsciiLower(std::string text) {
  for (char& c : text) c = AsciiLower(c);
  return text;
}
inline std::string AsciiUpper(std::string text) {
  for (char& c : text) c = AsciiUpper(c);
  return text;
}

// The parts of `text` between the separators, empty ones included. They point
// into `text`.
inline std::vector<std::string_view> SplitText(std::string_view text,
                                               char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_ASCII_H_
