// For tests: by which congestion control this process's connections go.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_CONGESTION_TEST_UTIL_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_CONGESTION_TEST_UTIL_H_

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <map>
#include <string>

#include "common/base/fd.h"
#include "worker/collective/sockets.h"

namespace lockstep::worker::collective::tcp {

// The congestion control of a socket; empty: it is not a TCP socket.
inline std::string ControlOf(int fd) {
  char name[16] = {};
  socklen_t size = sizeof(name);
  getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size);
  return name;
}

// The congestion control of a new connection by default.
inline std::string UsualControl() {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ControlOf(fd.get());
}

// This process's connections, by their congestion control.
inline std::map<std::string, int> CountConnections() {
  std::map<std::string, int> counts;
  SocketEnds ends;
  for (const int fd : OpenSockets()) {
    if (GetEnds(fd, &ends)) ++counts[ControlOf(fd)];
  }
  return counts;
}

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_CONGESTION_TEST_UTIL_H_
