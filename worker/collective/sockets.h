// Sockets of this process: addresses, and which descriptors they are.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SOCKETS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SOCKETS_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// An IPv4 or IPv6 address in digits, port 0. InvalidArgument for anything
// else, names included.
StatusOr<sockaddr_storage> ParseAddress(const std::string& text);
// 0.0.0.0 or ::.
bool IsAnyAddress(const sockaddr_storage& address);
// That this host has `address`: InvalidArgument says why not.
Status TryToBind(const sockaddr_storage& address);

struct SocketEnds {
  sockaddr_storage local{};
  sockaddr_storage remote{};
};
// False where `fd` is no connected socket.
bool GetEnds(int fd, SocketEnds* ends);

// Whether they are of one host: equal, or both of the loopback. Two addresses
// of two interfaces of one host are not known to be.
bool IsWithinHost(const SocketEnds& ends);

// Ends a connection now: the peer is told by a reset, which overtakes what it
// has not received, and nothing stays queued for one that is frozen.
void ResetConnection(int fd);

// The descriptors of this process that are sockets. Others may open and close
// some meanwhile: check what a descriptor is before using it.
std::vector<int> OpenSockets();

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SOCKETS_H_
