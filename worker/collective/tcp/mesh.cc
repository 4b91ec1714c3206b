#include "worker/collective/tcp/mesh.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "worker/collective/lost_peers.h"
#include "worker/collective/tcp/ring.h"

namespace lockstep::worker::collective::tcp {
namespace {

// Bytes that are worth more than one connection.
constexpr size_t kSplitFrom = 2 * kSegment;

bool WouldBlock(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Mesh::Mesh(int rank, int size, std::vector<Connection> connections, bool spin)
    : rank_(rank),
      size_(size),
      links_(size, std::move(connections)),
      waiter_(&links_, spin) {}

void Mesh::Begin(const Operation& operation, MonoTime deadline,
                 Purpose purpose) {
  head_ = MakeHeader(operation, head_.sequence + 1, purpose);
  deadline_ = deadline;
  if (links_.wake_fd() >= 0) return;
  Fail(ResourceExhausted("no event descriptor was left"));
}

Link* Mesh::LinkTo(int peer, int stream) {
  Link* const link = links_.Find(peer, stream);
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
  error_ = links_.IsCut() ? Aborted("it was cut off") : std::move(error);
}

void Mesh::Lose(Link* link, int error) {
  Fail(ConnectionLost(link->peer, error));
}

bool Mesh::Send(Flow* flow) {
  if (flow->sent() || !error_.ok()) return false;
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
  if (flow->received() || !error_.ok()) return false;
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
  if (links_.IsCut()) Fail(OkStatus());
  if (!error_.ok()) return error_;
  const MonoTime now = MonotonicNow();
  waiter_.Begin(now, sends, receives);
  return waiter_.Spin(now) ? OkStatus() : Block(now, sends, receives);
}

Status Mesh::Block(MonoTime now, Flows sends, Flows receives) {
  if (now >= deadline_) {
    Fail(WithLostPeers(
        DeadlineExceeded("did not end before its deadline, waiting for rank {}",
                         waiter_.current_wait().rank),
        links_.Unanswering()));
    return error_;
  }
  if (!waiter_.Sleep(head_.sequence, deadline_ - now, sends, receives)) {
    return OkStatus();
  }
  if (links_.IsCut()) Fail(OkStatus());
  for (const auto& link : links_.all()) {
    const short seen = waiter_.seen(*link);
    if (link->reading || (seen & ~POLLOUT) == 0) continue;
    Inspect(link.get());
    // A peer that resets its connections has not come to the end of this
    // operation, whatever it sent before.
    if ((seen & POLLERR) != 0 && !link->left) Lose(link.get(), ECONNRESET);
    // Its end lies behind bytes for later, or behind a goodbye.
    if ((seen & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
      link->unwatched = head_.sequence;
    }
  }
  return error_;
}

Status Mesh::Exchange(Flow send, Flow receive) {
  if (links_.streams() > 1 &&
      std::max(send.bytes, receive.bytes) >= kSplitFrom) {
    return ExchangeAll({&send, 1}, {&receive, 1});
  }
  for (;;) {
    const bool sent = Send(&send);
    const bool received = Receive(&receive);
    if (send.sent() && receive.received() && error_.ok()) break;
    if (sent || received) {
      Resume();
      if (!links_.IsCut()) continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(Pause(send, receive));
  }
  Resume();
  return OkStatus();
}

// Nearly equal parts, in order, each by the next stream.
void Mesh::Split(const Flow& flow, std::vector<Flow>* parts) {
  if (flow.link == nullptr || flow.bytes < kSplitFrom ||
      links_.streams() == 1) {
    parts->push_back(flow);
    return;
  }
  const size_t count =
      std::min<size_t>(links_.streams(), flow.bytes / (kSplitFrom / 2));
  for (size_t i = 0; i < count; ++i) {
    const Range range = PieceOf({0, flow.bytes}, count, i);
    parts->push_back(From(flow.link->peer, flow.data + range.begin,
                          range.end - range.begin, static_cast<int>(i)));
  }
}

Status Mesh::ExchangeAll(std::span<const Flow> sends,
                         std::span<const Flow> receives) {
  std::vector<Flow> out;
  std::vector<Flow> in;
  for (const Flow& flow : sends) Split(flow, &out);
  for (const Flow& flow : receives) Split(flow, &in);
  std::vector<const Flow*> outs;
  std::vector<const Flow*> ins;
  for (const Flow& flow : out) outs.push_back(&flow);
  for (const Flow& flow : in) ins.push_back(&flow);
  for (;;) {
    bool moved = false;
    bool left = false;
    for (Flow& flow : out) {
      moved |= Send(&flow);
      left |= !flow.sent();
    }
    for (Flow& flow : in) {
      moved |= Receive(&flow);
      left |= !flow.received();
    }
    if (!left && error_.ok()) break;
    if (moved) {
      Resume();
      if (!links_.IsCut()) continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(Wait(outs, ins));
  }
  Resume();
  return OkStatus();
}

}  // namespace lockstep::worker::collective::tcp
