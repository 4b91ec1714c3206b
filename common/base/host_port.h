// "HOST:PORT", the form of listeners and targets. Pure.
#ifndef LOCKSTEP_COMMON_BASE_HOST_PORT_H_
#define LOCKSTEP_COMMON_BASE_HOST_PORT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep {

struct HostPort {
  // A name or an address; IPv6 without brackets.
  std::string host;
  uint16_t port = 0;

  bool operator==(const HostPort&) const = default;
};

// Parses "127.0.0.1:0", "host-a:7443", "[::1]:7443". InvalidArgument for a
// missing port, an empty host or an IPv6 address without brackets.
StatusOr<HostPort> ParseHostPort(std::string_view text);

// The reverse of ParseHostPort.
std::string FormatHostPort(const HostPort& address);

// True if only this machine can reach the host: 127.0.0.0/8, ::1 or the name
// "localhost". False for every other name, whatever it resolves to.
bool IsLoopback(std::string_view host);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_HOST_PORT_H_
