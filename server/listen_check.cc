#include "server/listen_check.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "common/base/fd.h"
#include "common/base/host_port.h"

namespace lockstep::server {

Status CheckCanListen(const std::string& address) {
  LOCKSTEP_ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(
      where.host.c_str(), std::to_string(where.port).c_str(), &hints, &list);
  if (error != 0) {
    return InvalidArgument("listening on {}: {}", address,
                           ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list,
                                                             ::freeaddrinfo);
  // One usable address of a name suffices.
  int last = 0;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    const Fd socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (socket.get() < 0) {
      last = errno;
      continue;
    }
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (::bind(socket.get(), each->ai_addr, each->ai_addrlen) == 0 &&
        ::listen(socket.get(), 1) == 0) {
      return OkStatus();
    }
    last = errno;
  }
  return Unavailable("listening on {}: {}", address, std::strerror(last));
}

}  // namespace lockstep::server
