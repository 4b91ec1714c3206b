#include "worker/agent/stream/probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep::worker::agent {
namespace {

constexpr Duration kLongest = std::chrono::seconds(2);
// A connection whose first packet is lost is tried by the kernel after a second
// only: so another is begun meanwhile.
constexpr int kTries = 3;
constexpr Duration kTryAgain = std::chrono::milliseconds(150);
constexpr int kAcceptedAtATime = 16;
constexpr int kBacklog = 64;

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&bytes);
  }
};

std::optional<SocketAddress> AddressOf(const std::string& ip, int port) {
  SocketAddress address;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.bytes);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.bytes);
  if (inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(*v4);
  } else if (inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(*v6);
  } else {
    return std::nullopt;
  }
  return address;
}

// One connection to a target.
struct Try {
  size_t target = 0;
  Fd fd;
};

// `error` of a connection that has been decided.
void Conclude(int error, ProbeResult* result) {
  if (result->reached) return;
  result->reached = error == 0 || error == ECONNREFUSED;
  result->error = result->reached ? "" : strerrordesc_np(error);
}

// The socket while the connection is not decided.
Fd Begin(const ProbeTarget& target, ProbeResult* result) {
  int error = 0;
  Fd fd = BeginConnection(target, &error);
  if (error == EINPROGRESS) return fd;
  if (error == EINVAL) {
    result->error = target.address + " is not an IP address";
  } else {
    Conclude(error, result);
  }
  return Fd();
}

// Waits for the connections that are under way; drops those that are decided.
void Await(Duration wait, std::vector<Try>* open_tries,
           std::vector<ProbeResult>* results) {
  std::vector<pollfd> open;
  for (const Try& one : *open_tries) {
    open.push_back({one.fd.get(), POLLOUT, 0});
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(std::max(wait, Duration{}));
  if (poll(open.data(), open.size(), static_cast<int>(left.count())) <= 0) {
    return;
  }
  for (size_t i = 0; i < open.size(); ++i) {
    if (open[i].revents == 0) continue;
    int error = 0;
    socklen_t size = sizeof(error);
    (void)getsockopt(open[i].fd, SOL_SOCKET, SO_ERROR, &error, &size);
    Conclude(error, &(*results)[(*open_tries)[i].target]);
    (*open_tries)[i].fd.Reset();
  }
  std::erase_if(*open_tries, [&](const Try& one) {
    return !one.fd || (*results)[one.target].reached;
  });
}

}  // namespace

Fd BeginConnection(const ProbeTarget& target, int* error) {
  const auto address = AddressOf(target.address, target.port);
  if (!address) {
    *error = EINVAL;
    return Fd();
  }
  Fd fd(socket(address->bytes.ss_family,
               SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  *error =
      fd && connect(fd.get(), address->get(), address->size) == 0 ? 0 : errno;
  if (*error != 0 && *error != EINPROGRESS) fd.Reset();
  return fd;
}

std::vector<ProbeResult> Probe(const std::vector<ProbeTarget>& targets,
                               Duration timeout) {
  const SystemClock clock;
  const MonoTime begun = clock.Now().mono;
  const MonoTime deadline = begun + std::min(timeout, kLongest);
  std::vector<ProbeResult> results;
  if (targets.empty()) return results;
  for (const ProbeTarget& target : targets) {
    results.push_back({target.node, false, ""});
  }
  std::vector<Try> open_tries;
  MonoTime next_try = begun;
  int tries = 0;
  for (MonoTime now = begun;; now = clock.Now().mono) {
    if (tries < kTries && now >= next_try && now < deadline) {
      ++tries;
      next_try = now + kTryAgain;
      for (size_t i = 0; i < targets.size(); ++i) {
        if (results[i].reached) continue;
        Try one{i, Begin(targets[i], &results[i])};
        if (one.fd) open_tries.push_back(std::move(one));
      }
    }
    const bool more = tries < kTries && next_try < deadline;
    if (open_tries.empty() && !more) break;
    // Check once more after the deadline: this thread may have been late, which
    // is not evidence against the host.
    Await((more ? next_try : deadline) - now, &open_tries, &results);
    if (std::all_of(results.begin(), results.end(),
                    [](const ProbeResult& result) { return result.reached; }) ||
        now >= deadline) {
      break;
    }
  }
  for (const Try& one : open_tries) {
    ProbeResult& result = results[one.target];
    if (result.error.empty()) Conclude(ETIMEDOUT, &result);
  }
  return results;
}

StatusOr<std::unique_ptr<ProbeListener>> ProbeListener::Listen(
    const std::string& address, int before) {
  if (before != 0) {
    if (auto listener = ListenOn(address, before); listener.ok()) {
      return listener;
    }
  }
  return ListenOn(address, 0);
}

StatusOr<std::unique_ptr<ProbeListener>> ProbeListener::ListenOn(
    const std::string& address, int wanted) {
  auto bound = AddressOf(address, wanted);
  if (!bound) return InvalidArgument("{} is not an IP address", address);
  Fd fd(socket(bound->bytes.ss_family,
               SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoStatus(errno, "a socket on " + address);
  const int reuse = wanted == 0 ? 0 : 1;
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
  if (bind(fd.get(), bound->get(), bound->size) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return ErrnoStatus(errno, "listening on " + address);
  }
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound->bytes),
                  &bound->size) != 0) {
    return ErrnoStatus(errno, "the port on " + address);
  }
  const int port =
      bound->bytes.ss_family == AF_INET
          ? ntohs(reinterpret_cast<sockaddr_in*>(&bound->bytes)->sin_port)
          : ntohs(reinterpret_cast<sockaddr_in6*>(&bound->bytes)->sin6_port);
  return std::unique_ptr<ProbeListener>(new ProbeListener(std::move(fd), port));
}

void ProbeListener::Dispatch(const std::function<void(Fd)>& take) {
  for (int i = 0; i < kAcceptedAtATime; ++i) {
    Fd taken(
        accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!taken) return;
    if (take) take(std::move(taken));
  }
}

}  // namespace lockstep::worker::agent
