#include "worker/shim/server.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "worker/task/same_secret.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::shim {
namespace {

using task::ShimReply;
using task::ShimRequest;

constexpr size_t kMaxConnections = 16;
constexpr int64_t kGreetTime = 5 * kNanosPerSecond;
constexpr int kSocketFlags = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

ShimReply Refusal(uint32_t id, std::string text) {
  ShimReply reply;
  reply.kind = ShimReply::Kind::kRefused;
  reply.id = id;
  reply.error = std::move(text);
  return reply;
}

}  // namespace

bool Server::Listen(const std::string& path, std::string* error,
                    int* error_number) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() > task::kMaxSocketPath) {
    *error = "the socket path " + path + " is too long";
    *error_number = ENAMETOOLONG;
    return false;
  }
  memcpy(address.sun_path, path.data(), path.size());
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  {
    const Fd probe(socket(AF_UNIX, kSocketFlags, 0));
    if (connect(probe.get(), generic, sizeof(address)) == 0 ||
        errno == EAGAIN) {
      *error = "another shim listens on " + path;
      *error_number = EADDRINUSE;
      return false;
    }
    if (errno == ECONNREFUSED) unlink(path.c_str());
  }
  listener_.Reset(socket(AF_UNIX, kSocketFlags, 0));
  const mode_t mask = umask(077);
  const bool bound = listener_ &&
                     bind(listener_.get(), generic, sizeof(address)) == 0 &&
                     listen(listener_.get(), kMaxConnections) == 0;
  *error_number = errno;
  umask(mask);
  if (!bound) {
    *error = ErrorText("listening on " + path, *error_number);
    listener_.Reset();
  }
  return bound;
}

void Server::AddFds(std::vector<pollfd>* fds) const {
  fds->push_back({listener_.get(), POLLIN, 0});
  for (const Connection& connection : connections_) {
    fds->push_back({connection.fd.get(), POLLIN, 0});
  }
}

void Server::OnReady(const pollfd* fds, size_t count, int64_t now) {
  // connections_[i] is fds[i + 1]; those that are done get no descriptor and
  // are removed at the end, so that the numbering holds meanwhile.
  const size_t known = std::min(count - 1, connections_.size());
  for (size_t i = 0; i < known; ++i) {
    Connection* connection = &connections_[i];
    if (fds[i + 1].revents != 0 && !OnReadable(connection)) {
      connection->fd.Reset();
    } else if (!connection->greeted && now >= connection->greet_by) {
      connection->fd.Reset();
    }
  }
  std::erase_if(connections_, [](const Connection& c) { return !c.fd; });
  if (fds[0].revents != 0) Accept(now);
}

int64_t Server::NextDeadline() const {
  int64_t next = -1;
  for (const Connection& connection : connections_) {
    if (!connection.greeted) next = EarlierOf(next, connection.greet_by);
  }
  return next;
}

void Server::Accept(int64_t now) {
  for (;;) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr,
                  SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    ucred peer{};
    socklen_t size = sizeof(peer);
    const bool known =
        getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    Connection connection;
    connection.fd = std::move(fd);
    connection.greet_by = now + kGreetTime;
    if (!known || (peer.uid != 0 && peer.uid != geteuid())) {
      Send(connection, Refusal(0, "only root and the shim's user may connect"));
    } else if (connections_.size() >= kMaxConnections) {
      Send(connection, Refusal(0, "the shim has too many connections"));
    } else {
      connections_.push_back(std::move(connection));
    }
  }
}

bool Server::OnReadable(Connection* connection) {
  static char buffer[task::kMaxShimMessage];
  // One message a turn: no peer keeps the loop from the others.
  std::vector<Fd> fds;
  const ssize_t n =
      ReceivePacket(connection->fd.get(), buffer, sizeof(buffer), &fds);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  ShimRequest request;
  std::string error;
  if (static_cast<size_t>(n) > sizeof(buffer)) {
    Send(*connection, Refusal(0, "the message is longer than 64 KiB"));
    return false;
  }
  if (!task::DecodeShimRequest(std::string_view(buffer, static_cast<size_t>(n)),
                               &request, &error)) {
    Send(*connection, Refusal(0, error));
    return false;
  }
  return Answer(connection, request, std::move(fds));
}

bool Server::Answer(Connection* connection, const ShimRequest& request,
                    std::vector<Fd> fds) {
  if (request.kind == ShimRequest::Kind::kHello) {
    if (!task::SameSecret(request.nonce, nonce_)) {
      Send(*connection, Refusal(request.id, "the nonce is not this shim's"));
      return false;
    }
    connection->greeted = true;
  } else if (!connection->greeted) {
    Send(*connection, Refusal(request.id, "the first message must be HELLO"));
    return false;
  }
  return Send(*connection, handler_(request, std::move(fds)));
}

bool Server::Send(const Connection& connection, const ShimReply& reply) {
  const std::string bytes = task::EncodeShimReply(reply);
  return send(connection.fd.get(), bytes.data(), bytes.size(),
              MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

void Server::Push(const ShimReply& reply) {
  std::erase_if(connections_, [&](const Connection& connection) {
    return connection.greeted && !Send(connection, reply);
  });
}

}  // namespace lockstep::worker::shim
