#include "common/base/entry_name.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr size_t kMaxName = 4095;
constexpr size_t kMaxPart = 255;
constexpr size_t kMaxDepth = 64;

std::vector<std::string_view> Parts(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    if (!part.empty() && part != ".") parts.push_back(part);
  }
  return parts;
}

bool HasControlCharacter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

}  // namespace

std::string QuoteEntry(std::string_view name) {
  constexpr size_t kMost = 120;
  std::string text = "\"";
  for (const char c : name.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text + (name.size() > kMost ? "...\"" : "\"");
}

StatusOr<std::vector<std::string>> SplitEntryName(std::string_view name) {
  if (name.empty()) return InvalidArgument("it has no name");
  if (name.front() == '/') return InvalidArgument("its name is absolute");
  if (name.size() > kMaxName) {
    return InvalidArgument("its name has {} bytes", name.size());
  }
  if (HasControlCharacter(name)) {
    return InvalidArgument("its name holds a control character");
  }
  std::vector<std::string> parts;
  for (const std::string_view part : Parts(name)) {
    if (part == "..") return InvalidArgument("its name holds \"..\"");
    if (part.size() > kMaxPart) {
      return InvalidArgument("a part of its name has {} bytes", part.size());
    }
    parts.emplace_back(part);
  }
  if (parts.size() > kMaxDepth) {
    return InvalidArgument("it is {} folders deep", parts.size());
  }
  return parts;
}

Status CheckLinkTarget(std::string_view target, size_t depth) {
  const auto refuse = [&] {
    return InvalidArgument("it is a link to {}, which is outside the folder",
                           QuoteEntry(target));
  };
  if (target.empty() || target.front() == '/') return refuse();
  if (target.size() > kMaxName || HasControlCharacter(target)) {
    return InvalidArgument("it is a link to {}, which is not a valid name",
                           QuoteEntry(target));
  }
  bool down = false;
  for (const std::string_view part : Parts(target)) {
    if (part != "..") {
      down = true;
    } else if (down) {
      // Its target depends on other links.
      return InvalidArgument("it is a link to {}, with \"..\" after a name",
                             QuoteEntry(target));
    } else if (depth == 0) {
      return refuse();
    } else {
      --depth;
    }
  }
  return OkStatus();
}

}  // namespace lockstep
