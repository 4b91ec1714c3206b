#include "worker/collective/tcp/links.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "worker/collective/sockets.h"

namespace lockstep::worker::collective::tcp {
namespace {

// A host that answers none of so many retransmissions, which take more than a
// second, is not reached. The host of a frozen process answers.
constexpr int kUnansweredRepeats = 3;

bool IsUnanswered(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
         info.tcpi_state == TCP_ESTABLISHED && info.tcpi_unacked > 0 &&
         info.tcpi_retransmits >= kUnansweredRepeats;
}

// Reads and drops what has arrived: a socket that is closed with unread bytes
// takes back what its peer has not received.
void Drain(int fd) {
  char unused[4096];
  for (int i = 0; i < 64; ++i) {
    if (recv(fd, unused, sizeof(unused), MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace

Links::Links(int size, std::vector<Connection> connections)
    : position_of_(size, -1), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (const Connection& connection : connections) {
    if (connection.stream > 0) continue;
    position_of_[connection.peer] = static_cast<int>(routes_.size());
    routes_.emplace_back();
  }
  Add(std::move(connections));
}

Links::~Links() {
  if (IsCut()) return;
  const Header goodbye = MakeGoodbye();
  for (const auto& link : links_) {
    Drain(link->fd.get());
    (void)send(link->fd.get(), &goodbye, sizeof(goodbye),
               MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

void Links::Add(std::vector<Connection> connections) {
  MutexLock lock(&mu_);
  // CloseOthers takes them from the end.
  std::stable_sort(connections.begin(), connections.end(),
                   [](const Connection& a, const Connection& b) {
                     return a.stream < b.stream;
                   });
  for (Connection& connection : connections) Take(std::move(connection));
}

void Links::Take(Connection connection) {
  auto link = std::make_unique<Link>();
  link->peer = connection.peer;
  link->stream = connection.stream;
  link->fd = std::move(connection.fd);
  link->index = links_.size();
  link->position = position_of_[link->peer];
  // A later Cut finds it among the others.
  if (IsCut()) ResetConnection(link->fd.get());
  routes_[link->position][link->stream] = link.get();
  links_.push_back(std::move(link));
}

void Links::UseStreams(int streams) {
  streams_ = streams;
  if (routes_.empty()) return;
  while (routes_[0][streams_ - 1] == nullptr) --streams_;
}

void Links::CloseOthers() {
  MutexLock lock(&mu_);
  while (links_.back()->stream >= streams_) {
    const Link& link = *links_.back();
    routes_[link.position][link.stream] = nullptr;
    links_.pop_back();
  }
}

std::vector<int> Links::Unanswering() {
  MutexLock lock(&mu_);
  std::vector<int> peers;
  for (const auto& link : links_) {
    const bool known =
        std::find(peers.begin(), peers.end(), link->peer) != peers.end();
    if (!known && IsUnanswered(link->fd.get())) peers.push_back(link->peer);
  }
  return peers;
}

void Links::Cut() {
  if (cut_.exchange(true)) return;
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  MutexLock lock(&mu_);
  for (const auto& link : links_) ResetConnection(link->fd.get());
}

}  // namespace lockstep::worker::collective::tcp
