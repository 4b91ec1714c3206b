#include "common/model/scrape_address.h"

#include <fmt/format.h>

namespace lockstep {

std::optional<HostPort> ScrapeAddress(const std::string& http_address,
                                      const std::string& address) {
  const auto parsed = ParseHostPort(http_address);
  if (!parsed.ok() || parsed->port == 0) return std::nullopt;
  HostPort found = *parsed;
  if (found.host == "0.0.0.0" || found.host == "::") found.host = address;
  if (found.host.empty()) return std::nullopt;
  if (IsLoopback(found.host) && !IsLoopback(address)) return std::nullopt;
  return found;
}

std::string WhyNotScraped(const std::string& http_address,
                          const std::string& address) {
  if (ScrapeAddress(http_address, address)) return "";
  const auto parsed = ParseHostPort(http_address);
  if (!parsed.ok() || parsed->port == 0) {
    return "its daemon has no HTTP port: Prometheus cannot scrape it";
  }
  return fmt::format(
      "{} is a loopback address: Prometheus cannot scrape "
      "it; give the daemon http_address and web_config",
      http_address);
}

}  // namespace lockstep
