#include "common/http/target.h"

#include <optional>
#include <utility>

namespace lockstep::http {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Returns nullopt if the encoding is malformed.
std::optional<std::string> Decode(std::string_view text, bool plus_is_space) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      plain += ' ';
    } else if (text[i] != '%') {
      plain += text[i];
    } else {
      if (text.size() - i < 3) return std::nullopt;
      const int high = HexDigit(text[i + 1]);
      const int low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      plain += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return plain;
}

Status Malformed() {
  return InvalidArgument(
      "the request's target is malformed: it must begin with a slash, and each "
      "percent sign must be followed by two hexadecimal digits");
}

}  // namespace

StatusOr<HttpTarget> ParseHttpTarget(std::string_view target) {
  if (!target.starts_with('/')) return Malformed();
  HttpTarget result;
  const size_t mark = target.find('?');
  auto path = Decode(target.substr(0, mark), /*plus_is_space=*/false);
  if (!path) return Malformed();
  result.path = *std::move(path);
  if (mark == std::string_view::npos) return result;
  std::string_view rest = target.substr(mark + 1);
  while (!rest.empty()) {
    const size_t end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    auto name = Decode(pair.substr(0, equals), /*plus_is_space=*/true);
    auto value =
        Decode(equals == std::string_view::npos ? "" : pair.substr(equals + 1),
               /*plus_is_space=*/true);
    if (!name || !value) return Malformed();
    result.parameters.emplace_back(*name, *value);
    result.query.emplace(*std::move(name), *std::move(value));
  }
  return result;
}

}  // namespace lockstep::http
