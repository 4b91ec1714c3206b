// The command of a session that forwards a TCP port.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "worker/shim/session.h"

namespace lockstep::worker::shim {
namespace {

constexpr int kConnectMillis = 10'000;

// Returns 0 or an errno.
int ConnectTo(const sockaddr* address, socklen_t size, Fd* connected) {
  Fd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
               0));
  if (!fd) return errno;
  if (connect(fd.get(), address, size) != 0) {
    if (errno != EINPROGRESS) return errno;
    pollfd writable = {fd.get(), POLLOUT, 0};
    if (poll(&writable, 1, kConnectMillis) != 1) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return error;
  }
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  *connected = std::move(fd);
  return 0;
}

// One direction. Reads only what the other side has taken.
class Copy {
 public:
  Copy(int from, int to) : from_(from), to_(to) {}

  bool wants_read() const { return !ended_ && begin_ == end_; }
  bool wants_write() const { return begin_ < end_; }
  // All is read and written; true once.
  bool TakeEnd() {
    if (!ended_ || told_ || wants_write()) return false;
    return told_ = true;
  }
  bool done() const { return told_; }
  int from() const { return from_; }
  int to() const { return to_; }

  void Read() {
    const ssize_t n = read(from_, buffer_, sizeof(buffer_));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    begin_ = 0;
    end_ = n > 0 ? static_cast<size_t>(n) : 0;
    if (n <= 0) ended_ = true;
  }
  void Write() {
    const ssize_t n = write(to_, buffer_ + begin_, end_ - begin_);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) {
      // The reader is gone.
      begin_ = end_ = 0;
      ended_ = true;
      return;
    }
    begin_ += static_cast<size_t>(n);
  }

 private:
  const int from_;
  const int to_;
  char buffer_[64 << 10];
  size_t begin_ = 0;
  size_t end_ = 0;
  bool ended_ = false;
  bool told_ = false;
};

void Join(int socket_fd) {
  static Copy up(0, socket_fd);
  static Copy down(socket_fd, 1);
  // When the peer has closed, what it will not read ends this, too.
  while (!down.done()) {
    pollfd fds[4] = {{up.wants_read() ? up.from() : -1, POLLIN, 0},
                     {up.wants_write() ? up.to() : -1, POLLOUT, 0},
                     {down.wants_read() ? down.from() : -1, POLLIN, 0},
                     {down.wants_write() ? down.to() : -1, POLLOUT, 0}};
    if (poll(fds, 4, -1) < 0) continue;
    if (fds[0].revents != 0) up.Read();
    if (fds[1].revents != 0) up.Write();
    if (fds[2].revents != 0) down.Read();
    if (fds[3].revents != 0) down.Write();
    if (up.TakeEnd()) shutdown(socket_fd, SHUT_WR);
    (void)down.TakeEnd();
  }
}

}  // namespace

int RunConnect(const char* text) {
  char* end = nullptr;
  const long port = strtol(text, &end, 10);
  if (*end != '\0' || port < 1 || port > 65535) {
    Complain(std::string("not a port: ") + text);
    return 1;
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<uint16_t>(port));
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Fd fd;
  int error =
      ConnectTo(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4), &fd);
  if (error == ECONNREFUSED) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = v4.sin_port;
    v6.sin6_addr = in6addr_loopback;
    if (ConnectTo(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6), &fd) ==
        0) {
      error = 0;
    }
  }
  if (error != 0) {
    (void)!write(2, strerror(error), strlen(strerror(error)));
    return 1;
  }
  for (const int standard : {0, 1}) {
    fcntl(standard, F_SETFL, fcntl(standard, F_GETFL) | O_NONBLOCK);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
  Join(fd.get());
  return 0;
}

}  // namespace lockstep::worker::shim
