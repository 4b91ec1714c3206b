#include "common/model/session.h"

#include <fmt/format.h>

#include <cctype>
#include <string_view>

namespace lockstep {
namespace {

constexpr size_t kMaxShown = 160;

// An argument as a shell would read it back, cut and printable.
std::string Shown(const std::string& argument) {
  std::string shown;
  bool plain = !argument.empty();
  for (const char c : argument) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte > 0x7e ? '?' : c;
    plain &= std::isalnum(byte) != 0 ||
             std::string_view("-_./=:,+%@").find(c) != std::string_view::npos;
  }
  return plain ? shown : "'" + shown + "'";
}

}  // namespace

std::string Describe(const SessionRequest& request) {
  if (request.port) return fmt::format("port {}", request.port->port);
  if (request.profile) {
    return fmt::format("a profile of {} s", request.profile->seconds);
  }
  std::string text;
  if (request.command) {
    for (const std::string& argument : request.command->argv) {
      if (!text.empty()) text += ' ';
      text += Shown(argument.substr(0, kMaxShown));
      if (text.size() > kMaxShown) break;
    }
  }
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return "`" + text + "`";
}

}  // namespace lockstep
