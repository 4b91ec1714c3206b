#include "common/os/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace lockstep {
namespace {

// Removes a variable from the environment and returns its value, or "".
std::string Take(const char* name) {
  const char* value = getenv(name);
  const std::string text = value == nullptr ? "" : value;
  unsetenv(name);
  return text;
}

// Returns 0 if `text` is not a number.
int64_t Number(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

// Returns "" if it is not the address of a Unix socket.
std::string AddressOf(const std::string& socket) {
  sockaddr_un address{};
  if (socket.size() < 2 || (socket[0] != '/' && socket[0] != '@') ||
      socket.size() >= sizeof(address.sun_path)) {
    return "";
  }
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, socket.data(), socket.size());
  if (socket[0] == '@') address.sun_path[0] = '\0';
  // An abstract name uses all its bytes; a path ends with a zero.
  const size_t size = offsetof(sockaddr_un, sun_path) + socket.size() +
                      (socket[0] == '@' ? 0 : 1);
  return std::string(reinterpret_cast<const char*>(&address), size);
}

}  // namespace

Notifier Notifier::FromEnvironment() {
  const std::string socket = Take("NOTIFY_SOCKET");
  const std::string pid = Take("WATCHDOG_PID");
  const int64_t usec = Number(Take("WATCHDOG_USEC"));
  const bool ours = pid.empty() || Number(pid) == getpid();
  // One day, the longest useful watchdog time.
  constexpr int64_t kMost = int64_t{86'400} * 1'000'000;
  return Notifier(socket, ours && usec > 0
                              ? std::chrono::microseconds(std::min(usec, kMost))
                              : Duration{});
}

Notifier::Notifier(const std::string& socket, Duration watchdog)
    : address_(AddressOf(socket)), watchdog_(watchdog) {
  if (address_.empty()) return;
  socket_.Reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                         /*protocol=*/0));
}

bool Notifier::Send(std::string_view text) const {
  return !socket_ ||
         sendto(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL,
                reinterpret_cast<const sockaddr*>(address_.data()),
                static_cast<socklen_t>(address_.size())) >= 0;
}

void Notifier::Ready(MonoTime now) {
  ready_ = true;
  last_ping_ = now;
  said_ready_ = Send("READY=1");
}

void Notifier::SetStatus(std::string_view line) {
  std::string clean(line.substr(0, 1024));
  std::replace(clean.begin(), clean.end(), '\n', ' ');
  if (clean == status_) return;
  // Retried later if the socket is full.
  if (Send("STATUS=" + clean)) status_ = std::move(clean);
}

void Notifier::Stopping() { Send("STOPPING=1"); }

void Notifier::Turn(MonoTime now) {
  if (ready_ && !said_ready_) said_ready_ = Send("READY=1");
  if (!ready_ || watchdog_ <= Duration{} || now - last_ping_ < watchdog_ / 3) {
    return;
  }
  last_ping_ = now;
  Send("WATCHDOG=1");
}

Duration Notifier::longest_turn() const {
  return watchdog_ <= Duration{} ? Duration::max() : watchdog_ / 4;
}

}  // namespace lockstep
