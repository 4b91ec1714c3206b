#include "worker/collective/shm/handshake.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/random.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace lockstep::worker::collective::shm {
namespace {

constexpr char kMagic[8] = {'L', 'S', 'S', 'H', 'M', 0, 0, 3};

}  // namespace

Hello MakeHello(int rank, int size, size_t segment_bytes) {
  Hello hello{};
  std::memcpy(hello.magic, kMagic, sizeof(kMagic));
  hello.rank = static_cast<uint32_t>(rank);
  hello.size = static_cast<uint32_t>(size);
  const std::string nonce = RandomBytes(sizeof(hello.nonce));
  std::memcpy(hello.nonce, nonce.data(), sizeof(hello.nonce));
  hello.segment_bytes = segment_bytes;
  return hello;
}

Status CheckHello(const Hello& hello, int size) {
  if (std::memcmp(hello.magic, kMagic, sizeof(kMagic)) != 0) {
    return FailedPrecondition(
        "it runs another version, or is not a rank of this job");
  }
  if (hello.size != static_cast<uint32_t>(size)) {
    return FailedPrecondition("it is one of {} ranks, not of {}", hello.size,
                              size);
  }
  return OkStatus();
}

Proof Prove(const std::string& key, Role role, const Hello& connector,
            const Hello& acceptor) {
  std::string text = "lockstep shm 1 ";
  text += static_cast<char>(role);
  text.append(reinterpret_cast<const char*>(&connector), sizeof(connector));
  text.append(reinterpret_cast<const char*>(&acceptor), sizeof(acceptor));
  return HmacSha256(key, text);
}

Status SendMessage(int socket, const void* data, size_t bytes, int file) {
  iovec part{const_cast<void*>(data), bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return Unavailable("it went away ({})", std::strerror(errno));
  return OkStatus();
}

Status ReceiveMessage(int socket, void* data, size_t bytes, Fd* file,
                      bool* nothing) {
  *nothing = false;
  iovec part{data, bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // Room for one more, so that a second one is seen and closed.
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got;
  do {
    got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    *nothing = true;
    return OkStatus();
  }
  if (got < 0) return Unavailable("it went away ({})", std::strerror(errno));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      file->Reset(fd);
    }
  }
  if (got == 0) return Unavailable("it closed the connection");
  if (static_cast<size_t>(got) != bytes || (message.msg_flags & MSG_TRUNC)) {
    return FailedPrecondition(
        "it runs another version, or is not a rank of this job");
  }
  return OkStatus();
}

StatusOr<pid_t> ProcessOf(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return ErrnoStatus(errno, "reading the peer's credentials");
  }
  if (credentials.uid != geteuid()) {
    return PermissionDenied("it runs as user {}, this rank as user {}",
                            credentials.uid, geteuid());
  }
  return credentials.pid;
}

Fd OpenProcess(int socket, pid_t pid) {
  int fd = -1;
  socklen_t size = sizeof(fd);
  // Linux 6.5: cannot be another process that got the number meanwhile.
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) {
    return Fd(fd);
  }
  if (pid <= 0) return Fd();
#ifdef SYS_pidfd_open
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
#else
  return Fd();
#endif
}

}  // namespace lockstep::worker::collective::shm
