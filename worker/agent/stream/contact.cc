#include "worker/agent/stream/contact.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "common/model/names.h"
#include "worker/agent/stream/probe.h"

namespace lockstep::worker::agent {
namespace {

constexpr std::string_view kGreeting = "lockstep contact 1 ";
// Greeting, name and newline, with room.
constexpr size_t kMostText = 128;
constexpr size_t kMostConnections = 64;
constexpr Duration kAskTime = std::chrono::seconds(2);
constexpr size_t kMostRemembered = 20'000;

std::string LineOf(const NodeName& node) {
  return std::string(kGreeting) + node + "\n";
}

// A neighbour that is being asked.
struct Asked {
  Fd fd;
  NodeName node;
  bool sent = false;
  std::string text;
};

// Goes on with what is ready; closes what is over. Returns true for an answer.
bool GoOn(const std::string& question, Asked* asked) {
  if (!asked->sent) {
    int error = 0;
    socklen_t size = sizeof(error);
    (void)getsockopt(asked->fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    asked->sent = error == 0 &&
                  send(asked->fd.get(), question.data(), question.size(),
                       MSG_NOSIGNAL) == static_cast<ssize_t>(question.size());
    if (!asked->sent) asked->fd.Reset();
    return false;
  }
  char buffer[kMostText];
  const ssize_t n = recv(asked->fd.get(), buffer, sizeof(buffer), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n > 0) asked->text.append(buffer, static_cast<size_t>(n));
  if (asked->text == LineOf(asked->node)) return true;
  if (n <= 0 || asked->text.size() > kMostText) asked->fd.Reset();
  return false;
}

}  // namespace

bool AskNeighbours(const NodeName& self,
                   const std::vector<ProbeTarget>& targets, Duration timeout) {
  const MonoTime deadline = MonotonicNow() + timeout;
  const std::string question = LineOf(self);
  std::vector<Asked> open;
  for (const ProbeTarget& target : targets) {
    int error = 0;
    Asked asked{BeginConnection(target, &error), target.node, false, {}};
    if (asked.fd) open.push_back(std::move(asked));
  }
  while (!open.empty()) {
    std::vector<pollfd> fds;
    for (const Asked& asked : open) {
      fds.push_back({asked.fd.get(),
                     static_cast<short>(asked.sent ? POLLIN : POLLOUT), 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(deadline - MonotonicNow(), Duration{}));
    const int ready =
        poll(fds.data(), fds.size(), static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents != 0 && GoOn(question, &open[i])) return true;
    }
    std::erase_if(open, [](const Asked& asked) { return !asked.fd; });
  }
  return false;
}

ContactServer::ContactServer(NodeName self, EventLoop* loop)
    : self_(std::move(self)), loop_(loop), since_(loop->Now().mono) {}

ContactServer::~ContactServer() {
  for (const auto& [fd, connection] : open_) loop_->Unwatch(fd);
}

void ContactServer::Take(Fd connection) {
  if (open_.size() >= kMostConnections) {
    // The oldest has had its time. Numbers of timers rise.
    const auto oldest = std::min_element(
        open_.begin(), open_.end(), [](const auto& a, const auto& b) {
          return a.second.timer < b.second.timer;
        });
    Close(oldest->first);
  }
  const int fd = connection.get();
  if (!loop_->Watch(fd, [this, fd] { OnReadable(fd); }).ok()) return;
  Connection& taken = open_[fd];
  taken.fd = std::move(connection);
  taken.timer = loop_->At(loop_->Now().mono + kAskTime,
                          lifetime_.Guard([this, fd] { Close(fd); }));
}

void ContactServer::OnReadable(int fd) {
  const auto it = open_.find(fd);
  if (it == open_.end()) return;
  char buffer[kMostText];
  const ssize_t n = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  std::string& text = it->second.text;
  if (n > 0) text.append(buffer, static_cast<size_t>(n));
  if (n > 0 && text.size() <= kMostText && !text.ends_with('\n')) return;
  std::string_view name = text;
  if (name.starts_with(kGreeting) && name.ends_with('\n')) {
    name.remove_prefix(kGreeting.size());
    name.remove_suffix(1);
    if (IsNodeName(name)) Answer(NodeName(name), fd);
  }
  Close(fd);
}

void ContactServer::Answer(const NodeName& node, int fd) {
  if (answered_.size() >= kMostRemembered) {
    // What is forgotten must not count as quiet.
    answered_.clear();
    since_ = loop_->Now().mono;
  }
  // First: what is answered is remembered.
  answered_[node] = loop_->Now().mono;
  const std::string line = LineOf(self_);
  (void)!send(fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ContactServer::Close(int fd) {
  const auto it = open_.find(fd);
  if (it == open_.end()) return;
  loop_->CancelTimer(it->second.timer);
  loop_->Unwatch(fd);
  open_.erase(it);
}

Duration ContactServer::QuietOf(const NodeName& node) const {
  const auto it = answered_.find(node);
  return loop_->Now().mono -
         (it == answered_.end() ? since_ : std::max(since_, it->second));
}

}  // namespace lockstep::worker::agent
