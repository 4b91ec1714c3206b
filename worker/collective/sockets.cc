#include "worker/collective/sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "common/base/fd.h"

namespace lockstep::worker::collective {

namespace {

// IPv4 and IPv6 only.
bool IsSameAddress(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr,
                     sizeof(in6_addr)) == 0;
}

}  // namespace

StatusOr<sockaddr_storage> ParseAddress(const std::string& text) {
  sockaddr_storage storage{};
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
  } else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
  } else {
    return InvalidArgument("\"{}\" is not an IP address", text);
  }
  return storage;
}

bool IsAnyAddress(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr ==
           htonl(INADDR_ANY);
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr,
                     &in6addr_any, sizeof(in6addr_any)) == 0;
}

Status TryToBind(const sockaddr_storage& address) {
  const socklen_t size =
      address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const Fd fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return InvalidArgument("{}", std::strerror(errno));
  }
  return OkStatus();
}

bool GetEnds(int fd, SocketEnds* ends) {
  socklen_t size = sizeof(ends->local);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&ends->local), &size) != 0) {
    return false;
  }
  size = sizeof(ends->remote);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&ends->remote), &size) ==
         0;
}

bool IsWithinHost(const SocketEnds& ends) {
  SocketEnds plain = ends;
  for (sockaddr_storage* end : {&plain.local, &plain.remote}) {
    if (end->ss_family != AF_INET) continue;
    in_addr& address = reinterpret_cast<sockaddr_in*>(end)->sin_addr;
    const uint32_t network = ntohl(address.s_addr) >> IN_CLASSA_NSHIFT;
    if (network == IN_LOOPBACKNET) address.s_addr = htonl(INADDR_LOOPBACK);
  }
  return IsSameAddress(plain.local, plain.remote);
}

void ResetConnection(int fd) {
  sockaddr_storage none{};
  none.ss_family = AF_UNSPEC;
  if (connect(fd, reinterpret_cast<sockaddr*>(&none), sizeof(none)) != 0) {
    shutdown(fd, SHUT_RDWR);
  }
}

std::vector<int> OpenSockets() {
  std::vector<int> sockets;
  DIR* dir = opendir("/proc/self/fd");
  if (dir == nullptr) return sockets;
  while (const dirent* entry = readdir(dir)) {
    char target[32];
    const ssize_t size =
        readlinkat(dirfd(dir), entry->d_name, target, sizeof(target));
    if (size > 8 && std::memcmp(target, "socket:[", 8) == 0) {
      sockets.push_back(std::atoi(entry->d_name));
    }
  }
  closedir(dir);
  return sockets;
}

}  // namespace lockstep::worker::collective
