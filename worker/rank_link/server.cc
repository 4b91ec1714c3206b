#include "worker/rank_link/server.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "worker/rank_link/packet.h"
#include "worker/rank_link/text.h"
#include "worker/task/same_secret.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

constexpr uint64_t kListenerId = 0;
constexpr uint64_t kTimerId = 1;
constexpr Duration kHelloTimeout = seconds(5);
constexpr size_t kMaxStrangers = 64;
// Of these, such of users that no rank here is of: they cannot crowd ranks
// out.
constexpr size_t kMaxForeigners = 8;
constexpr size_t kMaxQueuedDirectives = 256;
// So that one chatty rank does not starve the others.
constexpr int kPacketsPerTurn = 64;

bool IsRendezvousKey(const std::string& key) {
  return !key.empty() && key.size() <= kMaxRendezvousKey;
}

}  // namespace

struct RankLinkServer::Connection {
  uint64_t id = 0;
  Fd fd;
  ucred peer{};
  MonoTime hello_due;
  // Set by a Hello that was accepted.
  std::optional<RankKey> key;
  std::deque<std::string> out;
  bool wants_write = false;
  // To be closed by the next Dispatch.
  bool closing = false;
};

struct RankLinkServer::Expected {
  std::string nonce;
  uid_t uid = 0;
  v1::RankWelcome welcome;
  uint64_t connection = 0;  // 0: none.
  bool go = false;
  std::optional<v1::RankAbort> abort;
  std::optional<v1::RankDirective> directive;
};

StatusOr<std::unique_ptr<RankLinkServer>> RankLinkServer::Listen(
    const std::string& path, RankLinkHandler* handler) {
  LOCKSTEP_ASSIGN_OR_RETURN(Fd listener, ListenPackets(path));
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return ErrnoStatus(errno, "epoll_create1 for the rank link");
  std::unique_ptr<RankLinkServer> server(
      new RankLinkServer(path, handler, std::move(listener), std::move(epoll)));
  if (!server->timer_) return ErrnoStatus(errno, "timerfd for the rank link");
  for (auto [fd, id] : {std::pair(server->listener_.get(), kListenerId),
                        std::pair(server->timer_.get(), kTimerId)}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(server->epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return ErrnoStatus(errno, "epoll_ctl for the rank link");
    }
  }
  return server;
}

RankLinkServer::RankLinkServer(std::string path, RankLinkHandler* handler,
                               Fd listener, Fd epoll)
    : path_(std::move(path)),
      handler_(handler),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}

RankLinkServer::~RankLinkServer() { ::unlink(path_.c_str()); }

RankLinkServer::Connection* RankLinkServer::Find(uint64_t id) {
  auto it = connections_.find(id);
  return it == connections_.end() || it->second->closing ? nullptr
                                                         : it->second.get();
}

void RankLinkServer::Dispatch() {
  epoll_event events[64];
  const int n = ::epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < n; ++i) {
    const uint64_t id = events[i].data.u64;
    if (id == kListenerId) {
      Accept();
    } else if (id == kTimerId) {
      uint64_t ticks;
      (void)!::read(timer_.get(), &ticks, sizeof(ticks));
    } else {
      if (Connection* c = Find(id); c && (events[i].events & EPOLLOUT)) {
        Flush(c);
      }
      // A hang-up is found by reading, after what was sent before it.
      if (events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) Read(id);
    }
  }
  Sweep();
}

void RankLinkServer::Poll(Duration timeout) {
  pollfd waited{epoll_.get(), POLLIN, 0};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(timeout);
  ::poll(&waited, 1, static_cast<int>(std::max<int64_t>(0, ms.count())));
  Dispatch();
}

void RankLinkServer::Accept() {
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
    auto connection = std::make_unique<Connection>();
    socklen_t size = sizeof(connection->peer);
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &connection->peer,
                     &size) != 0 ||
        !HasRoomFor(connection->peer.uid)) {
      continue;
    }
    connection->id = next_id_++;
    connection->hello_due = MonotonicNow() + kHelloTimeout;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = connection->id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) {
      continue;
    }
    connection->fd = std::move(fd);
    connections_[connection->id] = std::move(connection);
  }
}

bool RankLinkServer::HasRoomFor(uid_t uid) const {
  const auto has_rank = [&](uid_t user) {
    return std::any_of(expected_.begin(), expected_.end(),
                       [&](const auto& e) { return e.second->uid == user; });
  };
  const bool foreign = !has_rank(uid);
  size_t waiting = 0;
  for (const auto& [id, c] : connections_) {
    if (!c->key && !c->closing && foreign == !has_rank(c->peer.uid)) ++waiting;
  }
  return waiting < (foreign ? kMaxForeigners : kMaxStrangers);
}

void RankLinkServer::Read(uint64_t id) {
  std::string packet;
  for (int i = 0; i < kPacketsPerTurn; ++i) {
    Connection* c = Find(id);
    if (c == nullptr) return;
    const PacketResult result = ReceivePacket(c->fd.get(), &packet);
    if (result == PacketResult::kWouldBlock) return;
    v1::RankMessage message;
    if (result == PacketResult::kDone && message.ParseFromString(packet) &&
        OnMessage(c, message)) {
      continue;
    }
    // The handler may have forgotten the rank.
    c = Find(id);
    if (c == nullptr) return;
    if (result != PacketResult::kClosed) {
      LOG_WARN("rank link: a bad packet from pid {} uid {}{}", c->peer.pid,
               c->peer.uid, c->key ? ", " + Describe(*c->key) : "");
    }
    c->closing = true;
    return;
  }
}

// False: the connection ends. `c` may be gone after a call of the handler.
bool RankLinkServer::OnMessage(Connection* c, const v1::RankMessage& message) {
  using Case = v1::RankMessage::MessageCase;
  const Case kind = message.message_case();
  if (!c->key) return kind == Case::kHello && OnHello(c, message.hello());
  const RankKey key = *c->key;
  switch (kind) {
    case Case::kPut:
      if (!IsRendezvousKey(message.put().key()) ||
          message.put().value().size() > kMaxRendezvousValue) {
        return false;
      }
      handler_->OnPut(key, message.put().key(), message.put().value());
      return true;
    case Case::kGet:
      if (!IsRendezvousKey(message.get().key())) return false;
      handler_->OnGet(key, message.get().key());
      return true;
    case Case::kJoined:
      handler_->OnJoined(key);
      return true;
    case Case::kReport:
      handler_->OnReport(key, message.report());
      return true;
    case Case::kHello:
    case Case::MESSAGE_NOT_SET:
      break;
  }
  return false;
}

bool RankLinkServer::OnHello(Connection* c, const v1::RankHello& hello) {
  const RankKey key{hello.job(), hello.generation(), hello.rank()};
  auto it = expected_.find(key);
  if (it == expected_.end()) {
    Refuse(c, "this node does not run " + Describe(key));
    return true;
  }
  Expected* expected = it->second.get();
  if (!task::SameSecret(expected->nonce, hello.nonce()) ||
      expected->uid != c->peer.uid) {
    LOG_WARN("rank link: pid {} uid {} is not {}", c->peer.pid, c->peer.uid,
             Describe(key));
    Refuse(c, "wrong nonce or user for " + Describe(key));
    return true;
  }
  if (Connection* old = Find(expected->connection)) {
    old->key.reset();  // No OnDisconnect: the rank is here.
    old->closing = true;
  }
  expected->connection = c->id;
  c->key = key;
  v1::DaemonMessage message;
  *message.mutable_welcome() = expected->welcome;
  Queue(c, message.SerializeAsString());
  if (expected->go) {
    message.mutable_go();
    Queue(c, message.SerializeAsString());
  }
  if (expected->directive) {
    *message.mutable_directive() = *expected->directive;
    Queue(c, message.SerializeAsString());
  }
  if (expected->abort) {
    *message.mutable_abort() = *expected->abort;
    Queue(c, message.SerializeAsString());
  }
  handler_->OnHello(key);
  return true;
}

void RankLinkServer::Refuse(Connection* c, const std::string& text) {
  v1::DaemonMessage message;
  message.mutable_refusal()->set_message(CleanText(text));
  Queue(c, message.SerializeAsString());
  c->closing = true;
}

void RankLinkServer::Queue(Connection* c, std::string packet) {
  c->out.push_back(std::move(packet));
  Flush(c);
  if (c->out.size() > kMaxQueuedDirectives) {
    LOG_WARN("rank link: {} does not read, cutting it off",
             c->key ? Describe(*c->key) : "a stranger");
    MarkForClose(c);
  }
}

void RankLinkServer::Flush(Connection* c) {
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

void RankLinkServer::MarkForClose(Connection* c) {
  c->closing = true;
  Arm(Duration(1));  // Dispatch closes it.
}

void RankLinkServer::Arm(Duration in) {
  itimerspec when{};
  when.it_value.tv_sec = in / seconds(1);
  when.it_value.tv_nsec = (in % seconds(1)).count();
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

void RankLinkServer::Sweep() {
  std::vector<uint64_t> ended;
  const MonoTime now = MonotonicNow();
  for (const auto& [id, c] : connections_) {
    if (c->closing || (!c->key && c->hello_due <= now)) ended.push_back(id);
  }
  for (uint64_t id : ended) {
    auto node = connections_.extract(id);
    if (node.empty() || !node.mapped()->key) continue;
    const RankKey key = *node.mapped()->key;
    node.mapped()->fd.Reset();
    auto expected = expected_.find(key);
    if (expected == expected_.end() || expected->second->connection != id) {
      continue;
    }
    expected->second->connection = 0;
    handler_->OnDisconnect(key);
  }
  // Connections closing meanwhile, by the handler, have armed the timer.
  std::optional<MonoTime> next;
  for (const auto& [id, c] : connections_) {
    if (c->closing) return;
    if (!c->key && (!next || c->hello_due < *next)) next = c->hello_due;
  }
  if (next) Arm(std::max(Duration(1), *next - now));
}

void RankLinkServer::Expect(const RankKey& key, const std::string& nonce,
                            uid_t uid, const v1::RankWelcome& welcome) {
  std::unique_ptr<Expected>& expected = expected_[key];
  if (!expected) expected = std::make_unique<Expected>();
  expected->nonce = nonce;
  expected->uid = uid;
  expected->welcome = welcome;
}

void RankLinkServer::Forget(const RankKey& key) {
  auto it = expected_.find(key);
  if (it == expected_.end()) return;
  if (Connection* c = Find(it->second->connection)) {
    c->key.reset();
    MarkForClose(c);
  }
  expected_.erase(it);
}

bool RankLinkServer::Send(const RankKey& key,
                          const v1::DaemonMessage& message) {
  auto it = expected_.find(key);
  if (it == expected_.end()) return false;
  Expected* expected = it->second.get();
  if (message.has_go()) expected->go = true;
  if (message.has_abort()) expected->abort = message.abort();
  if (message.has_directive()) expected->directive = message.directive();
  if (Connection* c = Find(expected->connection)) {
    Queue(c, message.SerializeAsString());
  }
  return true;
}

bool RankLinkServer::SendValue(const RankKey& key, const std::string& name,
                               const std::string& value) {
  v1::DaemonMessage message;
  message.mutable_value()->set_key(name);
  message.mutable_value()->set_value(value);
  return Send(key, message);
}

bool RankLinkServer::SendGo(const RankKey& key) {
  v1::DaemonMessage message;
  message.mutable_go();
  return Send(key, message);
}

bool RankLinkServer::SendAbort(const RankKey& key, const std::string& text) {
  v1::DaemonMessage message;
  message.mutable_abort()->set_message(CleanText(text));
  return Send(key, message);
}

bool RankLinkServer::SendDirective(const RankKey& key, uint32_t id,
                                   v1::RankDirective::Kind kind) {
  v1::DaemonMessage message;
  message.mutable_directive()->set_id(id);
  message.mutable_directive()->set_kind(kind);
  return Send(key, message);
}

bool RankLinkServer::connected(const RankKey& key) const {
  return pid(key) != 0;
}

pid_t RankLinkServer::pid(const RankKey& key) const {
  auto it = expected_.find(key);
  if (it == expected_.end()) return 0;
  auto connection = connections_.find(it->second->connection);
  return connection == connections_.end() || connection->second->closing
             ? 0
             : connection->second->peer.pid;
}

}  // namespace lockstep
