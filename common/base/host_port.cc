#include "common/base/host_port.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

namespace lockstep {

StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const auto malformed = [&] {
    return InvalidArgument(
        "\"{}\" is not an address: write HOST:PORT, as in 127.0.0.1:7443 or "
        "[::1]:7443",
        text);
  };
  std::string_view host;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find("]:");
    if (end == std::string_view::npos) return malformed();
    host = text.substr(1, end - 1);
    port = text.substr(end + 2);
    in6_addr ignored;
    if (::inet_pton(AF_INET6, std::string(host).c_str(), &ignored) != 1) {
      return malformed();
    }
  } else {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) return malformed();
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  const auto in_name = [](char c) {
    return c > ' ' && c < 0x7f && c != '/' && c != '[' && c != ']';
  };
  if (host.empty() || !std::all_of(host.begin(), host.end(), in_name)) {
    return malformed();
  }
  HostPort result;
  result.host = host;
  const char* const end = port.data() + port.size();
  const auto parsed = std::from_chars(port.data(), end, result.port);
  if (parsed.ec != std::errc() || parsed.ptr != end) return malformed();
  return result;
}

std::string FormatHostPort(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.host, address.port)
            : fmt::format("{}:{}", address.host, address.port);
}

bool IsLoopback(std::string_view host) {
  if (host == "localhost") return true;
  const std::string text(host);
  in_addr v4;
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6;
  return ::inet_pton(AF_INET6, text.c_str(), &v6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace lockstep
