#include "worker/rank_link/packet.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

namespace lockstep::worker::rank_link {
namespace {

StatusOr<sockaddr_un> Address(const std::string& path) {
  if (path.empty() || path.size() > kMaxSocketPath) {
    return InvalidArgument(
        "socket path '{}' has {} bytes: a Unix socket's path has 1 to {}, "
        "choose a shorter runtime directory",
        path, path.size(), kMaxSocketPath);
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

StatusOr<Fd> MakeSocket() {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoStatus(errno, "making a socket for the rank link");
  return fd;
}

// A connect is refused at once where nobody listens any more.
bool HasListener(const sockaddr_un& address) {
  StatusOr<Fd> fd = MakeSocket();
  return fd.ok() &&
         (::connect(fd->get(), reinterpret_cast<const sockaddr*>(&address),
                    sizeof(address)) == 0 ||
          errno == EAGAIN);
}

}  // namespace

StatusOr<Fd> ListenPackets(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const sockaddr_un address, Address(path));
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return AlreadyExists("{} is there and is not a socket", path);
    }
    if (HasListener(address)) {
      return AlreadyExists("another process listens at {}", path);
    }
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, "removing the old socket " + path);
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Fd fd, MakeSocket());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
             sizeof(address)) != 0) {
    return ErrnoStatus(errno, "binding the socket " + path);
  }
  if (::chmod(path.c_str(), 0666) != 0 || ::listen(fd.get(), 128) != 0) {
    return ErrnoStatus(errno, "listening at " + path);
  }
  return fd;
}

StatusOr<Fd> ConnectPackets(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const sockaddr_un address, Address(path));
  LOCKSTEP_ASSIGN_OR_RETURN(Fd fd, MakeSocket());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) != 0) {
    return Unavailable("connecting to the worker daemon at {}: {}", path,
                       std::strerror(errno));
  }
  return fd;
}

PacketResult SendPacket(int fd, std::string_view packet) {
  if (packet.size() > kMaxPacketBytes) return PacketResult::kOversized;
  while (true) {
    const ssize_t n =
        ::send(fd, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return PacketResult::kDone;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
      return PacketResult::kWouldBlock;
    }
    return PacketResult::kClosed;
  }
}

PacketResult ReceivePacket(int fd, std::string* packet) {
  packet->resize(kMaxPacketBytes);
  while (true) {
    // With MSG_TRUNC the length is the packet's own.
    const ssize_t n =
        ::recv(fd, packet->data(), packet->size(), MSG_DONTWAIT | MSG_TRUNC);
    if (n > static_cast<ssize_t>(kMaxPacketBytes)) {
      return PacketResult::kOversized;
    }
    if (n > 0) {
      packet->resize(static_cast<size_t>(n));
      return PacketResult::kDone;
    }
    if (n == 0) return PacketResult::kClosed;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return PacketResult::kWouldBlock;
    }
    return PacketResult::kClosed;
  }
}

}  // namespace lockstep::worker::rank_link
