#include "server/page/grafana_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "server/page/html.h"

namespace lockstep::server {
namespace {

constexpr size_t kMostUrlBytes = 2048;
constexpr std::string_view kUrlExample =
    "https://grafana.example.com/d/lockstep-job?var-job_id={job}";

// A character of an address (RFC 3986), or one of the braces.
bool MayBeInUrl(char c) {
  return c > ' ' && c < 0x7f &&
         std::string_view("\"'<>\\^`|").find(c) == std::string_view::npos;
}

int64_t ToUnixMillis(WallTime time) { return ToUnixNanos(time) / 1'000'000; }

// Calls `value` with the name of each {NAME} and puts its result there. Text
// that it returns is not searched again.
template <typename F>
std::string FillBraces(std::string_view url, F value) {
  std::string filled;
  while (!url.empty()) {
    const size_t open = url.find('{');
    const size_t close = open == url.npos ? open : url.find('}', open);
    if (close == url.npos) break;
    filled += url.substr(0, open);
    filled += value(std::string(url.substr(open + 1, close - open - 1)));
    url.remove_prefix(close + 1);
  }
  return filled.append(url);
}

}  // namespace

std::string GrafanaUrlFault(const std::string& url) {
  if (url.empty()) return "";
  const auto fault = [](const std::string& what) {
    return fmt::format("{}; an address such as {}", what, kUrlExample);
  };
  size_t scheme = 0;
  for (const std::string_view prefix : {"http://", "https://"}) {
    if (url.starts_with(prefix)) scheme = prefix.size();
  }
  if (scheme == 0) {
    return fault("it must begin with http:// or https://");
  }
  const size_t host_end = url.find_first_of("/?#", scheme);
  const std::string host = url.substr(scheme, host_end - scheme);
  if (host.empty() || host.find_first_of("{}") != std::string::npos) {
    return fault("it must name a host");
  }
  if (url.size() > kMostUrlBytes) {
    return fault(fmt::format("it must have at most {} bytes", kMostUrlBytes));
  }
  if (!std::all_of(url.begin(), url.end(), MayBeInUrl)) {
    return fault("it must be an address, with other characters as %XX");
  }
  bool job = false;
  bool unknown = false;
  const std::string rest = FillBraces(url, [&](const std::string& name) {
    job = job || name == "job";
    unknown = unknown || (name != "job" && name != "cluster" &&
                          name != "from" && name != "to");
    return std::string();
  });
  if (unknown || rest.find_first_of("{}") != std::string::npos) {
    return fault("braces must be those of {job}, {cluster}, {from} or {to}");
  }
  return job ? "" : fault("it must contain {job}, for the job's name");
}

std::string GrafanaLink(const std::string& url, const std::string& cluster,
                        const std::string& job, WallTime from,
                        std::optional<WallTime> to) {
  const std::map<std::string, std::string> values = {
      {"cluster", EscapePath(cluster)},
      {"job", EscapePath(job)},
      {"from", std::to_string(ToUnixMillis(from))},
      {"to", to ? std::to_string(ToUnixMillis(*to)) : "now"}};
  return FillBraces(url, [&](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string() : found->second;
  });
}

}  // namespace lockstep::server
