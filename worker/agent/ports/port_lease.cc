#include "worker/agent/ports/port_lease.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>

#include "common/base/random.h"

namespace lockstep::worker::agent {
namespace {

constexpr int32_t kLowest = 10'000;
constexpr int32_t kHighest = 65'535;

// Nothing of it is in the file system, and it ends with the process.
StatusOr<Fd> TakeExclusion(int32_t port) {
  Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoStatus(errno, "making a socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("lockstep/port/{}", port);
  // An abstract name begins with a NUL.
  memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    if (errno == EADDRINUSE) {
      return AlreadyExists("port {} is already leased", port);
    }
    return ErrnoStatus(errno, fmt::format("leasing port {}", port));
  }
  return fd;
}

template <typename Address>
bool Bind(int fd, const Address& address) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  return bind(fd, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) == 0;
}

// Binds the port on all addresses of both families, if there is IPv6.
// SO_REUSEADDR lets a listener with the same option share the port; binding
// fails if the port already has a listener.
StatusOr<Fd> TakeTcp(int32_t port) {
  Fd six(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (six) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    const int off = 0;
    setsockopt(six.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (Bind(six.get(), address)) return six;
    if (errno == EADDRINUSE) return AlreadyExists("port {} is in use", port);
    // IPv6 is compiled in but disabled: EADDRNOTAVAIL.
  }
  Fd four(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!four) return ErrnoStatus(errno, "making a socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (Bind(four.get(), address)) return four;
  if (errno == EADDRINUSE) return AlreadyExists("port {} is in use", port);
  return ErrnoStatus(errno, fmt::format("binding port {}", port));
}

}  // namespace

StatusOr<PortRange> ParsePortRange(std::string_view text) {
  PortRange range;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.first);
  const char* at = first.ptr;
  while (at != end && (*at == ' ' || *at == '\t')) ++at;
  const auto last = std::from_chars(at, end, range.last);
  if (first.ec != std::errc() || last.ec != std::errc() || range.first < 1 ||
      range.last > kHighest || range.first > range.last) {
    return InvalidArgument("\"{}\" is not a range of ports",
                           text.substr(0, std::min<size_t>(text.size(), 40)));
  }
  return range;
}

StatusOr<std::vector<PortRange>> ParsePortList(std::string_view text) {
  std::vector<PortRange> ranges;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    PortRange range;
    range.in_order = true;
    auto number = std::from_chars(at, end, range.first);
    range.last = range.first;
    if (number.ec == std::errc() && number.ptr != end && *number.ptr == '-') {
      number = std::from_chars(number.ptr + 1, end, range.last);
    }
    if (number.ec != std::errc() || range.first < 1 || range.last > kHighest ||
        range.first > range.last || (number.ptr != end && *number.ptr != ',')) {
      return InvalidArgument(
          "\"{}\" is not a list of ports such as 27182,27190-27199",
          text.substr(0, std::min<size_t>(text.size(), 40)));
    }
    ranges.push_back(range);
    if (number.ptr == end) return ranges;
    at = number.ptr + 1;
  }
}

std::vector<PortRange> LeasableRanges(const PortRange& ephemeral) {
  std::vector<PortRange> ranges;
  if (ephemeral.first > kLowest) {
    ranges.push_back({kLowest, ephemeral.first - 1});
  }
  if (ephemeral.last < kHighest) {
    ranges.push_back({std::max(kLowest, ephemeral.last + 1), kHighest});
  }
  return ranges;
}

std::vector<int> PortLease::fds() const {
  std::vector<int> fds{exclusion_.get()};
  if (tcp_) fds.push_back(tcp_.get());
  return fds;
}

StatusOr<PortLease> PortLease::Take(int32_t port) {
  LOCKSTEP_ASSIGN_OR_RETURN(Fd exclusion, TakeExclusion(port));
  LOCKSTEP_ASSIGN_OR_RETURN(Fd tcp, TakeTcp(port));
  return PortLease(port, std::move(exclusion), std::move(tcp));
}

StatusOr<PortLease> PortLease::Adopt(int32_t port) {
  LOCKSTEP_ASSIGN_OR_RETURN(Fd exclusion, TakeExclusion(port));
  return PortLease(port, std::move(exclusion), Fd());
}

StatusOr<std::vector<PortLease>> LeasePorts(
    int count, const std::vector<PortRange>& ranges) {
  std::vector<int32_t> all;
  for (const PortRange& range : ranges) {
    for (int32_t port = range.first; port <= range.last; ++port) {
      all.push_back(port);
    }
  }
  std::vector<PortLease> leases;
  const bool in_order = !ranges.empty() && ranges[0].in_order;
  const size_t start =
      all.empty() || in_order ? 0 : RandomUint64() % all.size();
  for (size_t i = 0; i < all.size() && leases.size() < size_t(count); ++i) {
    StatusOr<PortLease> lease = PortLease::Take(all[(start + i) % all.size()]);
    if (lease.ok()) {
      leases.push_back(*std::move(lease));
    } else if (lease.status().code() != StatusCode::kAlreadyExists) {
      return lease.status();
    }
  }
  if (leases.size() < static_cast<size_t>(count)) {
    return ResourceExhausted(
        "the job needs {} ports, and {} of {} outside the ephemeral range are "
        "free",
        count, leases.size(), all.size());
  }
  return leases;
}

}  // namespace lockstep::worker::agent
