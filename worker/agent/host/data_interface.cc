#include "worker/agent/host/data_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include <memory>

namespace lockstep::worker::agent {
namespace {

bool Has(const ifaddrs& entry, const std::string& address) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) {
    return false;
  }
  if (entry.ifa_addr->sa_family == AF_INET) {
    in_addr wanted{};
    if (inet_pton(AF_INET, address.c_str(), &wanted) != 1) return false;
    sockaddr_in own{};
    memcpy(&own, entry.ifa_addr, sizeof(own));
    if ((entry.ifa_flags & IFF_LOOPBACK) != 0 &&
        ntohl(wanted.s_addr) >> 24 == IN_LOOPBACKNET) {
      return true;
    }
    return own.sin_addr.s_addr == wanted.s_addr;
  }
  if (entry.ifa_addr->sa_family == AF_INET6) {
    in6_addr wanted{};
    if (inet_pton(AF_INET6, address.c_str(), &wanted) != 1) return false;
    sockaddr_in6 own{};
    memcpy(&own, entry.ifa_addr, sizeof(own));
    return memcmp(&own.sin6_addr, &wanted, sizeof(wanted)) == 0;
  }
  return false;
}

}  // namespace

std::string InterfaceOf(const std::string& address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(all,
                                                               freeifaddrs);
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (Has(*at, address)) return at->ifa_name;
  }
  return "";
}

}  // namespace lockstep::worker::agent
