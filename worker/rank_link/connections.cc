#include "worker/rank_link/connections.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "common/base/logging.h"
#include "worker/rank_link/packet.h"

namespace lockstep::worker::rank_link {
namespace {

using std::chrono::seconds;

constexpr uint64_t kListenerId = 0;
constexpr uint64_t kTimerId = 1;
constexpr Duration kHelloTimeout = seconds(5);
constexpr size_t kMaxStrangers = 64;
// The same for users that run no rank here: they cannot crowd ranks out.
constexpr size_t kMaxForeigners = 8;
constexpr size_t kMaxQueuedMessages = 256;

}  // namespace

RankConnections::RankConnections(std::string path, Fd listener, Fd epoll)
    : path_(std::move(path)),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}

RankConnections::~RankConnections() { ::unlink(path_.c_str()); }

StatusOr<std::unique_ptr<RankConnections>> RankConnections::Listen(
    const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(Fd listener, ListenPackets(path));
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return ErrnoStatus(errno, "epoll_create1 for the rank link");
  std::unique_ptr<RankConnections> connections(
      new RankConnections(path, std::move(listener), std::move(epoll)));
  if (!connections->timer_) {
    return ErrnoStatus(errno, "timerfd for the rank link");
  }
  LOCKSTEP_RETURN_IF_ERROR(
      connections->Watch(connections->listener_.get(), kListenerId));
  LOCKSTEP_RETURN_IF_ERROR(
      connections->Watch(connections->timer_.get(), kTimerId));
  return connections;
}

Status RankConnections::Watch(int fd, uint64_t id) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) {
    return OkStatus();
  }
  return ErrnoStatus(errno, "epoll_ctl for the rank link");
}

RankConnection* RankConnections::Find(uint64_t id) const {
  auto it = connections_.find(id);
  return it == connections_.end() || it->second->closing ? nullptr
                                                         : it->second.get();
}

void RankConnections::Dispatch(const std::function<bool(uid_t)>& has_rank,
                               const std::function<void(uint64_t id)>& read) {
  epoll_event events[64];
  const int n = ::epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < n; ++i) {
    const uint64_t id = events[i].data.u64;
    if (id == kListenerId) {
      Accept(has_rank);
    } else if (id == kTimerId) {
      uint64_t ticks;
      (void)!::read(timer_.get(), &ticks, sizeof(ticks));
    } else {
      RankConnection* const c = Find(id);
      if (c != nullptr && (events[i].events & EPOLLOUT)) Flush(c);
      // A hang-up is found by reading, after what was sent before it.
      if (events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) read(id);
    }
  }
}

void RankConnections::Accept(const std::function<bool(uid_t)>& has_rank) {
  while (true) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr,
                    SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) {
        LOG_WARN("rank link {}: accept: {}", path_, std::strerror(errno));
      }
      return;
    }
    auto connection = std::make_unique<RankConnection>();
    socklen_t size = sizeof(connection->peer);
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &connection->peer,
                     &size) != 0 ||
        !HasRoomFor(connection->peer.uid, has_rank)) {
      continue;
    }
    connection->id = next_id_++;
    connection->hello_due = MonotonicNow() + kHelloTimeout;
    if (!Watch(fd.get(), connection->id).ok()) continue;
    connection->fd = std::move(fd);
    connections_[connection->id] = std::move(connection);
  }
}

bool RankConnections::HasRoomFor(
    uid_t uid, const std::function<bool(uid_t)>& has_rank) const {
  const bool foreign = !has_rank(uid);
  size_t waiting = 0;
  for (const auto& [id, c] : connections_) {
    if (!c->key && !c->closing && foreign == !has_rank(c->peer.uid)) ++waiting;
  }
  return waiting < (foreign ? kMaxForeigners : kMaxStrangers);
}

void RankConnections::Send(RankConnection* c, std::string packet) {
  c->out.push_back(std::move(packet));
  Flush(c);
  if (c->out.size() > kMaxQueuedMessages) {
    LOG_WARN("rank link: {} does not read: disconnecting it",
             c->key ? Describe(*c->key) : "a stranger");
    MarkForClose(c);
  }
}

void RankConnections::Flush(RankConnection* c) {
  while (!c->out.empty()) {
    const PacketResult result = SendPacket(c->fd.get(), c->out.front());
    if (result == PacketResult::kWouldBlock) break;
    if (result == PacketResult::kClosed) {
      // What the peer sent before it closed is read first, by Read.
      c->out.clear();
      break;
    }
    c->out.pop_front();
  }
  const bool wants_write = !c->out.empty();
  if (wants_write == c->wants_write) return;
  c->wants_write = wants_write;
  epoll_event event{};
  event.events = EPOLLIN | (wants_write ? EPOLLOUT : 0u);
  event.data.u64 = c->id;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, c->fd.get(), &event);
}

void RankConnections::MarkForClose(RankConnection* c) {
  c->closing = true;
  ArmIn(Duration(1));  // Sweep closes it.
}

void RankConnections::ArmIn(Duration in) {
  itimerspec when{};
  when.it_value.tv_sec = in / seconds(1);
  when.it_value.tv_nsec = (in % seconds(1)).count();
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

std::vector<std::unique_ptr<RankConnection>> RankConnections::Sweep() {
  std::vector<uint64_t> ended;
  const MonoTime now = MonotonicNow();
  for (const auto& [id, c] : connections_) {
    if (c->closing || (!c->key && c->hello_due <= now)) ended.push_back(id);
  }
  std::vector<std::unique_ptr<RankConnection>> taken;
  for (const uint64_t id : ended) {
    taken.push_back(std::move(connections_.extract(id).mapped()));
  }
  return taken;
}

void RankConnections::Arm() {
  // Connections marked meanwhile have armed the timer.
  std::optional<MonoTime> next;
  for (const auto& [id, c] : connections_) {
    if (c->closing) return;
    if (!c->key && (!next || c->hello_due < *next)) next = c->hello_due;
  }
  if (next) ArmIn(std::max(Duration(1), *next - MonotonicNow()));
}

}  // namespace lockstep::worker::rank_link
