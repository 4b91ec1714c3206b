// TCP sockets of this network namespace, as the kernel tells them
// (sock_diag(7)), and the sockets that a process has open. Safe from any
// thread.
#ifndef LOCKSTEP_COMMON_OS_TCP_SOCKETS_H_
#define LOCKSTEP_COMMON_OS_TCP_SOCKETS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

namespace lockstep {

struct TcpSocket {
  uint64_t inode = 0;   // 0: no process has it open any more.
  uint64_t cookie = 0;  // No other socket has it until the host boots.
  int32_t port = 0;     // The local one.
  // Payload that the peer has acknowledged, and that has come. The opening of a
  // connection may count as one byte.
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
};

// Those that listen, and those with a peer that the kernel can ask about.
enum class TcpKind { kListening, kConnected };

// Of IPv4 and IPv6. The kernel walks only sockets of that kind. nullopt where
// it does not answer: it lacks sock_diag, or a sandbox refuses it. Bytes are 0
// of listening sockets.
std::optional<std::vector<TcpSocket>> AskTcpSockets(TcpKind kind);

// The inode in the target of a link of /proc/PID/fd, "socket:[123]".
std::optional<uint64_t> SocketInode(std::string_view link);

// The inodes of the sockets among the first `most` descriptors of a process.
// Empty if it may not be inspected.
std::set<uint64_t> SocketsOf(pid_t pid, size_t most = 1 << 20);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_TCP_SOCKETS_H_
