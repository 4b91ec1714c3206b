#include "worker/collective/tcp/mesh.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "worker/collective/lost_peers.h"
#include "worker/collective/sockets.h"
#include "worker/collective/tcp/ring.h"

namespace lockstep::tcp {
namespace {

// Longer than a peer's change of threads, shorter than a sleep is worth.
constexpr Duration kSpin = std::chrono::microseconds(200);

// Bytes that are worth more than one connection.
constexpr size_t kSplitFrom = 2 * kSegment;

// Some hundred nanoseconds without a system call: each locks the socket that
// the peer's bytes are to come to.
void Relax() {
#if defined(__x86_64__)
  for (int i = 0; i < 20; ++i) __builtin_ia32_pause();
#endif
}

// A host that has not answered what was sent again so often, for more than a
// second, is not reached. That of a frozen process answers.
constexpr int kUnansweredRepeats = 3;

bool IsUnanswered(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
         info.tcpi_state == TCP_ESTABLISHED && info.tcpi_unacked > 0 &&
         info.tcpi_retransmits >= kUnansweredRepeats;
}

// Half of what both clocks cost.
bool WouldBlock(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// What came and will not be used: a socket that is closed with bytes unread
// takes back what its peer has not received.
void Drain(int fd) {
  char unused[4096];
  for (int i = 0; i < 64; ++i) {
    if (recv(fd, unused, sizeof(unused), MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace

Mesh::Mesh(int rank, int size, std::vector<Connection> connections, bool spin)
    : rank_(rank),
      size_(size),
      spin_(spin),
      position_of_(size, -1),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (const Connection& connection : connections) {
    if (connection.stream > 0) continue;
    position_of_[connection.peer] = static_cast<int>(routes_.size());
    routes_.emplace_back();
  }
  AddConnections(std::move(connections));
}

Mesh::~Mesh() {
  if (IsCut()) return;
  const Header goodbye = MakeGoodbye();
  for (const auto& link : links_) {
    Drain(link->fd.get());
    (void)send(link->fd.get(), &goodbye, sizeof(goodbye),
               MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

void Mesh::AddConnections(std::vector<Connection> connections) {
  MutexLock lock(&mu_);
  // CloseOthers takes them from the end.
  std::stable_sort(connections.begin(), connections.end(),
                   [](const Connection& a, const Connection& b) {
                     return a.stream < b.stream;
                   });
  for (Connection& connection : connections) Take(std::move(connection));
  polls_.assign(links_.size() + 1, pollfd{-1, 0, 0});
  polls_.back() = {.fd = wake_.get(), .events = POLLIN, .revents = 0};
}

void Mesh::Take(Connection connection) {
  auto link = std::make_unique<Link>();
  link->peer = connection.peer;
  link->stream = connection.stream;
  link->fd = std::move(connection.fd);
  link->index = links_.size();
  link->position = position_of_[link->peer];
  // Who cuts from now on finds it among the others.
  if (IsCut()) ResetConnection(link->fd.get());
  routes_[link->position][link->stream] = link.get();
  links_.push_back(std::move(link));
}

void Mesh::UseStreams(int streams) {
  streams_ = streams;
  if (routes_.empty()) return;
  while (routes_[0][streams_ - 1] == nullptr) --streams_;
}

void Mesh::CloseOthers() {
  MutexLock lock(&mu_);
  while (links_.back()->stream >= streams_) {
    const Link& link = *links_.back();
    routes_[link.position][link.stream] = nullptr;
    links_.pop_back();
  }
  polls_.erase(polls_.begin() + links_.size(), polls_.end() - 1);
}

void Mesh::Begin(const Operation& operation, MonoTime deadline,
                 Purpose purpose) {
  head_ = MakeHeader(operation, head_.sequence + 1, purpose);
  deadline_ = deadline;
  if (!wake_) Fail(ResourceExhausted("no event descriptor was left"));
}

Link* Mesh::LinkTo(int peer, int stream) {
  Link* const link = routes_[position_of_[peer]][stream];
  if (link->sequence != head_.sequence) {
    link->sequence = head_.sequence;
    link->head_out = 0;
    link->head_in = 0;
  }
  return link;
}

Flow Mesh::To(int peer, const void* data, size_t bytes, int stream) {
  // Only sendmsg gets it.
  auto* const start = static_cast<char*>(const_cast<void*>(data));
  return {LinkTo(peer, stream), start, bytes, 0};
}

Flow Mesh::From(int peer, void* data, size_t bytes, int stream) {
  return {LinkTo(peer, stream), static_cast<char*>(data), bytes, 0};
}

void Mesh::Fail(Status error) {
  if (!error_.ok()) return;
  error_ = IsCut() ? Aborted("it was cut off") : std::move(error);
}

void Mesh::Lose(Link* link, int error) {
  Fail(ConnectionLost(link->peer, error));
}

bool Mesh::Send(Flow* flow) {
  if (Sent(*flow) || !error_.ok()) return false;
  Link* const link = flow->link;
  iovec parts[2];
  size_t count = 0;
  if (link->head_out < sizeof(Header)) {
    parts[count++] = {reinterpret_cast<char*>(&head_) + link->head_out,
                      sizeof(Header) - link->head_out};
  }
  if (flow->done < flow->bytes) {
    parts[count++] = {flow->data + flow->done,
                      std::min(flow->bytes - flow->done, kMostSent)};
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t sent =
      sendmsg(link->fd.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    if (WouldBlock(errno)) return false;
    const int error = errno;
    // The peer may have refused this operation, and said by its own why.
    Inspect(link, error);
    Lose(link, error);
    return false;
  }
  const size_t head = std::min<size_t>(sent, sizeof(Header) - link->head_out);
  link->head_out += head;
  flow->done += sent - head;
  return true;
}

bool Mesh::Receive(Flow* flow) {
  if (Received(*flow) || !error_.ok()) return false;
  Link* const link = flow->link;
  const bool has_head = link->head_in == sizeof(Header);
  iovec parts[2];
  size_t count = 0;
  if (!has_head) {
    parts[count++] = {reinterpret_cast<char*>(&link->head) + link->head_in,
                      sizeof(Header) - link->head_in};
  }
  if (flow->done < flow->bytes) {
    parts[count++] = {flow->data + flow->done,
                      std::min(flow->bytes - flow->done, kMostReceived)};
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t received = recvmsg(link->fd.get(), &message, MSG_DONTWAIT);
  if (received <= 0) {
    if (received < 0 && WouldBlock(errno)) return false;
    Lose(link, received == 0 ? 0 : errno);
    return false;
  }
  const size_t head =
      std::min<size_t>(received, sizeof(Header) - link->head_in);
  link->head_in += head;
  flow->done += received - head;
  if (!has_head && link->head_in == sizeof(Header)) CheckHead(link);
  return true;
}

void Mesh::CheckHead(Link* link) {
  if (link->head == head_) return;
  if (IsGoodbye(link->head)) {
    link->left = true;
    Fail(Unavailable("rank {} has left", link->peer));
  } else if (!IsHeader(link->head)) {
    Fail(Unavailable("rank {} sent bytes of another protocol", link->peer));
  } else {
    FindMismatch(link, link->head);
  }
}

bool Mesh::FindMismatch(Link* link, const Header& head) {
  if (head == head_) return false;
  Fail(FailedPrecondition(
      "the ranks do not run the same operations: rank {} runs {}, and rank {} "
      "{}",
      rank_, Describe(head_), link->peer, Describe(head)));
  return true;
}

// Looks, without taking it, at what came on a connection that nobody reads
// now. `error`: what a call on it has returned, which no other call returns
// again.
void Mesh::Inspect(Link* link, int error) {
  Header head;
  const ssize_t size =
      recv(link->fd.get(), &head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
  if (size == 0 || (size < 0 && !WouldBlock(errno))) {
    return Lose(link, size == 0 ? error : errno);
  }
  if (size < 0) return;
  link->quiet = head_.sequence;
  const bool at_head = link->sequence != head_.sequence || link->head_in == 0;
  if (!at_head || size < static_cast<ssize_t>(sizeof(head))) return;
  if (IsGoodbye(head)) {
    link->left = true;
  } else if (IsHeader(head) && head.sequence == head_.sequence) {
    FindMismatch(link, head);
  }
}

Status Mesh::Pause(const Flow& send, const Flow& receive, const Flow& send2,
                   const Flow& receive2) {
  const Flow* const sends[] = {&send, &send2};
  const Flow* const receives[] = {&receive, &receive2};
  return Wait(sends, receives);
}

Status Mesh::Wait(Flows sends, Flows receives) {
  if (IsCut()) Fail(OkStatus());
  if (!error_.ok()) return error_;
  const MonoTime now = MonotonicNow();
  if (!paused_) BeginPause(now, sends, receives);
  if (spin_ && now - paused_at_ < kSpin &&
      awaited_.load(std::memory_order_relaxed)) {
    Relax();
    return OkStatus();
  }
  return Block(now, sends, receives);
}

// Whom it waits for: one whose header has not come is late, if there is one.
void Mesh::BeginPause(MonoTime now, Flows sends, Flows receives) {
  paused_ = true;
  paused_at_ = now;
  const Link* peer = nullptr;
  const Link* late = nullptr;
  for (const Flow* flow : receives) {
    if (Received(*flow)) continue;
    if (peer == nullptr) peer = flow->link;
    if (late == nullptr && flow->link->head_in < sizeof(Header)) {
      late = flow->link;
    }
  }
  if (late != nullptr) peer = late;
  for (size_t i = 0; peer == nullptr && i < sends.size(); ++i) {
    if (!Sent(*sends[i])) peer = sends[i]->link;
  }
  waiting_for_.store(peer == nullptr ? -1 : peer->peer,
                     std::memory_order_relaxed);
}

void Mesh::EndPause() {
  paused_ = false;
  waiting_for_.store(-1, std::memory_order_relaxed);
}

void Mesh::SetPolls(Flows sends, Flows receives) {
  for (const auto& link : links_) {
    link->reading = false;
    pollfd& poll = polls_[link->index];
    const bool watched =
        link->stream == 0 && !link->left && link->unwatched != head_.sequence;
    poll.events = watched ? POLLRDHUP : 0;
    poll.revents = 0;
    const bool at_head = link->sequence != head_.sequence || link->head_in == 0;
    if (watched && at_head && link->quiet != head_.sequence) {
      poll.events |= POLLIN;
    }
    // The kernel reports errors of any socket that it is given.
    poll.fd = watched ? link->fd.get() : -1;
  }
  const auto add = [&](const Link& link, short event) {
    pollfd& poll = polls_[link.index];
    poll.fd = link.fd.get();
    poll.events |= event;
  };
  for (const Flow* flow : sends) {
    if (!Sent(*flow)) add(*flow->link, POLLOUT);
  }
  for (const Flow* flow : receives) {
    if (Received(*flow)) continue;
    add(*flow->link, POLLIN);
    flow->link->reading = true;
  }
}

Status Mesh::Block(MonoTime now, Flows sends, Flows receives) {
  if (now >= deadline_) {
    Fail(WithLostPeers(
        DeadlineExceeded("did not end before its deadline, waiting for rank {}",
                         waiting_for_.load(std::memory_order_relaxed)),
        Unanswering()));
    return error_;
  }
  SetPolls(sends, receives);
  const Duration left = deadline_ - now;
  const timespec timeout = {
      .tv_sec = left / std::chrono::seconds(1),
      .tv_nsec = (left % std::chrono::seconds(1)).count()};
  if (ppoll(polls_.data(), polls_.size(), &timeout, nullptr) <= 0) {
    return OkStatus();
  }
  if (IsCut()) Fail(OkStatus());
  for (const auto& link : links_) {
    const short seen = polls_[link->index].revents;
    if (link->reading || (seen & ~POLLOUT) == 0) continue;
    Inspect(link.get());
    // Its end lies behind bytes for later, or behind a goodbye.
    if ((seen & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
      link->unwatched = head_.sequence;
    }
  }
  return error_;
}

Status Mesh::Exchange(Flow send, Flow receive) {
  if (streams_ > 1 && std::max(send.bytes, receive.bytes) >= kSplitFrom) {
    return ExchangeSplit(send, receive);
  }
  for (;;) {
    const bool sent = Send(&send);
    const bool received = Receive(&receive);
    if (Sent(send) && Received(receive) && error_.ok()) break;
    if (sent || received) {
      Resume();
      if (!IsCut()) continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(Pause(send, receive));
  }
  Resume();
  return OkStatus();
}

// Nearly equal parts, in order, each by the next stream.
size_t Mesh::Split(const Flow& flow, Flow* parts) {
  if (flow.link == nullptr || flow.bytes < kSplitFrom) {
    parts[0] = flow;
    return 1;
  }
  const size_t count =
      std::min<size_t>(streams_, flow.bytes / (kSplitFrom / 2));
  for (size_t i = 0; i < count; ++i) {
    const Range range = PieceOf({0, flow.bytes}, count, i);
    parts[i] = From(flow.link->peer, flow.data + range.begin,
                    range.end - range.begin, static_cast<int>(i));
  }
  return count;
}

Status Mesh::ExchangeSplit(const Flow& send, const Flow& receive) {
  Flow out[kMaxStreams];
  Flow in[kMaxStreams];
  const Flow* outs[kMaxStreams];
  const Flow* ins[kMaxStreams];
  const size_t out_count = Split(send, out);
  const size_t in_count = Split(receive, in);
  for (size_t i = 0; i < kMaxStreams; ++i) {
    outs[i] = &out[i];
    ins[i] = &in[i];
  }
  for (;;) {
    bool moved = false;
    bool left = false;
    for (size_t i = 0; i < out_count; ++i) {
      moved |= Send(&out[i]);
      left |= !Sent(out[i]);
    }
    for (size_t i = 0; i < in_count; ++i) {
      moved |= Receive(&in[i]);
      left |= !Received(in[i]);
    }
    if (!left && error_.ok()) break;
    if (moved) {
      Resume();
      if (!IsCut()) continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(Wait({outs, out_count}, {ins, in_count}));
  }
  Resume();
  return OkStatus();
}

std::vector<int> Mesh::Unanswering() {
  MutexLock lock(&mu_);
  std::vector<int> peers;
  for (const auto& link : links_) {
    const bool known =
        std::find(peers.begin(), peers.end(), link->peer) != peers.end();
    if (!known && IsUnanswered(link->fd.get())) peers.push_back(link->peer);
  }
  return peers;
}

void Mesh::Cut() {
  if (cut_.exchange(true)) return;
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  MutexLock lock(&mu_);
  for (const auto& link : links_) ResetConnection(link->fd.get());
}

}  // namespace lockstep::tcp
