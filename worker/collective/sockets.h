// Sockets of this process: addresses and descriptors.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SOCKETS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SOCKETS_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "common/base/status.h"

namespace lockstep::worker::collective {

// An IPv4 or IPv6 address in digits, port 0. InvalidArgument for anything
// else, names included.
StatusOr<sockaddr_storage> ParseAddress(const std::string& text);
// 0.0.0.0 or ::.
bool IsAnyAddress(const sockaddr_storage& address);
// Checks that this host has `address`; InvalidArgument says why not.
Status TryToBind(const sockaddr_storage& address);

struct SocketEnds {
  sockaddr_storage local{};
  sockaddr_storage remote{};
};
// False: `fd` is not a connected socket.
bool GetEnds(int fd, SocketEnds* ends);

// Whether both ends are on one host: they are equal, or both of the loopback.
// Addresses of two interfaces of one host do not count as one host.
bool IsWithinHost(const SocketEnds& ends);

// Ends a connection now. The peer gets a reset, which overtakes bytes that it
// has not received, and the kernel keeps no bytes queued for a frozen peer.
void ResetConnection(int fd);

// The descriptors of this process that are sockets. Others may open and close
// some meanwhile: check what a descriptor is before using it.
std::vector<int> OpenSockets();

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SOCKETS_H_
