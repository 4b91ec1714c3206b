#include "worker/evidence/nccl_ras.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "common/base/fd.h"
#include "common/base/host_port.h"
#include "worker/evidence/text.h"

namespace lockstep::worker::evidence {
namespace {

constexpr std::string_view kDefaultPort = "28028";
constexpr size_t kMostAnswer = 256 << 10;
// What remains for the answer on its way.
constexpr Duration kMargin = std::chrono::milliseconds(500);

// The value of a variable in the bytes of /proc/PID/environ.
std::optional<std::string_view> VariableOf(std::string_view environment,
                                        std::string_view name) {
  while (!environment.empty()) {
    const std::string_view entry =
        environment.substr(0, environment.find('\0'));
    if (entry.size() > name.size() && entry.starts_with(name) &&
        entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
    environment.remove_prefix(std::min(entry.size() + 1, environment.size()));
  }
  return std::nullopt;
}

// Waits until `fd` may be read or written.
Status Await(int fd, short events, MonoTime deadline) {
  for (;;) {
    const Duration left = deadline - MonotonicNow();
    if (left <= Duration{}) return DeadlineExceeded("it did not answer");
    pollfd wait{fd, events, 0};
    const auto milliseconds =
        std::chrono::ceil<std::chrono::milliseconds>(left).count();
    const int ready = poll(&wait, 1, static_cast<int>(milliseconds));
    if (ready > 0) return OkStatus();
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "waiting");
  }
}

StatusOr<Fd> Connect(const std::string& address, MonoTime deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints,
                  &found) != 0) {
    return InvalidArgument("{} is no address", address);
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> peer(found,
                                                            &freeaddrinfo);
  Fd fd(socket(peer->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoStatus(errno, "a socket");
  if (connect(fd.get(), peer->ai_addr, peer->ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    return ErrnoStatus(errno, "connecting to " + address);
  }
  LOCKSTEP_RETURN_IF_ERROR(Await(fd.get(), POLLOUT, deadline));
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return ErrnoStatus(error, "connecting to " + address);
  return fd;
}

Status ReadAll(int fd, MonoTime deadline, std::string* text) {
  char buffer[4096];
  while (text->size() < kMostAnswer) {
    LOCKSTEP_RETURN_IF_ERROR(Await(fd, POLLIN, deadline));
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count == 0) return OkStatus();
    if (count > 0) {
      text->append(buffer, static_cast<size_t>(count));
    } else if (errno != EAGAIN && errno != EINTR) {
      return ErrnoStatus(errno, "reading");
    }
  }
  return OkStatus();
}

std::vector<std::string> LinesOf(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() < kMaxEvidenceLines) {
    const std::string_view line = text.substr(0, text.find('\n'));
    // "OK" answers the first command.
    if (!line.empty() && line != "OK") {
      lines.push_back(ShortText(line, kMaxEvidenceText));
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::optional<std::string> RasAddressOf(
    std::string_view environment, const std::vector<SocketEvidence>& sockets) {
  if (VariableOf(environment, "NCCL_RAS_ENABLE") == "0") return std::nullopt;
  std::string_view port = kDefaultPort;
  if (const auto given = VariableOf(environment, "NCCL_RAS_ADDR")) {
    port = given->substr(std::min(given->rfind(':'), given->size() - 1) + 1);
  }
  for (const SocketEvidence& socket : sockets) {
    if (socket.state != "LISTEN") continue;
    const auto at = ParseHostPort(socket.local);
    if (!at.ok() || std::to_string(at->port) != port) continue;
    if (at->host == "0.0.0.0") return FormatHostPort({"127.0.0.1", at->port});
    if (at->host == "::") return FormatHostPort({"::1", at->port});
    return socket.local;
  }
  return std::nullopt;
}

StatusOr<std::vector<std::string>> AskNcclRas(const std::string& address,
                                              MonoTime deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Fd fd, Connect(address, deadline));
  const auto seconds = std::chrono::floor<std::chrono::seconds>(
      deadline - MonotonicNow() - kMargin);
  const std::string question = fmt::format(
      "TIMEOUT {}\nVERBOSE STATUS\n", std::max<int64_t>(1, seconds.count()));
  if (send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(question.size())) {
    return ErrnoStatus(errno, "asking " + address);
  }
  std::string text;
  const Status read = ReadAll(fd.get(), deadline, &text);
  // A part of the answer is better than none.
  if (!read.ok() && text.empty()) return read;
  return LinesOf(text);
}

}  // namespace lockstep::worker::evidence
