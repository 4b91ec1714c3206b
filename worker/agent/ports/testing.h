// For tests only: who else wants a port.
#ifndef LOCKSTEP_WORKER_AGENT_PORTS_TESTING_H_
#define LOCKSTEP_WORKER_AGENT_PORTS_TESTING_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "common/base/fd.h"

namespace lockstep::worker::agent {

// Listens on `port` of loopback as servers do, with SO_REUSEADDR or without; 0:
// one that the kernel chooses. Nothing where it cannot.
inline Fd ListenOn(int32_t port, bool reuse) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (reuse) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
          0 ||
      listen(fd.get(), 1) != 0) {
    return Fd();
  }
  return fd;
}

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PORTS_TESTING_H_
