// "HOST:PORT", the way listeners and targets are written. Pure.
#ifndef LOCKSTEP_COMMON_BASE_HOST_PORT_H_
#define LOCKSTEP_COMMON_BASE_HOST_PORT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep {

struct HostPort {
  // A name or an address; of IPv6 without the brackets.
  std::string host;
  uint16_t port = 0;

  bool operator==(const HostPort&) const = default;
};

// "127.0.0.1:0", "host-a:7443", "[::1]:7443". InvalidArgument for all else: a
// missing port, an empty host, an IPv6 address without brackets.
StatusOr<HostPort> ParseHostPort(std::string_view text);

// The reverse of ParseHostPort.
std::string FormatHostPort(const HostPort& address);

// Reachable from this machine only: 127.0.0.0/8, ::1 or the name "localhost".
// Any other name is not, whatever it may resolve to today.
bool IsLoopback(std::string_view host);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_HOST_PORT_H_
